"""Suite ``bitmap``: its cases, how they are judged (on the emulator, with torch's arrays on the host), its tables."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen import cli
from sparsegen.bench import bitmap_run, bitmaps, command, compression, floors, notes, products, report, tables
from sparsegen.bench.bitmap_run import BitmapRow, Bitmaps, labels
from sparsegen.bench.bitmaps import APART, COLD, CUBLAS, HALVES, READ, UNIFORM, WARM, ProductCase, Weights
from sparsegen.bench.harness import TOLERANCE, reason
from sparsegen.bench.lab import Lab, Timing
from sparsegen.ir.errors import ArrayError, FormatError

HEAD: report.Result = {
    "device": "NVIDIA X", "driver": "1.2", "nvcc": "13.0", "python": "3.12", "sparsegen": "0.1",
    "commit": "0123456789abcdef", "dirty": False, "sources": "feed", "date": "2026-11-20 12:00 UTC", "seconds": 0.1,
    "cold": False, "seed": 1, "tolerance": TOLERANCE,
}  # fmt: skip
FLOOR = """\
# NVIDIA H200, 132 SMs, L2 60 MB
variant,M,K,N,sparsity,format_MB,us_hot,us_cold,GB/s,relerr
planes2x2_w16,28672,8192,16,0.60,219.16,82.10,92.50,2369,2.10e-04,stages=5
planes3c_w16,28672,8192,16,0.60,219.16,81.70,91.00,2408,2.10e-04,stages=5
ldsu16_w16,28672,8192,16,0.60,219.16,80.00,80.00,2408,2.10e-02 FAIL,stages=5
planes2x2_w16,28672,8192,8,0.60,219.16,71.60,84.90,2408,2.10e-04,stages=7
planes2x2_w8,28672,8192,32,0.60,skipped: shared memory
load_decode_nomma,28672,8192,16,0.60,219.16,79.00,88.00,2408,-1.00e+00,stages=5
read_all_ldg,28672,8192,16,0.60,219.16,51.00,60.00,3650,-1
# all checks passed
"""


# --------------------------------------------------------------------------------------------------------------- cases
def told(case: ProductCase) -> str:
    """A case's target and aim, in microseconds or as shares."""
    goals = [f"{goal * (1 if case.of else 1e6):.4g}" for goal in (case.target, case.aim) if goal]
    return " ".join([*goals, case.of]).strip()


def test_the_targets_are_the_issues() -> None:
    found = {(c.shape, c.weights.sparsity): told(c) for c in bitmaps.cases(["targets"])}
    table = {
        16: ("92 80", "78.5 66", "74 56"), 8: ("88 77", "76.5 63", "71.5 53"), 1: ("88 76", "75.5 60", "71 50"),
        32: ("105 92", "95 78", "90 68"), 64: ("127 115", "112 95", "106 85"),
        128: ("1.1 cuBLAS", "1.05 0.95 cuBLAS", "1 0.9 cuBLAS"),
    }  # fmt: skip
    large = {((28672, 8192, n), zeros): goal for n, goals in table.items()
             for zeros, goal in zip((0.5, 0.6, 0.7), goals, strict=True)}  # fmt: skip
    assert found == large | {
        ((21504, 7168, 16), 0.6): "58.5 48", ((8192, 8192, 16), 0.6): "31 25", ((4096, 4096, 16), 0.6): "1 cuBLAS",
    }  # fmt: skip


def test_the_parts() -> None:
    cases = bitmaps.cases()
    assert Counter(c.part for c in cases) == {
        "targets": 21, "shapes": 12, "widths": 9, "bf16": 8, "narrow": 12, "grouped": 4, "dlmc": 4, "encode": 2,
    }  # fmt: skip
    assert {c.n for c in cases} == {0, 1, 4, 8, 16, 32, 64, 128, 256, 512}
    for at, case in enumerate(cases):
        if case.other:  # it stands before, in the same part, and differs in one thing
            assert case.other in cases[:at] and case.other.part == case.part and not case.other.of
            assert case.other == replace(case, target=None, aim=None, of="", weights=case.other.weights,
                                         apart=case.of == APART)  # fmt: skip
            assert case.other.weights == replace(case.weights, shuffled=case.of == UNIFORM, dtype="f16")
    assert {(c.weights.dtype, c.part, told(c)) for c in cases if c.of == HALVES} == {
        ("bf16", "bf16", "1.03 f16"), ("i8", "narrow", "0.8696 f16"), ("e4m3", "narrow", "0.8696 f16")}  # fmt: skip
    assert {told(c) for c in cases if c.part in ("shapes", "grouped") and c.of} == {
        "0.7692 cuBLAS", "0.75 launches apart"}  # fmt: skip
    assert all(len(set(each)) == len(each) for each in bitmaps.CASES.values())
    assert set(bitmaps.PARTS) <= {*tables.VIEWS["bitmap"]}
    assert [c.target for c in cases if c.part == "encode"] == [0.05, 10.0]


SMTX = "4, 6, 5\n0 2 2 3 5\n1 5 0 2 3\n"


def test_a_pattern_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARSEGEN_DATA", str(tmp_path))
    (tmp_path / "p.smtx").write_text(SMTX)
    assert [tuple(map(int, at)) for at in np.argwhere(bitmaps.pattern("p.smtx"))] == [
        (0, 1), (0, 5), (2, 0), (3, 2), (3, 3)]  # fmt: skip
    for text in ("", "4, 6\n0\n0\n", SMTX.replace("5 0 2", "6 0 2"), SMTX.replace("1 5", "1 1"), "a\nb\nc\n"):
        (tmp_path / "p.smtx").write_text(text)
        with pytest.raises(FormatError, match=r"p\.smtx"):
            bitmaps.pattern("p.smtx")
    with pytest.raises(FormatError, match="No such file"):
        bitmaps.pattern("absent.smtx")
    monkeypatch.delenv("SPARSEGEN_DATA")
    with pytest.raises(ArrayError, match="skipped"):
        bitmaps.pattern("p.smtx")


# -------------------------------------------------------------------------------------------------------------- floors
def test_only_right_results_of_whole_products_are_floors() -> None:
    found = floors.parse(FLOOR, "bitmap_floor")
    assert len(found) == 3
    fastest = floors.best(found, floors.product((28672, 8192, 16), 0.6))
    assert fastest and 1 / fastest.rate == pytest.approx(91e-6) and str(fastest) == "bitmap_floor planes3c_w16"
    narrow = floors.best(found, floors.product((28672, 8192, 8), 0.6))
    assert narrow and 1 / narrow.rate == pytest.approx(84.9e-6)
    assert floors.best(found, floors.product((28672, 8192, 16), 0.7)) is None


# --------------------------------------------------------------------------------- measuring, on a stand-in for a GPU
@dataclass
class Gpu:
    """What of a Runtime the bench uses besides torch; a call takes a microsecond longer after a memset, a read less."""

    seconds: float = 1e-6
    log: list[str] = field(default_factory=list)

    def alloc(self, nbytes: int) -> int:
        return 1 << 30

    def zero(self, pointer: int, nbytes: int) -> None:
        self.log.append(COLD)

    def read(self, pointer: int, nbytes: int) -> None:
        self.log.append(READ)

    def synchronize(self) -> None: ...

    def info(self) -> Any:
        return SimpleNamespace(arch="sm_90a")

    def timer(self) -> Any:
        def start(stream: int | None) -> None:
            self.log.append("start")

        def seconds() -> float:
            before = self.log[-2] if self.log[-1] == "start" and len(self.log) > 1 else ""
            return self.seconds * {COLD: 100, READ: 90}.get(before, 80)

        return SimpleNamespace(start=start, stop=lambda _: None, seconds=seconds)


def quick_lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A lab on a GPU that takes no time, for few calls."""
    pytest.importorskip("torch")
    gpu = Gpu()

    def start(self: Lab, seed: int = 0) -> None:
        self.runtime = self.naive = gpu  # type: ignore[assignment]
        self._seed, self._cold = seed, None

    monkeypatch.setattr(Lab, "__init__", start)
    monkeypatch.setattr(products, "REST", 0.0)
    monkeypatch.setattr(products, "HOT", 2)
    return Lab()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bitmaps:
    return Bitmaps(quick_lab(monkeypatch), 7, 1e-5, "cpu", "emulator")


def case(**more: Any) -> ProductCase:
    return replace(ProductCase("targets", Weights((48, 130), 0.6), 8), **more)


def test_a_right_product(bench: Bitmaps) -> None:
    (row,) = bench.run([case(target=1.0, aim=0.5)])
    assert row.ok and row.same and row.error is not None and 1e-5 < row.error < 5e-4
    assert row.times and row.cublas and set(row.times) == set(row.cublas) == {"rows", "columns"}
    assert all(set(each) == {COLD, READ, WARM} for each in row.times.values())
    assert row.median_s == pytest.approx(1e-4) and row.times["rows"][READ] == pytest.approx(0.9e-4)
    assert row.times["rows"][WARM] == pytest.approx(0.8e-4 / products.HOT)  # the mean of calls back to back
    assert row.repeats == products.LEAST and row.x == "rows" and row.bound and row.nbytes
    assert row.sparsity == pytest.approx(0.6, abs=0.03) and str(row.schedule).startswith("bitmap mma=f16")


@pytest.mark.parametrize(("dtype", "n"), [("bf16", 4), ("f16", 1), ("f16", 16)])
def test_types_and_widths(bench: Bitmaps, dtype: str, n: int) -> None:
    (row,) = bench.run([case(weights=Weights((33, 70), 0.5, dtype), n=n)])
    assert row.ok and row.error is not None and row.times is not None
    assert (row.error > 5e-4) == (dtype == "bf16") and len(row.times) == (1 if n == 1 else 2)


def test_matrices_are_made_once_and_differ_from_seed_to_seed(bench: Bitmaps) -> None:
    cases = [case(), case(n=4), case(weights=Weights((48, 130), 0.7))]
    bench.prepare(cases)
    assert len(bench.encoded) == 2 and all(bench.build(each) for each in cases)
    one, two = (bench.weights(cases[0].weights, seed) for seed in (1, 2))
    assert not bench.torch.equal(one, two) and bench.torch.equal(one, bench.weights(cases[0].weights, 1))
    assert not (bench.torch.signbit(one) & (one == 0)).any()  # -0.0 would be kept


class Faulty:
    """A kernel that leaves something out, or has another result the second time."""

    def __init__(self, kernel: Any, fault: str) -> None:
        self.kernel, self.fault, self.calls = kernel, fault, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)

    def __call__(self, x: Any, out: Any) -> None:
        y = self.kernel(x)
        self.calls += 1
        if self.fault == "inexact":
            y[0, 0] += 1
        if self.fault == "unsteady" and self.calls == 2:
            y.view(-1).view(y.dtype)[0] *= 1.001
        out[: -1 if self.fault == "incomplete" else None] = y[: -1 if self.fault == "incomplete" else None]


@pytest.mark.parametrize("fault", ["none", "inexact", "unsteady", "incomplete"])
def test_a_wrong_product_is_not_ok(bench: Bitmaps, fault: str) -> None:
    bench.prepare([case()])
    (kernel,) = bench.build(case()) or ()
    row = bench.measure(case(), [Faulty(kernel, fault)], 3)  # type: ignore[list-item]
    assert row.ok == (fault == "none") and row.same == (fault != "unsteady")
    assert row.error is not None and math.isfinite(row.error) == (fault != "incomplete")


def test_targets(bench: Bitmaps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure, a multiple of cuBLAS's time, and one of the time of as many zeros in other places."""
    monkeypatch.setenv("SPARSEGEN_DATA", str(tmp_path))
    rows, columns = (np.random.default_rng(0).random((16, 20)) < 0.4).nonzero()
    starts = np.searchsorted(rows, range(17))
    lines = (f"16, 20, {len(rows)}", " ".join(map(str, starts)), " ".join(map(str, columns)))
    (tmp_path / "p.smtx").write_text("\n".join(lines) + "\n")
    w = Weights((48, 100), 0.6, pattern="p.smtx")
    cases = [
        case(target=2e-4), case(target=0.5e-4), case(target=1.0, of=CUBLAS), case(target=0.9, of=CUBLAS),
        case(weights=w, target=1.1, of=UNIFORM),
        case(weights=replace(w, shuffled=True)), case(weights=w, target=1.1, of=UNIFORM),
        case(weights=replace(w, pattern="absent.smtx")),
    ]  # fmt: skip
    kept = list[int]()
    found = bench.run(cases, keep=lambda rows: kept.append(len(rows)))
    assert [row.ok for row in found] == [True, False, True, False, False, True, True, False]
    assert [row.target for row in found[2:5]] == [pytest.approx(1e-4), pytest.approx(0.9e-4), None]
    assert found[6].target == pytest.approx(1.1e-4) and found[6].nbytes and kept == [*range(1, 9)]
    assert found[5].sparsity == pytest.approx(found[6].sparsity, abs=1e-3)
    assert "absent.smtx" in (found[7].failed or "") and found[7].error is None
    first, second = (bench.weights(replace(w, shuffled=s), 5) for s in (False, True))
    assert (first != 0).sum() == (second != 0).sum() == 3 * 5 * len(rows)
    assert bench.torch.equal((first != 0)[:16], (first != 0)[16:32])  # tiled


@pytest.mark.parametrize("dtype", ["i8", "e4m3"])
def test_elements_of_8_bits_beside_f16(bench: Bitmaps, dtype: str) -> None:
    """They have a scale a row, and as many zeros: only their values are other ones."""
    one = case(weights=Weights((48, 130), 0.6, dtype), target=0.9, of=HALVES)
    assert one.other
    plain, narrow = bench.run([one.other, one])
    assert plain.ok and narrow.same and narrow.error is not None and narrow.error < 1e-3
    assert not narrow.ok and narrow.target == pytest.approx(0.9e-4) and narrow.dense_s is None
    assert narrow.nbytes and plain.nbytes and narrow.nbytes < plain.nbytes and narrow.dtype == dtype
    assert narrow.sparsity == pytest.approx(0.6, abs=0.03)
    head, line = tables.VIEWS["bitmap"]["targets"](report.result("bitmap", [narrow], HEAD))
    assert dict(zip(head, line, strict=True))["at least"] == "90.0 (0.9 of f16)"


def test_several_matrices_in_a_launch_and_apart(bench: Bitmaps) -> None:
    one = case(count=3, target=1.5, aim=0.5, of=APART)
    assert one.other
    rows = bench.run([one.other, one])
    assert [row.case for row in rows] == [f"60% zeros, 3 matrices, {how}" for how in ("a launch each", "one launch")]
    assert all(row.ok and row.shape == (144, 130, 8) and row.dense_s is None for row in rows)
    assert rows[0].nbytes == rows[1].nbytes and rows[1].target == pytest.approx(1.5e-4)
    assert rows[1].aim == pytest.approx(0.5e-4) and rows[0].target is None
    apart, whole = (bench.build(each) or [] for each in (one.other, one))
    assert (len(apart), len(whole), len(bench.encoded)) == (3, 1, 3)
    apart[-1] = Faulty(apart[-1], "inexact")  # type: ignore[call-overload]
    assert not bench.measure(one.other, apart, 3).ok  # one wrong result of several is found


def test_encoding(bench: Bitmaps, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [ProductCase("encode", Weights((64, 200), 0.6), 0, 30.0, on=on) for on in ("GPU", "host")]
    rows = bench.run(cases)
    assert all(row.ok and row.error == 0 and row.nbytes for row in rows) and rows[0].repeats == products.LEAST
    assert not bench.encode(replace(cases[0], target=1e-9), 1).ok
    right = bench.weights
    seeds = iter(range(100))
    encode = bitmap_run.sparse
    monkeypatch.setattr(bitmap_run, "sparse", lambda w: encode(right(cases[0].weights, next(seeds))))
    assert not any(row.ok for row in bench.run(cases))


def test_floors_stand_in_their_rows(bench: Bitmaps, tmp_path: Path) -> None:
    program = tmp_path / "by_hand"
    program.write_text("#!/bin/sh\necho $1,48,130,8,0.60,1.00,40.00,50.00,20,2.1e-04,stages=5\n")
    program.chmod(0o755)
    said = list[str]()
    bf16 = case(weights=Weights((48, 130), 0.6, "bf16"))
    rows = bench.run([case(), bf16], said.append, [f"{program} quick", str(tmp_path / "absent.cu")])
    assert (rows[0].floor_s, rows[0].floor_by) == (pytest.approx(50e-6), "by_hand quick") and rows[1].floor_s is None
    assert any("there is no floor" in line for line in said)


def test_from_the_command_line(
    bench: Bitmaps, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(bitmaps.CASES, "targets", [case(target=1.0)])
    monkeypatch.setitem(bitmaps.CASES, "bf16", [case(part="bf16", target=1e-9)])
    monkeypatch.setattr(command, "gpu_info", lambda: SimpleNamespace())
    monkeypatch.setattr(report, "header", lambda *_: {**HEAD, "sources": report.origin().sources})
    monkeypatch.setattr(bitmap_run, "Bitmaps", lambda *_: bench)
    monkeypatch.setattr(floors, "FOLDER", tmp_path)  # none: they take long to compile
    out = tmp_path / "bitmap.json"
    words = ["bench", "--suite", "bitmap", "--out", str(out)]
    assert cli.main([*words, "--quick"]) == 0 and "60% zeros" in capsys.readouterr().out
    assert cli.main([*words, "--part", "bf16"]) == 1 and "NOT OK" in capsys.readouterr().err
    found = report.load(out)
    assert [(row["part"], row["ok"]) for row in found["rows"]] == [("targets", True), ("bf16", False)]
    assert found["tolerance"]["f16"] == 1e-3 and set(found["parts"]) == {"targets", "bf16"}
    assert cli.main([*words, "--part", "odd"]) == 2 and "no part odd" in capsys.readouterr().err
    assert cli.main([*words, "--cold"]) == 2


# -------------------------------------------------------------------------------------------------------------- tables
def times(cold: float) -> dict[str, dict[str, float]]:
    return {order: {COLD: cold, READ: cold * 0.95, WARM: cold * 0.9} for order in ("rows", "columns")}


def measured(each: ProductCase, at: int) -> BitmapRow:
    """A made-up result, a microsecond slower from row to row; cuBLAS takes twice as long, the model half."""
    cold = (40 + at) * 1e-6
    t = Timing(cold, cold * 0.9, cold * 1.2, 11)
    row = BitmapRow(**labels(each, at), median_s=t.median, p10=t.p10, p90=t.p90, repeats=11, error=2e-4, ok=at != 1)
    if not each.n:
        return replace(row, nbytes=each.shape[0] * each.shape[1])
    row = replace(
        row, schedule="bitmap cols=16", x="rows", times=times(cold), cublas=times(2 * cold), regs=99, spills=0
    )
    row = replace(row, predicted_s=cold / 2, dense_s=cold / (4 if at == 2 else 1), bound="decode", smem=1000)
    return replace(row, target=2 * cold * (each.target or 1) if each.of == CUBLAS else row.target, nbytes=1)


@pytest.fixture
def found() -> report.Result:
    rows = [measured(each, at) for at, each in enumerate(bitmaps.cases())]
    rows[0] = replace(rows[0], floor_s=50e-6, floor_by="bitmap_floor x")
    return report.result("bitmap", rows, HEAD)


def test_goals(found: report.Result) -> None:
    found = notes.annotated(found, Path(__file__).parents[2] / "docs" / "bench")
    head, *body = tables.VIEWS["bitmap"]["goals"](found)
    assert len(body) == 21 and {len(row) for row in body} == {len(head)}
    assert body[0] == ["50% zeros", "28672×8192×16", "92", "80", "rows", "40.0 †", "36.0", "20.0 ‡", "80.0", "2.00",
                       "1.25", "183", "171 (wrong)", "2e-04"]  # fmt: skip
    assert body[1][5] == "41.0 ✗ †" and body[1][10:12] == ["–", "181"]
    assert body[20][2] == "120.0 (cuBLAS)" and body[20][-3:-1] == ["24", "26"] and body[3][-3:-1] == ["–", "–"]
    assert body[15][2] == "121.0 (1.1 of cuBLAS)"


def test_details(found: report.Result) -> None:
    for part in ("targets", "shapes", "widths", "bf16", "narrow", "grouped", "dlmc"):
        head, *body = tables.VIEWS["bitmap"][part](found)
        assert body and {len(row) for row in body} == {len(head)}
        row = dict(zip(head, body[2], strict=True))
        assert row["registers"] == "99" and row["schedule"] == "`bitmap cols=16`"
        assert row["auto"] == ("dense" if part == "targets" else "bitmap")
    assert "1.1 of uniform" in report.markdown(found, "dlmc") and "as many zeros anywhere" in report.text(found)


def test_encode_table(found: report.Result) -> None:
    head, gpu, host = tables.VIEWS["bitmap"]["encode"](found)
    assert head[0] == "encode" and gpu[0] == "GPU" and host[0] == "host" and gpu[4] == "50" and host[4] == "10000"
    assert gpu[-1] == "50.0%" and gpu[-2] == "234,881,024"


def test_failures_and_json(found: report.Result, tmp_path: Path) -> None:
    cases = bitmaps.cases()
    skipped = ArrayError("skipped: p is not here", hint="set SPARSEGEN_DATA")
    why = [reason(skipped if each.weights.pattern else ValueError("no")) for each in cases]
    rows = [BitmapRow(**labels(each, 1), failed=said) for each, said in zip(cases, why, strict=True)]
    rows[0] = replace(rows[0], error=math.inf)
    lost = report.result("bitmap", rows, HEAD)
    report.save(lost, tmp_path / "bitmap.json")
    again = report.load(tmp_path / "bitmap.json")
    text = report.text(again)
    assert again["rows"][0]["error"] == "inf" and text.count("ValueError: no") == 68
    assert text.count("skipped: p is not here") == 4
    assert report.markdown(again, "dlmc").count("| skipped |") == 4
    both = report.merged(found, report.result("bitmap", rows[21:22], HEAD))
    assert len(both["rows"]) == len(cases) - 11


def test_every_view_is_rendered_or_not_measured_yet(found: report.Result, tmp_path: Path) -> None:
    marks = "".join(f"<!-- bench:bitmap {view} -->\nold\n<!-- end -->\n" for view in tables.VIEWS["bitmap"])
    assert report.render(marks, tmp_path).count("Not measured yet") == 9
    part = {**found, "rows": [r for r in found["rows"] if r["part"] == "targets"], "parts": {"targets": HEAD}}
    report.save(part, tmp_path / "bitmap.json")
    assert report.render(marks, tmp_path).count("Not measured yet") == 7
    report.save(found, tmp_path / "bitmap.json")
    whole = report.render(marks, tmp_path)
    assert "Not measured" not in whole and "old" not in whole and whole.count("commit 0123456789") == 9


def test_peers_are_of_rows_of_the_table(found: report.Result, tmp_path: Path) -> None:
    """What others' kernels took stands in a file of its own, and below the table what of it is not recorded."""
    text = (Path(__file__).parents[2] / "docs/bench/peers.json").read_text()
    peers = json.loads(text)
    targets = {(case.shape, case.weights.sparsity) for case in bitmaps.cases(["targets"])}
    assert {(tuple(row["shape"]), row["sparsity"]) for row in peers["rows"]} <= targets
    assert all(told["date"] and told["device"] and "commit" in told for told in peers["kernels"].values())
    report.save(found, tmp_path / "bitmap.json")
    mark = "<!-- bench:bitmap -->\n<!-- end -->\n"
    assert "SpInfer:" not in report.render(mark, tmp_path)
    (tmp_path / "peers.json").write_text(text)
    shown = report.render(mark, tmp_path)
    assert (
        "| 183 | 171 (wrong) |" in shown and "SpInfer: its published code" in shown and "commit not recorded" in shown
    )
    assert list(report.results(tmp_path)) == ["bitmap"]


# ------------------------------------------------------------------------------------------------ compression, drawn
def test_the_picture_of_compression() -> None:
    import xml.etree.ElementTree as ElementTree

    from sparsegen.formats import ratio

    text = compression.svg((64, 256))
    assert text == compression.svg((64, 256))
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert len([c for c in root.iter(f"{space}circle") if c.find(f"{space}title") is not None]) == 9 * len(
        ratio.FORMULAS
    )
    assert "TCA-BME, 60 %: " in text and f"{ratio.counted(ratio.random_weights(64, 256, 0.6))['CSR']:.2f}" in text
    assert sg.sparse(ratio.random_weights(64, 256, 0.6)).compression == pytest.approx(
        ratio.counted(ratio.random_weights(64, 256, 0.6))["bitmap"])  # fmt: skip
