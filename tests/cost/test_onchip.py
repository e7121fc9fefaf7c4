"""Schedules of ``resident`` for the small fields of suite ``updates`` on one H200, and what the model expects of them.

``data/onchip.csv``: GS/s of calls of 1000 steps, one after the other, and bytes that nvcc spilled of a thread; of each
field some that were predicted to be fastest where they were measured, and others drawn at random from those predicted
to be at most two fifths slower, whether or not their registers were said to fit.
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
    assert len(errors) == 356 and np.median(errors) <= 0.035 and np.quantile(errors, 0.9) <= 0.12


def test_kernels_that_spill_much_are_refused() -> None:
    rows = [row for some in measured().values() for row in some]
    spilling = [fits for *_, spilled, fits in rows if spilled >= FEW]
    assert len(spilling) == 33 and sum(spilling) == 1  # that one spills 60 bytes
    others = [fits for *_, spilled, fits in rows if spilled == 0]
    assert len(others) > 200 and sum(others) >= 0.97 * len(others)


@pytest.mark.parametrize(("field", "worst"), [
    (("Heat-2D f32", 256), 1.01), (("Heat-2D f32", 1024), 1.06), (("Heat-2D f32", 2048), 1.01),
    (("Heat-2D f64", 256), 1.01), (("Heat-2D f64", 512), 1.01), (("Heat-2D f64", 1024), 1.01),
    (("Box-2D9P f64", 256), 1.02), (("Box-2D9P f64", 512), 1.08), (("Box-2D9P f64", 1024), 1.01),
    (("Heat-3D f32", 128), 1.01), (("Heat-3D f64", 64), 1.01),
])  # fmt: skip
def test_what_is_predicted_fastest_is_near_the_fastest(field: tuple[str, int], worst: float) -> None:
    rows = [row for row in measured()[field] if row[-1]]
    assert min(rows, key=lambda row: row[1])[0] <= worst * min(rows)[0]
