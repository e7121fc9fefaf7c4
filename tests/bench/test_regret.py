"""Suite ``regret``: its problems, candidates and findings, its tables and picture, a run on a stand-in for a GPU."""

from __future__ import annotations

import math
import random
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from sparsegen import cli
from sparsegen.backends.reference.stencil import run as reference
from sparsegen.bench import command, regret, regret_run, regret_tables, report, scatter, tables
from sparsegen.bench.harness import TOLERANCE
from sparsegen.bench.lab import LOOKS, Lab
from sparsegen.bench.regret import CHOSEN, RANDOM, TOP, Point, StencilProblem, VectorProblem, candidates, findings
from sparsegen.bench.stencils import stencil
from sparsegen.formats.nm import nm
from sparsegen.ir.errors import DeviceError
from sparsegen.ir.types import f32
from tests.bench.test_bitmaps import quick_lab
from tests.harness_kit import Gpu, view

HEAD: report.Result = {
    "device": "NVIDIA X", "driver": "1.2", "nvcc": "13.0", "python": "3.12", "sparsegen": "0.1",
    "commit": "0123456789abcdef", "dirty": False, "sources": "feed", "date": "2026-11-20 12:00 UTC", "seconds": 0.1,
    "cold": False, "seed": 1, "tolerance": TOLERANCE,
}  # fmt: skip
STENCILS = [p for seed in range(40) for p in regret.stencil_problems(seed, 28)]
PRODUCTS = [p for seed in range(40) for p in regret.product_problems(seed, 12)]


# ------------------------------------------------------------------------------------------------------ the problems
def plain(p: StencilProblem) -> tuple[Any, ...]:
    return p.name, p.stencil.name, p.stencil.weights.tobytes(), p.stencil.sides, p.shape, p.steps


def test_a_seed_gives_the_same_problems_each_time() -> None:
    one, again, other = ([plain(p) for p in regret.stencil_problems(seed, 12)] for seed in (5, 5, 6))
    assert one == again and not set(one) & set(other)
    assert [plain(p) for p in regret.stencil_problems(5, 4)] == one[:4]  # fewer are the first of them
    assert regret.product_problems(5, 12) == regret.product_problems(5, 12)
    assert not {p.m for p in regret.product_problems(5, 12)} & {p.m for p in regret.product_problems(6, 12)}


def test_stencils_are_in_their_ranges() -> None:
    for p in STENCILS:
        axes, w = len(p.shape), p.stencil.weights
        kind, dims, radius = p.stencil.name.split("_")
        assert (
            dims == f"{axes}d"
            and w.shape == (2 * int(radius[1:]) + 1,) * axes
            and int(radius[1:]) in regret.RADII[axes]
        )
        assert np.sum(w) == pytest.approx(1.0, abs=1e-6)
        assert np.count_nonzero(w) == (axes * (w.shape[0] - 1) + 1 if kind == "star" else w.size)
        assert p.stencil.dtype in ("f64", "f32") and regret.STEPS[0] <= p.steps <= regret.STEPS[1]
        low, high = (edge ** (axes * (axes > 1)) for edge in regret.STRETCH)
        assert regret.CELLS[0] * low * 0.98 <= math.prod(p.shape) <= regret.CELLS[1] * high * 1.02
        assert max(p.shape) <= 4.5 * min(p.shape)  # the sizes are rounded
    assert {len(p.shape) for p in STENCILS} == {1, 2, 3}
    assert {p.stencil.name.partition("_")[0] for p in STENCILS} == {"box", "star", "product"}
    whole = sum(all(n % 32 == 0 for n in p.shape) for p in STENCILS) / len(STENCILS)
    assert 0.4 < whole < 0.6 and {n % 2 for p in STENCILS for n in p.shape} == {0, 1}


def test_products_are_in_their_ranges() -> None:
    for p in PRODUCTS:
        assert all(regret.SIZES[0] <= edge <= regret.SIZES[1] for edge in (p.m, p.k))
        assert regret.COLUMNS[0] <= p.n <= regret.COLUMNS[1] and regret.ZEROS[0] <= p.sparsity <= regret.ZEROS[1]
    assert {p.dtype for p in PRODUCTS} == {"f16", "bf16"}
    assert all({getattr(p, edge) % 2 for p in PRODUCTS} == {0, 1} for edge in "mkn")


# ---------------------------------------------------------------------------------------------------- the candidates
def test_patterns_are_in_their_ranges() -> None:
    found = [p for seed in range(40) for p in regret.pattern_problems(seed, 40)]
    assert regret.pattern_problems(5, 40) == regret.pattern_problems(5, 40) != regret.pattern_problems(6, 40)
    for p in found:
        assert all(regret.PATTERN_SIZES[0] * 0.95 <= edge <= regret.PATTERN_SIZES[1] * 1.05 for edge in (p.m, p.k))
        assert regret.PATTERN_COLUMNS[0] <= p.n <= regret.PATTERN_COLUMNS[1] and p.order in ("rows", "columns")
        nm(f32, p.kept, p.window, p.vector)  # a pattern that there is
    assert {p.vector for p in found} == set(regret.BLOCKS) and {p.window for p in found} == set(regret.WINDOWS)


def test_problems_of_vectors_are_in_their_ranges() -> None:
    for part in regret.VECTORS:
        found = [p for seed in range(40) for p in regret.vector_problems(part, seed, 20)]
        assert regret.vector_problems(part, 5, 20) == regret.vector_problems(part, 5, 30)[:20]
        assert not {p.shape for p in found[:20]} & {p.shape for p in found[20:40]}
        assert all(0.5 <= p.sparsity <= 0.99 and p.types in TOLERANCE and p.part == part for p in found)
        assert {p.height for p in found} == {2, 4, 8} and {p.sigma > 0 for p in found} == {True, False}
        for p in found:
            if part == "attention":
                heads, rows, keys, d = p.shape
                assert 1 <= heads <= 16 and d in (32, 64, 128) and (p.bits == 8 or p.quantized)
                assert all(regret.SEQUENCES[0] * 0.9 <= n <= regret.SEQUENCES[1] for n in (rows, keys))
                continue
            _, k, n = p.shape
            assert p.kinds[0] == p.kinds[1] or part == "integers"
            assert (k if part == "sampled" else n) % 2 == 0 or p.kinds[1] != "i4"
            assert n <= 1024 or part == "sampled"
        assert len({p.types for p in found}) == {"integers": 7, "sampled": 3, "attention": 3}[part]
    assert sum(regret.PROBLEMS[part] for part in regret.VECTORS) == 40


def test_without_dense_the_cheapest_of_the_others_is_chosen(found: report.Result) -> None:
    mine = [row for row in regret.own(found["rows"]) if row["part"] == "products"]
    assert [(row["schedule"], row["picked"]) for row in mine] == [("bitmap cols=8", CHOSEN)]
    (finding,) = findings(mine)
    assert finding.regret == 1
    stencils = [row for row in regret.own(found["rows"]) if row["part"] == "stencils"]
    assert [row["picked"] for row in stencils if row["case"] == "s2"] == [CHOSEN, TOP, TOP]


def picked(seconds: list[float], seed: int = 0, most: int = regret.MOST) -> list[tuple[int, float, str]]:
    costs: list[Any] = list(range(len(seconds)))
    return candidates(costs, lambda at: seconds[at], random.Random(seed), most)


def test_the_cheapest_come_first_and_then_random_ones() -> None:
    seconds = [float((7 * at) % 50) for at in range(50)]
    found = picked(seconds)
    assert [how for *_, how in found] == [CHOSEN, *[TOP] * 11, *[RANDOM] * 12]
    assert [t for _, t, _ in found[:12]] == sorted(seconds)[:12] and all(seconds[at] == t for at, t, _ in found)
    assert len({at for at, *_ in found}) == 24 and found == picked(seconds) != picked(seconds, seed=1)


@pytest.mark.parametrize(("legal", "random_ones"), [(1, 0), (12, 0), (15, 3), (24, 12), (25, 12)])
def test_what_cannot_be_done_is_no_candidate(legal: int, random_ones: int) -> None:
    found = picked([math.inf, *(1.0 + at for at in range(legal)), math.inf])
    assert Counter(how for *_, how in found)[RANDOM] == random_ones
    assert all(math.isfinite(t) for _, t, _ in found) and len(found) == min(legal, 12) + random_ones


def test_every_other_schedule_may_be_drawn() -> None:
    drawn = Counter(
        at for seed in range(600) for at, _, how in picked([float(n) for n in range(10)], seed, 2) if how == RANDOM
    )
    assert set(drawn) == set(range(2, 10)) and max(drawn.values()) < 1.5 * min(drawn.values())


# ------------------------------------------------------------------------------------------------------- the findings
def point(
    case: str = "s1", predicted: float = 1e-3, measured: float | None = 1e-3, how: str = TOP, **more: Any
) -> Point:
    p = Point(part="stencils", case=case, shape=(2000, 3001), dtype="f64", boundary="periodic", steps=5, picked=how,
              schedule="stream fuse=1", predicted_s=predicted, binds="fma", measured_s=measured, p10=measured,
              p90=measured, repeats=9, regs=40, spills=0, error=1e-16, ok=measured is not None,
              stencil="box_2d_r1")  # fmt: skip
    return replace(p, **more)


def rows(*points: Point) -> list[dict[str, Any]]:
    return [p.as_json() for p in points]


def test_findings() -> None:
    found = findings(rows(
        point("s1", 1.0, 1.25, CHOSEN), point("s1", 2.0, 1.0), point("s1", 3.0, 4.0, RANDOM),
        point("s2", 1.0, 2.0, CHOSEN), point("s2", 1.0, None, failed="DeviceError: no"),
        point("s3", 1.0, None, CHOSEN, failed="DeviceError: no"), point("s3", 2.0, 1.0),
        point("s1", 1.0, 1.0, CHOSEN, part="products"),
    ))  # fmt: skip
    assert [f.case for f in found] == ["s1", "s2", "s1"] and [f.regret for f in found] == [1.25, 1.0, 1.0]
    assert found[0].errors == pytest.approx((-0.2, 1.0, -0.25)) and found[1].errors == (-0.5,)
    assert found[0].correlation == pytest.approx(0.5) and found[1].correlation == 1


def test_a_regret_is_of_low_percentiles_and_errors_of_medians() -> None:
    """Half of the calls of the chosen one were disturbed: its median is twice the time of the kernel."""
    (found,) = findings(rows(point("s1", 1.0, 2.0, CHOSEN, p10=1.0), point("s1", 2.0, 1.25, p10=1.2)))
    assert found.regret == 1.0 and found.errors == pytest.approx((-0.5, 0.6))
    (found,) = findings(rows(point("s1", 1.0, 1.0, CHOSEN, p10=1.0), point("s1", 2.0, 1.1, p10=0.8)))
    assert found.regret == 1.25  # the low one among the others counts as well


@pytest.mark.parametrize("seed", range(5))
def test_the_rank_correlation_is_spearmans(seed: int) -> None:
    draw = np.random.default_rng(seed)
    for high in (3, 10, 1000):  # few values: many are equal
        a, b = draw.integers(0, high, (2, 24))
        assert regret.rank_correlation(a, b) == pytest.approx(float(spearmanr(a, b)[0]))
    assert regret.rank_correlation([1, 1, 1], [1, 2, 3]) == 0 and regret.rank_correlation([1, 2], [2, 1]) == 1


def test_an_infinite_error_is_json() -> None:
    assert point(error=math.inf).as_json()["error"] == "inf" and point(error=0.5).as_json()["error"] == 0.5


# --------------------------------------------------------------------------------------------- the tables and picture
@pytest.fixture
def found() -> report.Result:
    """A stencil that was chosen well, one badly, one whose chosen schedule failed; a product, dense the fastest."""
    product = {"part": "products", "shape": (4096, 5000, 7), "dtype": "f16", "boundary": "columns", "sparsity": 0.612}
    return report.result("regret", [
        point("s1", 1.00e-3, 1.00e-3, CHOSEN), point("s1", 1.1e-3, 1.2e-3), point("s1", 2e-3, 2.1e-3, RANDOM),
        point("s2", 1.00e-4, 1.50e-4, CHOSEN), point("s2", 1.1e-4, 1e-4, schedule="tiled fuse=1"),
        point("s2", 1.2e-4, None, failed="DeviceError: no"),
        point("s3", 1e-2, None, CHOSEN, failed="DeviceError: no"), point("s3", 1e-2, 1e-2),
        point("p1", 1e-5, 2e-5, CHOSEN, schedule="bitmap cols=8", **product),
        point("p1", 2e-5, 1e-5, schedule="dense", **product),
    ], HEAD)  # fmt: skip


def test_a_limit_that_is_missed_is_marked(found: report.Result) -> None:
    head, *body = regret_tables.VIEWS["summary"](found)
    assert head == ["quantity", "wanted", "all (2 problems)", "stencils (2 problems)"]
    by_name = {line[0]: line[1:] for line in body}
    assert list(by_name) == [*regret_tables.LIMITS, "schedules timed"]
    assert by_name["regret, worst"] == ["≤ 1.15", "1.500 ✗", "1.500 ✗"]
    assert by_name["error, median"][2] == "8.3%" and not by_name["error, 90 %"][1].endswith("✗")
    assert by_name["rank correlation, median"][0] == "≥ 0.9" and by_name["schedules timed"] == ["all", *["6 of 8"] * 2]
    head, *body = regret_tables.VIEWS["weights"](found)
    assert head == ["quantity", "wanted", "products (1 problems)", "products without dense (1 problems)"]
    by_name = {line[0]: line[1:] for line in body}
    assert by_name["regret, worst"] == ["≤ 1.12", "2.000 ✗", "1.000"] and by_name["regret, median"][0] == "≤ 1.02"
    assert by_name["error, 90 %"][1].endswith("✗") and by_name["schedules timed"] == ["all", "2 of 2", "1 of 1"]
    none = regret_tables.VIEWS["summary"](report.result("regret", [point(measured=None, failed="x")], HEAD))
    assert none[1][2:] == ["–"] * 2


def test_details(found: report.Result) -> None:
    head, *body = regret_tables.VIEWS["stencils"](found)
    assert all(len(line) == len(head) for line in body) and [line[0] for line in body] == ["s1", "s2", "s3"]
    assert body[0][1:6] == ["2000×3001", "f64", "box_2d_r1", "periodic", "5"] and body[0][-1] == "the same"
    assert body[1][head.index("regret")] == "1.500" and body[1][-1] == "`tiled fuse=1`" and "failed" in body[2]
    _, line = regret_tables.VIEWS["products"](found)
    assert line[:5] == ["p1", "4096×5000×7", "f16", "columns", "61.2%"] and line[-1] == "`dense`"
    for row in found["rows"]:
        del row["stencil"]  # as in results that were made before rows had it
    assert regret_tables.VIEWS["stencils"](found)[1][3] == ""


def test_in_a_terminal_and_in_a_document(found: report.Result, tmp_path: Path) -> None:
    said = report.text(found)
    assert said.startswith("summary\nquantity") and said.index("\nstencils\n") < said.index("\nproducts\n")
    assert said.count("DeviceError: no") == 2 and said.count("commit 0123456789") == 4
    views = ("summary", "weights", "stencils", "products", "picture")
    marks = "".join(f"<!-- bench:regret {view} -->\nold\n<!-- end -->\n" for view in views)
    assert report.render(marks, tmp_path).count("Not measured yet") == 5
    report.save(found, tmp_path / "regret.json")
    whole = report.render(marks, tmp_path)
    assert "old" not in whole and "Not measured" not in whole
    assert f"![{report.PICTURES['regret']}](regret.svg)" in whole
    assert set(regret.PARTS) <= {*tables.VIEWS["regret"]}


def circles(found: report.Result) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(scatter.svg(found)).iter("{http://www.w3.org/2000/svg}circle"))


def test_the_picture_has_every_point(found: report.Result) -> None:
    marks = circles(found)
    dots = [c for c in marks if c.get("class", "").startswith("dot ")]
    assert len(dots) == 8 and len({c.get("class") for c in dots}) == 4  # families
    rings = [c for c in marks if c.find("{http://www.w3.org/2000/svg}title") is not None]
    assert len(rings) == 3 and {c.get("class") for c in rings} == {"ring"}
    text = scatter.svg(found)
    assert text == scatter.svg(found) and "stream (5)" in text and "chosen (3)" in text and "not here: 2" in text
    assert "commit 0123456789" in text and "prefers-color-scheme:dark" in text


def test_dots_on_one_pixel_are_one() -> None:
    points = [point(f"s{at}", 1e-3 * (1 + 1e-6 * at)) for at in range(5000)]
    far = point("far", 1.0, 0.5, CHOSEN)
    found = report.result("regret", [*points, far], HEAD)
    dots = [c for c in circles(found) if c.get("class", "").startswith("dot ")]
    assert len(dots) < 20 and sum(int(c.get("data-n", 1)) for c in dots) == 5001
    assert circles(report.result("regret", [point(measured=None, failed="x")], HEAD))  # the legend's


def test_a_whole_study_is_a_small_picture() -> None:
    draw = random.Random(0)
    pairs = [(10 ** draw.uniform(-5, -1), draw.uniform(0.5, 2)) for _ in range(960)]
    found = report.result("regret", [point("s1", t, t * off, CHOSEN) for t, off in pairs], HEAD)
    assert len(scatter.svg(found)) < 300_000


# --------------------------------------------------------------------------------- measuring, on a stand-in for a GPU
SMALL = [StencilProblem(f"s{at}", stencil(name), (20, 33), steps) for at, name, steps in
         ((1, "Heat-2D", 2), (2, "Box-2D9P", 3))]  # fmt: skip


class Made:
    """A kernel of a problem, right or at fault."""

    def __init__(self, p: StencilProblem, fault: str) -> None:
        self.problem, self.shape, self.dtype, self.fault, self.calls = p, p.shape, np.dtype(np.float64), fault, 0

    def resources(self) -> Any:
        return SimpleNamespace(registers=40, spills=0, shared=1024)

    def __call__(self, u: Any, out: Any) -> None:
        self.calls += 1
        if self.fault == "launch":
            raise DeviceError("the launch failed")
        p = self.problem
        y = reference(view(u.pointer, u.count).reshape(p.shape), p.stencil.weights, p.stencil.sides, p.steps).ravel()
        kept = u.count - (self.fault == "incomplete")
        view(out.pointer, out.count)[:kept] = y[:kept]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Of each problem's kernels the third does not compile, the fourth does not run, the fifth is wrong."""
    gpu, at = Gpu(), count()
    faults = {2: "compile", 3: "launch", 4: "incomplete"}

    def start(self: Lab, seed: int = 0) -> None:
        self.runtime = self.naive = gpu  # type: ignore[assignment]
        self._seed, self._cold = seed, None

    def build(self: Any, p: StencilProblem, schedule: str) -> Made:
        fault = faults.get(next(at) % 24, "")
        if fault == "compile":
            raise DeviceError("nvcc failed")
        return Made(p, fault)

    monkeypatch.setattr(Lab, "__init__", start)
    monkeypatch.setattr("sparsegen.bench.lab.COLD_BYTES", 1 << 16)
    monkeypatch.setattr("sparsegen.bench.harness.cpu_count", lambda: 1)  # kernels are built in order
    monkeypatch.setattr(regret_run.Stencils, "build", build)
    monkeypatch.setattr(regret, "stencil_problems", lambda seed, count: SMALL[:count])
    return gpu


def test_a_run_keeps_what_fails(gpu: Gpu) -> None:
    lines, kept = list[str](), list[int]()
    points = regret_run.run(["stencils"], 3, 0.004, lines.append, lambda points: kept.append(len(points)))
    assert kept == [24, 48] and [p.case for p in points] == ["s1"] * 24 + ["s2"] * 24
    assert len(gpu.held) == 1  # what is read to empty L2
    for each in (points[:24], points[24:]):
        assert [p.picked for p in each] == [CHOSEN, *[TOP] * 11, *[RANDOM] * 12]
        assert [p.failed for p in each[2:4]] == ["DeviceError: nvcc failed", "DeviceError: the launch failed"]
        assert [p.ok for p in each] == [True, True, False, False, False, *[True] * 19] and each[4].error == math.inf
        assert all(p.measured_s == 1e-3 and p.repeats == 12 for p in each if not p.failed)  # four rounds of LEAST
    assert points[0].stencil == SMALL[0].stencil.name and (points[0].regs, points[0].spills) == (40, 0)
    assert "regret 1.000" in lines[1] and "3 FAILED" in lines[1] and len(lines) == 4
    again = regret_run.run(["stencils"], 3, 0.004, problems=1)
    assert [(p.schedule, p.picked) for p in again] == [(p.schedule, p.picked) for p in points[:24]]


@pytest.mark.parametrize("cold", [True, False])
def test_each_timed_call_comes_after_a_read(gpu: Gpu, cold: bool) -> None:
    calls = Counter[str]()
    each = [lambda name=name: calls.update([name]) for name in "ab"]
    timings = regret_run.timed(Lab(), each, 0.012, cold)
    assert [t.repeats for t in timings] == [12, 12]  # 3 of a millisecond in each of four rounds
    timed, looks = 2 * 4 * (2 + 3), 0 if cold else 2 * (2 + LOOKS)  # how long a call takes: no brief one
    assert gpu.flushes == timed * regret_run.READS + looks
    assert calls == dict.fromkeys("ab", timed // 2 * (1 if cold else 2) + looks // 2)


VECTORS = {
    "integers": VectorProblem("in1", "integers", (24, 70, 16), 0.7, 8, 1.0, ("i16", "i4"), "columns"),
    "sampled": VectorProblem("sa1", "sampled", (16, 40, 30), 0.7, 4, 0.0, ("i4", "i4")),
    "attention": VectorProblem("at1", "attention", (2, 16, 40, 32), 0.6, 2, 0.0, bits=16),
}


@pytest.mark.parametrize("part", regret.VECTORS)
def test_problems_of_vectors_are_checked(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the emulator, with torch's arrays on the host."""
    lab, p = quick_lab(monkeypatch), VECTORS[part]
    monkeypatch.setattr(regret, "vector_problems", lambda part, seed, count: [p])
    study = regret_run.Vectors(part, lab, 3, 0.001, "cpu", "emulator")
    (problem,) = study.problems(1)
    points = study.candidates(problem, random.Random(1))[:2]
    assert points[0].dtype == p.types in TOLERANCE and points[0].picked == CHOSEN and len(points) == 2
    kernels = [study.build(problem, q.schedule) for q in points]
    found = regret_run.measured(study, problem, points, kernels, 0.001)
    assert all(q.ok and q.measured_s and not q.failed for q in found), found
    assert p.pattern in regret_tables.VIEWS[part](report.result("regret", found, HEAD))[1]
    summary = regret_tables.VIEWS["vectors"](report.result("regret", found, HEAD))
    assert summary[0][2:] == ["all (1 problems)", f"{part} (1 problems)"] and summary[1][1] == "≤ 1.05"


# --------------------------------------------------------------------------------------------------- the command line
def test_from_the_command_line(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "gpu_info", lambda: SimpleNamespace())
    monkeypatch.setattr(
        report, "header", lambda seconds, cold, seed, _: {**HEAD, "seed": seed, "sources": report.origin().sources}
    )
    out = tmp_path / "regret.json"
    words = ["bench", "--suite", "regret", "--seed", "3", "--seconds", "0.001", "--problems", "1", "--out", str(out)]
    assert cli.main([*words, "--part", "stencils"]) == 1  # some fail
    said = capsys.readouterr()
    assert said.out.startswith("summary\n") and "nvcc failed" in said.out and "s1 20x33 f64" in said.err
    found = report.load(out)
    assert found["seed"] == 3 and set(found["parts"]) == {"stencils"} and len(found["rows"]) == 24
    assert found["tolerance"]["bf16"] and found["rows"][2]["measured_s"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--suite", "regret", "--cold"], "drop --cold"),
        (["--suite", "regret", "--part", "odd"], "no part odd"),
        (["--suite", "stencil", "--problems", "2"], "no random problems"),
        (["--suite", "spine", "--part", "products"], "no parts"),
    ],
)
def test_options_of_other_suites_are_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", *words]) == 2 and said in capsys.readouterr().err
