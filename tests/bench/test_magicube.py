"""Suite ``magicube``: its cases, how they are judged (on the emulator, with torch's arrays on the host), its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen import cli
from sparsegen.bench import beside, command, floors, magicube, magicube_run, report, tables
from sparsegen.bench.bitmaps import COLD, WARM
from sparsegen.bench.harness import TOLERANCE
from sparsegen.bench.magicube import VectorCase, VectorRow
from sparsegen.bench.magicube_run import Vectors
from sparsegen.ir.errors import ArrayError, DeviceError
from tests.bench.test_bitmaps import HEAD, SMTX, quick_lab

SMALL = VectorCase("spmm", "spmm", (24, 70, 16), 0.7, least=1e6, aim=1.0)
SAMPLED = VectorCase("sddmm", "sddmm", (16, 40, 30), 0.7)
HEADS = VectorCase("attention", "attention", (16, 40, 32), 0.6)


# --------------------------------------------------------------------------------------------------------------- cases
def test_the_cases_are_those_that_are_asked_for() -> None:
    cases = magicube.cases(magicube.PARTS)
    counts = {"spmm": 12, "mixed": 14, "short": 6, "uneven": 2, "sddmm": 8, "attention": 6}
    assert Counter(case.part for case in cases) == counts and list(counts) == [*magicube.FIXED]
    asked = {(c.op, c.shape[0], c.types, c.height, c.sigma, c.sparsity): (c.least, c.aim) for c in cases}
    assert len(asked) == len(cases)
    wanted = {
        ("spmm", 4096, "L8-R8", 8, 0, 0.5): (21, 16), ("spmm", 2048, "L8-R8", 8, 0, 0.98): (4.1, 3.3),
        ("spmm", 4096, "L8-R4", 8, 0, 0.9): (9.5, 7.1), ("spmm", 4096, "L4-R4", 8, 0, 0.9): (9.5, 7.1),
        ("spmm", 4096, "L16-R4", 8, 0, 0.9): (11.3, None), ("spmm", 4096, "L8-R8", 2, 0, 0.7): (27.8, None),
        ("spmm", 4096, "L8-R8", 8, 1, 0.9): (11.2, None), ("sddmm", 4096, "L16-R16", 8, 0, 0.98): (25.6, 18),
        ("attention", 4096, "8b-8b", 8, 0, 0.95): (17.2, 11),
        ("attention", 4096, "f16 8b-8b", 8, 0, 0.95): (23.2, None),
    }  # fmt: skip
    assert {key: asked[key] for key in wanted} == wanted
    assert {case.types for case in cases} <= set(TOLERANCE)


def test_floors_are_of_parts_that_there_are() -> None:
    assert {part for suite, part in floors.OWN if suite == "magicube"} == {*magicube.FIXED}
    assert len(floors.own("magicube", magicube.PARTS)) == 1


def test_patterns_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "net-0.5.smtx").write_text(SMTX)
    cases = magicube.cases(["dlmc"], tmp_path)
    assert [case.shape for case in cases] == [(4, 6, 128)] * 2 + [(4, 6, 512)] * 2
    assert [case.name for case in cases[:2]] == ["net-0.5", "net-0.5, as many anywhere"]
    assert not magicube.cases(["dlmc"])
    with pytest.raises(ArrayError, match="no patterns"):
        magicube.cases(["dlmc"], tmp_path / "absent")


# --------------------------------------------------------------------------------- measuring, on a stand-in for a GPU
@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Vectors:
    lab = quick_lab(monkeypatch)
    monkeypatch.setattr(beside, "REST", 0.0)

    def captured(self: Vectors, call: Callable[[], object], times: int = 1) -> Callable[[], object]:
        return call  # the host has no graphs

    monkeypatch.setattr(Vectors, "captured", captured)
    return Vectors(lab, 7, 1e-5, "cpu", "emulator")


@pytest.mark.parametrize(
    "case",
    [
        SMALL, replace(SMALL, kinds=("i16", "i8"), height=4, sigma=1.0), replace(SMALL, kinds=("i4", "i4"), height=2),
        replace(SMALL, kinds=("i16", "i16")), SAMPLED, replace(SAMPLED, kinds=("i16", "i16")), HEADS,
        replace(HEADS, quantized=False),
    ],
    ids=str,
)  # fmt: skip
def test_a_right_result(bench: Vectors, case: VectorCase) -> None:
    (row,) = bench.run([case])
    assert row.failed is None and row.ok and row.same, row
    assert row.error is not None and (row.error == 0) == (case.op != "attention") and row.error < 0.03
    assert row.hot_s == pytest.approx(80e-6 / beside.LAUNCHES) and row.median_s == pytest.approx(1e-4)
    assert row.predicted_s and row.bound and row.schedule and row.beside is not None
    assert set(row.beside) <= set(magicube.LIBRARIES["attention" if case.op == "attention" else "products"])
    assert all(set(times) == {COLD, WARM} for times in row.beside.values())
    if case.op != "attention":
        assert "f16" in row.beside
    assert "NOT OK" not in bench.line(row) and case.types in bench.line(row)


class Faulty:
    """A kernel whose results have one fault."""

    def __init__(self, kernel: Any, fault: str) -> None:
        self.kernel, self.fault, self.calls = kernel, fault, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)

    def __call__(self, *arrays: Any, out: Any, **named: Any) -> None:
        self.calls += 1
        self.kernel(*arrays, out=out, **named)
        written = out.values if hasattr(out, "values") and not callable(out.values) else out
        if self.fault == "inexact" or (self.fault == "unsteady" and self.calls == 2):
            written.view(-1)[3] += 1
        elif self.fault == "incomplete":
            written.view(-1)[-1] = -77


@pytest.mark.parametrize("fault", ["none", "inexact", "unsteady", "incomplete"])
@pytest.mark.parametrize("case", [SMALL, SAMPLED], ids=["spmm", "sddmm"])
def test_a_wrong_integer_is_not_ok(bench: Vectors, case: VectorCase, fault: str) -> None:
    bench.prepare([case])
    row = bench.measure(case, Faulty(bench.build(case), fault), 3)
    assert row.ok == (fault == "none") and row.same == (fault != "unsteady") and (row.error == 0) == row.ok


def test_attention_may_not_be_far_off(bench: Vectors) -> None:
    bench.prepare([HEADS])
    row = bench.measure(HEADS, Faulty(bench.build(HEADS), "incomplete"), 3)
    assert not row.ok and row.error and row.error > 0.01


def test_what_is_asked_for(bench: Vectors, tmp_path: Path) -> None:
    """A time that is too long is not ok; a library is timed once for a size; what fails is a row that says why."""
    (tmp_path / "p.smtx").write_text(SMTX)
    cases = [SMALL, replace(SMALL, least=1.0, sparsity=0.9), replace(SMALL, kinds=("i8", "i99")),
             *magicube.cases(["dlmc"], tmp_path)[:2]]  # fmt: skip
    lines = list[str]()
    rows = bench.run(cases, lines.append)
    assert [row.ok for row in rows] == [True, False, False, True, True] and len(lines) == 2 + len(rows)
    assert rows[0].beside is rows[1].beside and "NOT OK" in lines[2] and "i99" in (rows[2].failed or "")
    for row in rows[3:]:  # nothing else could have been chosen: torch multiplies no 6 columns
        assert row.beside and row.beside[magicube.OWN] == {COLD: row.median_s, WARM: row.hot_s}
        assert magicube.DENSE not in row.beside
    assert (
        rows[3].case == "p" and rows[3].sparsity == pytest.approx(rows[4].sparsity, abs=0.9) and rows[3].target is None
    )


def test_auto_is_judged_by_the_best(bench: Vectors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a pattern the library's product is a candidate, which must not be faster by more than 3 %."""
    columns = " ".join(str(column) for _ in range(32) for column in range(40))
    rows = " ".join(str(40 * row) for row in range(33))
    (tmp_path / "p.smtx").write_text(f"32, 40, 1280\n{rows}\n{columns}\n")
    case = replace(magicube.cases(["dlmc"], tmp_path)[0], shape=(32, 40, 16))
    bench.prepare([case])
    given = bench._of(case)
    assert [c.schedule.rules.library for c in sg.schedules(given.what, device="h200")].count(True) == 1
    own = bench._compiled(given.what, next(str(c.schedule) for c in sg.schedules(given.what, device="h200")
                                           if not c.schedule.rules.library))  # fmt: skip
    for share, ok in ((0.98, True), (0.96, False)):
        bench.prepare([case])
        hot = bench.hot(given.call(own))
        faster = {magicube.OWN: {COLD: hot, WARM: hot}, magicube.DENSE: {COLD: hot, WARM: share * hot}}
        monkeypatch.setattr(bench, "_others", lambda *_, faster=faster: faster)
        row = bench.measure(case, own, 3)
        assert row.ok == ok and row.beside and row.beside[magicube.DENSE] == faster[magicube.DENSE]
    assert {"vectors", "dense", "over dense"} <= {
        *tables.VIEWS["magicube"]["dlmc"](report.result("magicube", [row], HEAD))[0]
    }


def test_a_floor_stands_in_its_row(bench: Vectors, tmp_path: Path) -> None:
    program = tmp_path / "by_hand"
    program.write_text("#!/bin/sh\necho RES,spmm,L8-R8,strip,24,70,16,8,0.70,uniform,14.80,19.00,exact,x\n")
    program.chmod(0o755)
    rows = bench.run([SMALL, SAMPLED], beside=[str(program)])
    assert rows[0].floor == {WARM: pytest.approx(14.8e-6), COLD: pytest.approx(19e-6)}
    assert rows[0].floor_by == "by_hand strip" and rows[1].floor is None


def test_from_the_command_line(
    bench: Vectors, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(magicube, "CASES", (SMALL, SAMPLED))
    monkeypatch.setattr(command, "gpu_info", lambda: SimpleNamespace())
    monkeypatch.setattr(report, "header", lambda *_: {**HEAD, "sources": report.origin().sources})
    monkeypatch.setattr(magicube_run, "Vectors", lambda *_: bench)
    monkeypatch.setattr(floors, "FOLDER", tmp_path)  # none: they take long to compile
    (tmp_path / "p.smtx").write_text(SMTX)
    out = tmp_path / "magicube.json"
    words = ["bench", "--suite", "magicube", "--out", str(out)]
    assert cli.main([*words, "--part", "spmm", "--part", "sddmm"]) == 0
    assert "spmm, V=8" in capsys.readouterr().out
    assert cli.main([*words, "--part", "dlmc", "--data", str(tmp_path)]) == 0
    found = report.load(out)
    assert set(found["parts"]) == {"spmm", "sddmm", "dlmc"} and len(found["rows"]) == 6
    assert report.markdown(found, "headline").count("\n| ") == 3 and "cuBLAS f16" in report.markdown(found, "dlmc")
    assert cli.main(["bench", "--suite", "nm", "--data", "x"]) == 2 and "drop --data" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------------------- tables
def test_tables() -> None:
    """Of made-up times: ours is what is asked for, or a microsecond more; libraries take twice that."""
    rows = []
    for at, case in enumerate(magicube.cases(magicube.PARTS)):
        hot = ((case.least or 1) + at % 2) * 1e-6
        names = magicube.LIBRARIES["attention" if case.op == "attention" else "products"]
        rows.append(VectorRow(
            part=case.part, case=case.name, shape=case.shape, dtype=case.types, seed=at, sparsity=case.sparsity,
            target=(case.least or 0) * 1e-6, aim=case.aim and case.aim * 1e-6, hot_s=hot, median_s=2 * hot, error=0.0,
            floor={WARM: hot, COLD: 2 * hot} if at else None,
            beside={name: {WARM: 2 * hot, COLD: hot} for name in names},
            predicted_s=hot, bound="l2", regs=64, spills=0, schedule="vector_strip wide=32", ok=not at % 2,
        ))  # fmt: skip
    found = report.result("magicube", rows, HEAD)
    for part in magicube.FIXED:
        head, *body = tables.VIEWS["magicube"][part](found)
        assert body and {len(row) for row in body} == {len(head)}
    head, first, second, *_ = tables.VIEWS["magicube"]["spmm"](found)
    row = dict(zip(head, first, strict=True))
    assert [row[name] for name in ("zeros", "at least", "aim", "µs", "floor", "over cuBLAS int8", "cold")] == [
        "50 %", "21", "16", "21.0", "–", "2.00", "42.0"]  # fmt: skip
    assert dict(zip(head, second, strict=True))["µs"] == "16.6 ✗"
    head, *body = tables.VIEWS["magicube"]["headline"](found)
    assert head[3:] == ["50 %", "70 %", "80 %", "90 %", "95 %", "98 %"] and len(body) == 14
    assert body[0][:5] == ["spmm, V=8", "4096×4096×256", "L8-R8", "21.0 (21)", "16.6 ✗ (15.6)"]
    assert "SDPA cuDNN" in report.markdown(found, "attention") and "headline" not in report.text(found)
    assert report.caption(found, "headline")


def test_parts_are_checked() -> None:
    from sparsegen.cli.options import parser

    args = parser().parse_args(["bench", "--suite", "magicube", "--part", "odd"])
    with pytest.raises(DeviceError, match="no part odd"):
        command.measure(args)


def test_random_places_are_as_many(bench: Vectors) -> None:
    """Loads of vector rows are alike, or lognormal with the same mean."""
    draw = magicube_run.Drawer(bench.torch, "cpu")
    for sigma in (0.0, 1.0):
        mask = draw.mask((8000, 500), 0.9, 8, 1, sigma).numpy()
        assert (mask.reshape(1000, 8, 500) == mask.reshape(1000, 8, 500)[:, :1]).all()
        assert 0.1 == pytest.approx(mask.mean(), rel=0.15)
        spread = np.log(mask[::8].sum(1) + 0.5).std()
        assert (spread > 0.6) == (sigma > 0)
