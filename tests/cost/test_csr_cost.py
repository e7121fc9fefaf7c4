"""The cost of csr products against kernels measured on one H200, on the graph of suite ``csr``, called in a loop.

Most were measured before each turn was masked (``masked`` 0 in data/csr.csv), and took up to a fifth longer.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from sparsegen.bench import graphs
from sparsegen.cost.devices import load_profile
from sparsegen.families.spmm.csr import FAMILY
from sparsegen.products.csr_cost import price, shape_of
from sparsegen.products.ragged import Ragged, measured, segments, walk
from sparsegen.schedule import SpmmSchedule

DEVICE = load_profile("h200")


@cache
def graph() -> tuple[np.ndarray, tuple[object, object, object]]:
    """Where rows begin, and what is known of the graph."""
    found = graphs.power_law()
    return found.ptr, measured(found.ptr, found.idx, found.nodes)


def facts(dtype: str, n: int) -> Ragged:
    ptr, (lengths, popular, spread) = graph()
    m, entries, item = len(ptr) - 1, int(ptr[-1]), 4 if dtype == "f32" else 2
    return Ragged(m, m, n, dtype, entries, 4 * (m + 1) + entries * (4 + item), 0, lengths, popular, spread)  # type: ignore[arg-type]


def points() -> dict[tuple[str, int], list[tuple[float, float]]]:
    """Measured and predicted seconds, by type and columns."""
    found = defaultdict[tuple[str, int], list[tuple[float, float]]](list)
    with (Path(__file__).parent / "data" / "csr.csv").open() as file:
        for row in csv.DictReader(file):
            p = facts(row["dtype"], int(row["n"]))
            numbers = {name: int(row[name]) for name in ("columns", "unroll", "cut", "warps")}
            s = SpmmSchedule("csr", team=(int(row["across"]), int(row["parts"])), **numbers)
            warm = DEVICE.warm(p.nbytes + p.item * (p.m + p.k) * p.n)
            predicted = price(p, s, warm, shape_of(p, s, warm)).time
            found[p.dtype, p.n].append((float(row["hot_us"]) * 1e-6, predicted))
    return found


def test_the_model_is_near_what_was_measured() -> None:
    """The masked form is the faster one, and so is what is predicted: by the median within a quarter."""
    ratios = [predicted / found for pairs in points().values() for found, predicted in pairs]
    assert 0.75 < float(np.median(ratios)) < 1.05
    assert float(np.sqrt(np.mean(np.square(np.log(ratios) - np.median(np.log(ratios)))))) < 0.25


@pytest.mark.parametrize("case", [(dtype, n) for dtype in graphs.DTYPES for n in graphs.COLUMNS], ids=str)
def test_what_it_picks_of_those_that_were_measured_is_nearly_the_best(case: tuple[str, int]) -> None:
    pairs = points()[case]
    assert len(pairs) >= 5
    assert min(pairs, key=lambda pair: pair[1])[0] <= 1.35 * min(found for found, _ in pairs)


def test_work_from_lengths_alone_is_that_of_the_segments() -> None:
    """Segments, pieces and the longest of them as the host cuts the rows; turns of all warps to a few percent."""
    ptr, _ = graph()
    p = facts("f16", 128)
    for cut, unroll, parts, teams in ((256, 4, 1, 2), (64, 8, 2, 1), (1024, 4, 4, 8), (32, 2, 1, 4)):
        expected = walk(p, cut, unroll * parts, unroll, teams)
        found = segments(ptr, cut, teams, 4 * teams)
        row, begin, end, _ = found.records.T
        real = row < p.m
        assert abs(real.sum() - expected.segments) <= 4 * teams
        assert abs(found.cuts - expected.cuts) <= teams
        align = min(unroll, 4)
        turns = np.ceil((end - begin // align * align) / (unroll * parts)) * (end > begin)
        of_warps = turns.reshape(-1, teams).max(1).sum()
        assert math.isclose(of_warps, expected.turns, rel_tol=0.08)
        assert abs(turns.max() - expected.longest) <= 2


def test_the_choice_is_of_what_was_measured_to_be_good() -> None:
    """A lane has a load or two, and teams are as wide as the columns: of all, not only of the measured ones."""
    for dtype in graphs.DTYPES:
        best = FAMILY.every(facts(dtype, 128), DEVICE, {}).best
        assert best is not None and best.schedule.team[0] >= 8 and best.schedule.unroll in (2, 4, 8)
        assert best.schedule.columns * (4 if dtype == "f32" else 2) in (16, 32)
        assert best.binds in ("l2", "issue", "lines")
