"""Random updates as they were called in a loop on one H100, and what the cost model expects.

``data/updates.csv.xz``: 784 kernels of 80 updates of two seeds of ``bench.drawn`` (commits 062c8e1 and 5d3afc7), in
seconds of a call of all steps.  All were fitted to.  Left out are kernels that spilled: the model now refuses them.
``stream`` was measured when every turn of it still chose for the ends of rows: of updates with borders what is chosen
has to be measured anew.
"""

from __future__ import annotations

import csv
import io
import lzma
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from sparsegen.bench.drawn import UpdateProblem, problems
from sparsegen.choose import Request
from sparsegen.compiler import described
from sparsegen.cost.devices import load_profile
from sparsegen.cost.update import bordered
from sparsegen.schedule import UpdateSchedule

#: Seeds, and how many problems of parts ``updates`` and ``small`` were drawn.
SEEDS = {3039864101: (20, 20), 2746096596: (40, 20)}
DEVICE = load_profile("h100")
#: By family the median of |log(measured / predicted)|.
MEDIAN = {"stream": 0.1, "column": 0.12, "direct": 0.12, "tiled": 0.25, "resident": 0.2}


@cache
def measured() -> dict[tuple[str, str, str], list[tuple[str, float, float]]]:
    """Family, seconds measured and seconds predicted of each kernel, by part, seed and problem."""
    known = {
        (part, str(seed), p.name): p
        for seed, counts in SEEDS.items()
        for part, count in zip(("updates", "small"), counts, strict=True)
        for p in problems(part, seed, count)
    }
    text = lzma.decompress((Path(__file__).parent / "data" / "updates.csv.xz").read_bytes()).decode()
    found = defaultdict[tuple[str, str, str], list[tuple[str, float, float]]](list)
    for row in csv.DictReader(io.StringIO(text)):
        p = known[key := (row["part"], row["seed"], row["case"])]
        assert isinstance(p, UpdateProblem)
        problem, _ = described(p.update, p.shape, p.steps, "any")
        s = UpdateSchedule.parse(row["schedule"])
        time = problem.seconds(problem.price(s, DEVICE, Request(steps=p.steps)), p.steps)
        found[key].append((s.family, float(row["seconds"]), time))
    return found


@pytest.mark.parametrize("family", MEDIAN)
def test_times_of_a_family(family: str) -> None:
    errors = [np.log(took / time) for rows in measured().values() for name, took, time in rows if name == family]
    assert len(errors) >= 4 and np.median(np.abs(errors)) <= MEDIAN[family]


def _stale(key: tuple[str, str, str]) -> bool:
    """Whether a drawn update has borders that kernels of ``stream`` made otherwise when they were measured."""
    part, seed, name = key
    count = SEEDS[int(seed)][0 if part == "updates" else 1]
    found = next(p for p in problems(part, int(seed), count) if p.name == name)
    assert isinstance(found, UpdateProblem)
    update = found.update
    return update.ndim < 3 and bordered(update)


@pytest.mark.parametrize(("part", "worst"), [("updates", 1.16), ("small", 1.26)])
def test_what_is_chosen_is_near_the_fastest(part: str, worst: float) -> None:
    regrets = [
        min(rows, key=lambda row: row[2])[1] / min(took for _, took, _ in rows)
        for key, rows in measured().items() if key[0] == part and not _stale(key)
    ]  # fmt: skip
    assert len(regrets) >= 10 and np.median(regrets) <= 1.04 and max(regrets) <= worst
