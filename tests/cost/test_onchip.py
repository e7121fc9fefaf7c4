"""Schedules of ``resident`` for four small fields of suite ``updates`` on one H200, and what the model expects of them.

``data/onchip.csv``: GS/s of calls of 1000 steps, one after the other, and bytes that nvcc spilled of a thread; of each
field those twelve numbers of blocks and of steps between exchanges that were predicted to be fastest where they were
measured, and some others: of two axes at b4c0dc1, of three when records of lines had come.
"""

from __future__ import annotations

import csv
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from sparsegen.bench import onchip
from sparsegen.cost.devices import load_profile
from sparsegen.families.update.base import family
from sparsegen.schedule import UpdateSchedule, read

DEVICE, STEPS = load_profile("h200"), 1000
#: Bytes of a thread from which on a kernel counts as one that spills: what the model says is of others.
FEW = 60


@cache
def measured() -> dict[tuple[str, int], list[tuple[float, float, int, bool]]]:
    """Seconds measured and predicted, bytes spilled, and whether the family lets the schedule in, by field."""
    found = dict[tuple[str, int], list[tuple[float, float, int, bool]]]()
    for row in csv.DictReader((Path(__file__).parent / "data" / "onchip.csv").open()):
        name, dtype = row["field"].split()
        edge, update = int(row["edge"]), onchip.update(name, dtype)
        shape, s = (edge,) * update.ndim, read(row["schedule"], (UpdateSchedule,))
        fits = family(s).misfit(update, shape, s, DEVICE) is None
        took, time = (
            math.prod(shape) * STEPS / float(row["gs"]) * 1e-9,
            family(s).cost(update, shape, s, DEVICE, STEPS).time,
        )
        found.setdefault((row["field"], edge), []).append((took, time, int(row["spilled"]), fits))
    return found


def test_times_are_near_the_measured() -> None:
    errors = [abs(np.log(t / took)) for rows in measured().values() for took, t, spilled, _ in rows if spilled < FEW]
    assert len(errors) == 93 and np.median(errors) <= 0.03 and np.quantile(errors, 0.9) <= 0.17


def test_kernels_that_spill_much_are_refused() -> None:
    rows = [row for some in measured().values() for row in some]
    assert [(spilled, fits) for *_, spilled, fits in rows if spilled >= FEW] == [(352, False), (420, False)]


@pytest.mark.parametrize(
    "field", [("Heat-2D f32", 256), ("Heat-2D f64", 256), ("Heat-3D f32", 128), ("Heat-3D f64", 64)]
)
def test_what_is_predicted_fastest_is_near_the_fastest(field: tuple[str, int]) -> None:
    rows = [row for row in measured()[field] if row[-1]]
    assert min(rows, key=lambda row: row[1])[0] <= 1.06 * min(rows)[0]
