"""Suite ``auto``: its cases, a run on a stand-in for a GPU, its table."""

from __future__ import annotations

import pytest

from sparsegen.bench import auto, report, tables
from tests.bench.test_bitmaps import HEAD, quick_lab


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> auto.Auto:
    monkeypatch.setattr(auto, "CALLS", 3)
    return auto.Auto(quick_lab(monkeypatch), 7, 1e-5, "cpu", "reference")


def test_thirty_shapes_odd_ones_among_them() -> None:
    cases = auto.cases()
    assert len(cases) == len(set(cases)) == 30 and len(auto.cases(quick=True)) == 10
    assert sum(any(edge % 8 for edge in c.shape[:2]) for c in cases) >= 5
    assert {(0.6, (28672, 8192, 64)), (0.9, (1000, 2048, 256))} <= {(c.sparsity, c.shape) for c in cases}


def test_rows_and_their_table(bench: auto.Auto, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse product, and one that the model leaves to the library."""
    rows = bench.run([auto.AutoCase(0.6, (48, 130, 8))])
    monkeypatch.setattr("sparsegen.products.cost.DENSE_START", 0.0)
    rows += bench.run([auto.AutoCase(0.1, (64, 64, 16))])
    assert all(row.ok and row.same and row.host_s and row.hot_s and row.matmul for row in rows)
    assert rows[0].schedule.split()[0] in ("bitmap", "vector_strip") and rows[1].schedule == "dense"
    assert rows[0].median_s == pytest.approx(1e-4) and "matmul 100.0" in auto.Auto.line(rows[0])
    failed = auto.AutoRow(**bench.labels(auto.AutoCase(0.5, (8, 8, 1)), 1), failed="why")
    head, first, _, last = tables.VIEWS["auto"]["table"](report.result("auto", [*rows, failed], HEAD))
    shown = dict(zip(head, first, strict=True))
    assert shown["µs"] == shown["torch.matmul"] == "100.0" and shown["over"] == "1.00" and last[2] == "failed"
    assert auto.Auto.line(failed) == "50% zeros, 8x8x1: why"
