"""Suite ``bitmap`` and its example on a real GPU, with small matrices; what they reach is not judged."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparsegen.bench import bitmap_run, bitmaps
from sparsegen.bench.bitmaps import COLD, CUBLAS, READ, WARM, ProductCase, Weights
from sparsegen.bench.lab import Lab

pytestmark = pytest.mark.gpu


def test_the_suite_is_right_on_small_matrices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of row: each width and type of the suite, a pattern tiled and shuffled, both encodings."""
    pytest.importorskip("torch")
    monkeypatch.setenv("SPARSEGEN_DATA", str(tmp_path))
    (tmp_path / "dlmc").mkdir()
    for file, _ in bitmaps.PATTERNS:
        (tmp_path / file).write_text("3, 5, 7\n0 3 5 7\n0 2 4 1 2 0 3\n")
    cases = list(dict.fromkeys(small(case) for case in bitmaps.cases()))
    rows = bitmap_run.Bitmaps(Lab(), 11, 0.001).run(cases)
    assert len(rows) == len(cases) > 15 and all(row.ok for row in rows), [row for row in rows if not row.ok]
    for row in (row for row in rows if row.part != "encode"):
        assert row.same and row.regs and row.smem is not None and row.times and row.cublas
        assert all(each[state] > 1e-6 for each in row.times.values() for state in (COLD, READ))
        assert all(0 < each[WARM] < 1e-3 for each in (*row.times.values(), *row.cublas.values()))


def small(case: ProductCase) -> ProductCase:
    """The case with a matrix that nothing divides, and a target, if it has one, that any kernel reaches."""
    m, k = case.weights.shape
    return replace(case, weights=replace(case.weights, shape=(m // 29, k // 9)), target=case.target and 100.0, aim=None)


def test_a_matrix_as_large_as_the_suites() -> None:
    pytest.importorskip("torch")
    case = ProductCase("targets", Weights(bitmaps.LARGE, bitmaps.USUAL), 16, 2.0, of=CUBLAS)
    (row,) = bitmap_run.Bitmaps(Lab(), 12).run([case])
    assert row.ok and row.spills == 0 and row.error is not None and 1e-5 < row.error < 1e-3
    assert row.target and row.median_s and row.p10 and row.p10 <= row.median_s < row.target


def test_a_small_decoder_layer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "examples"))
    example: Any = importlib.import_module("decoder_layer")
    assert example.main(["--hidden=640", "--past=40"]) == 0
    said = capsys.readouterr().out
    assert "each part alone with cold L2" in said and "emulator" not in said and said.count("rest ") == 6
