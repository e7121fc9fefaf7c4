"""The table and the picture of README: ours beside what others have published."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from sparsegen.bench import summary
from sparsegen.bench.report import NOT_YET, render, summed_up

COMMITTED = Path(__file__).parents[2] / "docs" / "bench"
PEERS = json.loads((COMMITTED / "peers.json").read_text(encoding="utf-8"))


def test_every_stencil_and_product_is_there() -> None:
    head, *lines = summed_up(COMMITTED)
    assert head == summary.HEAD and all(len(line) == len(head) for line in lines)
    stencils = [f"{peer['case']}, a step" for peer in PEERS["stencils"]]
    assert [line[0] for line in lines] == [*stencils, *summary.PRODUCTS.values()]
    assert any(float(line[-1]) < 1 for line in lines), "README says where sparsegen is not faster"


def test_a_stencil_stands_beside_its_peer() -> None:
    row = {
        "part": "targets", "case": "Heat-2D", "shape": [64, 64], "boundary": "periodic", "dtype": "f64",
        "gs_per_s": 30.0, "failed": None,
    }  # fmt: skip
    peers = {"stencils": [{"case": "Heat-2D", "gs_per_s": 20, "code": "EBISU"}]}
    _, *lines = summary.table({"stencil": {"rows": [row, row | {"case": "Heat-1D"}]}}, peers)
    assert lines == [["Heat-2D, a step", "64×64", "f64", "30 GS/s", "EBISU", "20 GS/s", "1.50"]]


def test_the_picture_has_a_dot_for_each_line() -> None:
    cells = summed_up(COMMITTED)
    drawn = ElementTree.fromstring(summary.svg(cells))
    dots = [one for one in drawn.iter() if one.tag.endswith("circle")]
    assert len(dots) == len(cells) - 1
    kinds = [one.get("class") for one in dots]
    assert kinds == ["f0" if float(line[-1]) >= 1 else "f1" for line in cells[1:]]


def test_nothing_measured_is_said(tmp_path: Path) -> None:
    assert NOT_YET in render("<!-- bench:summary -->\nold\n<!-- end -->\n", tmp_path)
