"""Suite ``csr``: its graphs, its cases, how they are judged, its table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from sparsegen.bench import graphs, report, tables
from sparsegen.bench.csr_run import CsrRow, Graphs, fastest, judged
from sparsegen.ir.errors import ArrayError

HEAD: report.Result = {
    "device": "NVIDIA X", "driver": "1.2", "nvcc": "13.0", "python": "3.12", "sparsegen": "0.1",
    "commit": "0123456789abcdef", "dirty": False, "sources": "feed", "date": "2026-11-20 12:00 UTC", "seconds": 0.1,
    "cold": False, "seed": 1, "tolerance": {"f16": 1e-3},
}  # fmt: skip
ROW = CsrRow(
    part="power-law", case="power law", shape=(1000, 1000, 128), dtype="f16", seed=3, entries=20_000,
    schedule="csr team=16x1", ahead=1.3, median_s=9e-6, p10=8e-6, p90=1e-5, repeats=21, hot_s=6e-6,
    cusparse={"default": {"cold": 2e-5, "hot": 1.2e-5, "error": 1e-3},
              "csr_alg3": {"cold": 1.8e-5, "hot": 3e-5, "error": 1e-4}},
    predicted_s=8e-6, bound="l2", regs=56, spills=0, error=2e-4, same=True,
)  # fmt: skip


def test_the_cases() -> None:
    cases = graphs.cases("power-law", "a")
    assert len(cases) == len(graphs.COLUMNS) * len(graphs.DTYPES)
    assert {(c.n, c.ahead) for c in graphs.cases("power-law", "a", quick=True)} == {(128, 1.3)}


def test_the_generated_graph_is_always_the_same() -> None:
    a, b = (graphs.power_law(2000, 20) for _ in range(2))
    assert np.array_equal(a.ptr, b.ptr) and np.array_equal(a.idx, b.idx)
    degrees, named = np.diff(a.ptr), np.bincount(a.idx, minlength=2000)
    assert 14 < degrees.mean() < 26
    assert degrees.max() > 5 * degrees.mean() and named.max() > 5 * named.mean()


def test_a_graph_of_a_file(tmp_path: Path) -> None:
    matrix = scipy.sparse.random_array((50, 50), density=0.1, rng=np.random.default_rng(0))
    for symmetric, wanted in ((False, matrix), (True, matrix + matrix.T)):
        scipy.io.mmwrite(tmp_path / "small.mtx", wanted, symmetry="symmetric" if symmetric else "general")
        ((part, name, found),) = graphs.parts(["given"], tmp_path / "small.mtx")
        assert (part, name, found.nodes) == ("given", "small", 50)
        rows = scipy.sparse.csr_array(wanted)
        rows.sort_indices()
        assert np.array_equal(found.ptr, rows.indptr) and np.array_equal(found.idx, rows.indices)
    (tmp_path / "odd.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 3 1\n1 1 4.5\n")
    with pytest.raises(ArrayError, match="is no graph"):
        graphs.given(tmp_path / "odd.mtx")
    with pytest.raises(ArrayError, match="is no graph"):
        graphs.given(tmp_path / "none.mtx")
    assert not graphs.parts(["given"], None)


def test_what_counts() -> None:
    """The fastest algorithm of each state; right, repeatable, and far enough ahead where that is asked for."""
    data = ROW.as_json()
    assert fastest(data, "hot") == (1.2e-5, "default") and fastest(data, "cold") == (1.8e-5, "csr_alg3")
    assert judged(ROW).ok
    assert not judged(replace(ROW, hot_s=1e-5)).ok
    assert judged(replace(ROW, hot_s=1e-5, ahead=None)).ok
    assert not judged(replace(ROW, same=False)).ok
    assert not judged(replace(ROW, error=2e-3)).ok
    assert "cuSPARSE 12.0 (default), cold 18.0" in Graphs.line(ROW)


def test_the_table(tmp_path: Path) -> None:
    failed = CsrRow(
        part="given", case="cora", shape=(9, 9, 1), dtype="f32", seed=3, entries=12, failed="DeviceError: no"
    )
    found = report.result("csr", [judged(ROW), failed], HEAD)
    head, first, second = tables.VIEWS["csr"]["graphs"](found)
    of = dict(zip(head, first, strict=True))
    assert (of["µs, hot"], of["cuSPARSE"], of["over cuSPARSE"], of["at least"]) == ("6.0", "12.0", "2.00", "1.3")
    assert (of["µs, cold"], of["over cuSPARSE, cold"]) == ("9.0", "2.00")
    assert "failed" in second
    report.save(found, tmp_path / "csr.json")
    told = report.render("<!-- bench:csr -->\n<!-- end -->", tmp_path)
    assert "| power law | 20,000 | 128 | f16 | 6.0 | 12.0 |" in told and "0123456789" in told
    assert "power law" in report.text(report.load(tmp_path / "csr.json"))
