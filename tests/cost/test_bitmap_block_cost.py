"""How near the cost of ``bitmap_block`` is to the kernels of it that docs/bench has times of, cold, on an H200."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsegen.bench import report
from sparsegen.bench.notes import uniform
from sparsegen.cost.devices import load_profile
from sparsegen.products.bitmap_block import shape_of
from sparsegen.products.bitmap_block_cost import price
from sparsegen.schedule import SpmmSchedule

BENCH = Path(__file__).resolve().parents[2] / "docs" / "bench"
H200 = load_profile("h200")
#: Parts of suite ``bitmap`` whose zeros are in random places, of elements of 16 bits.
RANDOM = ("targets", "shapes", "widths", "bf16")


def rows() -> Iterator[tuple[str, dict[str, Any], float, bool]]:
    """(suite, row, seconds, whether x comes by columns) of those with kernels of the family."""
    for row in report.load(BENCH / "regret.json.xz")["rows"]:
        if row["part"] == "products" and row["measured_s"]:
            yield "regret", row, row["measured_s"], row["boundary"] == "columns"
    for row in report.load(BENCH / "bitmap.json")["rows"]:
        if row["part"] in RANDOM and row["median_s"]:
            yield "bitmap", row, row["median_s"], row["x"] == "columns"


def off(suite: str, family: str = "bitmap_block ") -> list[float]:
    """|predicted / measured - 1| of each."""
    found = []
    for of, row, seconds, columns in rows():
        if of != suite or not row["schedule"].startswith(family):
            continue
        p = replace(uniform(*row["shape"], row["sparsity"]), dtype=row["dtype"], columns=columns)
        s = SpmmSchedule.parse(row["schedule"])
        g = shape_of(p, s, H200)  # whose slots may be larger than those of the matrix that was measured
        found.append(abs(price(p, s, H200, g._replace(resident=max(1, g.resident))).time / seconds - 1))
    return found


@pytest.mark.parametrize(("suite", "least", "median", "most"), [("regret", 60, 0.08, 0.22), ("bitmap", 35, 0.05, 0.16)])
def test_it_is_near_what_was_measured(suite: str, least: int, median: float, most: float) -> None:
    """The 40 problems of regret are of a seed that no fit has seen; the suite's are in the fit."""
    found = off(suite)
    assert len(found) >= least
    assert np.median(found) <= median and np.quantile(found, 0.9) <= most, (np.median(found), np.quantile(found, 0.9))
