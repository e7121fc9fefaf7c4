"""The table of papers: which rows its lines are, which side wins, what is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparsegen.bench import papers, report
from sparsegen.bench.bitmaps import COLD, WARM
from sparsegen.bench.cells import Result
from sparsegen.bench.papers import LINES, SUITES
from tests.bench.test_bitmaps import HEAD

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "bench"
LIBRARY = {"cublas": {WARM: 20e-6}, "int8": {WARM: 20e-6}, "f16": {WARM: 15e-6}, "cudnn": {WARM: 20e-6}}
BESIDE = {"bitmap": (), "nm": (), "magicube": ("int8", "f16"), "unstructured": ("cublas",)}


def row(suite: str, line: papers.Line, **more: Any) -> dict[str, Any]:
    """A row of made-up times: ours 10 µs, a library's 20 or 15."""
    names = ("cudnn",) if line.part == "attention" else BESIDE[suite]
    said: dict[str, Any] = {
        "part": line.part, "case": line.case, "shape": [*line.shape], "dtype": line.dtype, "failed": None,
        "sparsity": 0.6 if line.share is None else line.share + 0.001, "median_s": 10e-6, "hot_s": 10e-6,
        "schedule": "csr team=1x1", "families": {}, "beside": {name: LIBRARY[name] for name in names},
        "cublas": {"rows": {COLD: 30e-6}, "columns": {COLD: 20e-6}}, "dense": {COLD: 20e-6, WARM: 30e-6}, "state": COLD,
    }  # fmt: skip
    return said | more


def results(suites: tuple[str, ...] = SUITES, **more: dict[str, Any]) -> dict[str, Result]:
    """Results with a row for each line, and stencils; ``more``: what is else in all rows of a suite."""
    found: dict[str, Result] = {}
    for suite in suites:
        rows = [row(suite, line, **more.get(suite, {})) for line in LINES if line.suite == suite]
        if suite in ("stencil", "spine"):
            known: dict[str, Any] = {"part": "targets", "shape": [10240, 10240], "boundary": "periodic", "dtype": "f64"}
            rates = [("stream fuse=1", 500.0), ("stencil2row mma=f64.m8n8k4", 400.0), ("stencil2row mma=none", 450.0)]
            rows = [
                {**known, "case": f"{name}{tail}", "schedule": schedule, "gs_per_s": rate * (1 + (suite == "spine"))}
                for name in papers.STENCILS for schedule, rate in rates for tail in ("", ", tensor cores")
            ]  # fmt: skip
            rows += [{**rows[1], "gs_per_s": 1e6, "boundary": "frozen"}, {**rows[1], "gs_per_s": None}]
        found[suite] = {**HEAD, "suite": suite, "rows": rows}
    return found


def test_every_line_is_a_row_that_was_measured() -> None:
    """Of the results that are committed; all five papers are there."""
    found = {name: report.load(file) for name, file in report.results(COMMITTED).items() if name in SUITES}
    assert [line for line in LINES if line.row(found) is None] == []
    _, *body = papers.table(found)
    assert len(body) == len(papers.STENCILS) + len(LINES)
    assert [*dict.fromkeys(cells[0] for cells in body)] == [
        "ConvStencil",
        "SpInfer",
        "nmSPARSE",
        "Magicube",
        "BSA-SpMM",
    ]


def test_which_side_wins() -> None:
    head, *body = papers.table(results())
    assert {len(cells) for cells in body} == {len(head)}
    lines = {(cells[0], cells[1], cells[2]): cells[4:9] for cells in body}
    step = f"{10240**2 / 800 * 1e-3:.1f}", "CUDA cores", f"{10240**2 / 1000 * 1e-3:.1f}"  # of the faster suite
    assert lines["ConvStencil", "Heat-2D, a step", "10240×10240"] == [*step, "0.80", "CUDA cores"]
    assert lines["SpInfer", "60% zeros", "28672×8192×64"] == ["10.0", "cuBLAS", "20.0", "2.00", "ours"]
    assert lines["nmSPARSE", "4:32, 128 rows alike", "4096×4096×4096"] == ["10.0", "cuBLAS", "20.0", "2.00", "ours"]
    assert lines["Magicube", "spmm, V=2, 90.1 % zeros", "4096×4096×256"] == [
        "10.0",
        "cuBLAS f16",
        "15.0",
        "1.50",
        "ours",
    ]
    assert lines["Magicube", "attention, 4 heads, 90.1 % zeros", "4096×4096×64"][1:3] == ["SDPA cuDNN", "20.0"]
    warm = papers.table(results(nm={"state": WARM, "hot_s": 40e-6}, unstructured={"schedule": "dense", "families": {
        "csr": 25e-6, "hybrid": 24e-6}}))  # fmt: skip
    lines = {(cells[0], cells[1], cells[2]): cells[4:9] for cells in warm}
    assert lines["nmSPARSE", "4:32, 128 rows alike", "4096×4096×4096"] == ["40.0", "cuBLAS", "30.0", "0.75", "cuBLAS"]
    assert lines["BSA-SpMM", "a graph, cora, 60 % zeros", "2708×2708×128"] == [
        "24.0",
        "cuBLAS",
        "20.0",
        "0.83",
        "cuBLAS",
    ]


def test_the_papers_own_code() -> None:
    """As a table's notes bring it: its microseconds, and how often ours go into them."""
    head, *body = papers.table(results(("bitmap",), bitmap={"peers": {"SpInfer": "25", "Flash-LLM": "17 (wrong)"}}))
    assert {(cells[0], cells[-1]) for cells in body} == {("SpInfer", "25 (2.50)")} and head[-1] == "paper's code"


def test_what_was_not_measured_is_left_out() -> None:
    found = results(("nm", "magicube"), nm={"failed": "why"}, magicube={"sparsity": 0.7})
    _, *body = papers.table(found)
    assert {cells[1] for cells in body} == {"spmm, V=8, 70 % zeros"}
    assert papers.caption(found).count("magicube") == 1 and "spine" not in papers.caption(found)


def test_a_document_has_it(tmp_path: Path) -> None:
    mark = "<!-- bench:papers -->\nold\n<!-- end -->\n"
    assert report.NOT_YET in report.render(mark, tmp_path)
    found = results(("bitmap",))["bitmap"]
    report.save({**found, "format": report.FORMAT}, tmp_path / "bitmap.json")
    (tmp_path / "peers.json").write_text((COMMITTED / "peers.json").read_text())
    said = report.render(mark, tmp_path)
    assert "| SpInfer | 60% zeros | 28672×8192×16 | f16 | 10.0 | cuBLAS | 20.0 | 2.00 | ours | 181 (18.10) |" in said
    assert f"bitmap {HEAD['commit'][:10]}" in said and "\nSpInfer: its published code" in said
