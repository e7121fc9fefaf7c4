"""Marks beside figures: schedules that ``auto`` no longer takes, sizes in the fit."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from sparsegen.bench import notes, packed, regret, report
from sparsegen.schedule import Schedule
from tests.cost import measured
from tests.cost.measured_products import TIMES

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "docs" / "bench"


def rows(suite: str) -> list[dict[str, Any]]:
    """The committed rows with what the tables say beside them."""
    return list(notes.annotated(report.load(BENCH / f"{suite}.json"), BENCH)["rows"])


@pytest.mark.parametrize("suite", ["stencil", "bitmap"])
def test_what_auto_no_longer_takes_is_marked(suite: str) -> None:
    """The chosen schedules of the tables are those of today, or say so themselves."""
    tables = (ROOT / "docs" / "bench" / "README.md").read_text(encoding="utf-8")
    targets = [row for row in rows(suite) if row["part"] == "targets" and not row["failed"]]
    assert len(targets) >= 8
    for row in targets:
        now = notes.taken(suite, row)
        assert (row["now"] is not None) == (now is not None and now != row["schedule"])
        if suite == "stencil":
            assert f"`{row['schedule']}`{' †' if row['now'] else ''} |" in tables, "run .ci/render_tables.py"
        assert row["now"] is None or f"{row['case']}: `{Schedule.parse(row['now'])}`" in tables


def test_a_changed_choice_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = report.load(BENCH / "stencil.json")
    monkeypatch.setattr(notes, "_stencils", lambda: {"Heat-2D": "direct block=32x4"})
    text = report.markdown(notes.annotated(found, BENCH), "goals")
    (line,) = (line for line in text.splitlines() if line.startswith("| Heat-2D "))
    assert line.endswith("` † |") and "Heat-2D: `direct block=32x4`" in text.splitlines()[-3]


def test_sizes_in_the_fit_are_those_of_the_data() -> None:
    timed = {(t.m, t.k, t.n, t.sparsity) for t in TIMES}
    assert {(*shape, zeros) for shape, zeros in notes.PRODUCTS} == timed
    chosen = csv.DictReader(io.StringIO((ROOT / "tests/cost/data/chosen.csv").read_text()))
    known = {tuple(map(int, row["shape"].split("x"))) for row in chosen}
    every = [
        one for name in vars(measured) if isinstance(made := getattr(measured, name), list | tuple) for one in made
    ]
    known |= {tuple(one.shape) for one in every if hasattr(one, "shape")}
    drawn = csv.DictReader(io.StringIO(packed.read(ROOT / "tests/cost/data/stencils.csv.xz")))
    for seed, count in {(int(row["seed"]), int(row["problems"])) for row in drawn}:
        known |= {p.shape for p in regret.stencil_problems(seed, count)}
    for row in rows("stencil"):
        assert row["fitted"] == (tuple(row["shape"]) in known), row["shape"]
    with_times = {(*row["shape"], round(row["sparsity"], 2)) for row in rows("bitmap") if row["fitted"]}
    assert with_times and with_times <= timed
    graphs = list(csv.DictReader(io.StringIO((ROOT / "tests/cost/data/csr.csv").read_text())))
    kinds = {(row["dtype"], int(row["n"])) for row in graphs}
    drawn_graph = [row for row in rows("csr") if row["part"] == "power-law"]
    assert drawn_graph and all(row["fitted"] and (row["dtype"], row["shape"][2]) in kinds for row in drawn_graph)
