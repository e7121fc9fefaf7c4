"""lowrank: the formulas' counts are the emulator's, for random weights of low rank, schedules and shapes."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from sparsegen.boundary import frozen, periodic
from sparsegen.cost.counts import launches
from sparsegen.cost.devices import load_profile
from sparsegen.dsl.stencil import Stencil
from sparsegen.schedule import MMA, StencilSchedule
from tests.cost.counts.cases import Case, boundary, drawn, wrong


def case(draw: random.Random) -> Case:
    """Any schedule, legal or not, for one or two products of 1-D stencils that need not be equally long."""
    extent = [2 * draw.choice((1, 1, 2, 3)) + 1 for _ in range(2)]
    factors = [
        [np.array([draw.uniform(0.2, 1.0) for _ in range(n)]) for n in extent] for _ in range(draw.choice((1, 2)))
    ]
    if draw.random() < 0.5:  # neumann borders of these need no rim
        factors = [[f + f[::-1] for f in pair] for pair in factors]
    w = sum(np.outer(*pair) for pair in factors)
    mma = draw.choice([name for name in MMA if name != "none"])
    strips, parts = draw.choice((1, 2, 4)), draw.choice((1, 2))
    schedule = StencilSchedule(
        "lowrank", mma=mma, fuse=draw.choice((1, 1, 2, 3, 5, 8, 12)), stages=draw.choice((1, 1, 2, 3, 4)),
        warps=strips * parts, tile=(strips * MMA[mma][0], 8 * draw.choice((1, 2, 4, 8)) * parts),
    )  # fmt: skip
    return Stencil.from_weights(w / w.sum(), boundary(draw, 2)), (draw.randint(7, 130), draw.randint(7, 180)), schedule


def test_counts_of_random_schedules_are_the_emulators() -> None:
    cases = drawn("lowrank", 40, case)
    assert {s.mma for _, _, s in cases} == {*MMA} - {"none"} and {s.stages for _, _, s in cases} == {1, 2, 3, 4}
    assert max(s.fuse for _, _, s in cases) == 12
    assert not wrong(cases)


@pytest.mark.parametrize("line", ["tile=64x64 fuse=12", "tile=64x64 mma=f64.m16n8k8 stages=2"])
@pytest.mark.parametrize("shape", [(10240, 10240), (10007, 9999)])
def test_a_large_field_is_counted_at_once(line: str, shape: tuple[int, int]) -> None:
    s = Stencil.from_weights(np.outer((1.0, 2.0, 1.0), (1.0, 2.0, 1.0)) / 16, {0: (frozen, frozen), 1: periodic})
    began = time.perf_counter()
    counted = launches(s, shape, StencilSchedule.parse(f"lowrank {line}"), load_profile("h200"))
    assert time.perf_counter() - began < 2.0
    assert sum(launch.counts["bytes.global.write"] for launch in counted) == 8 * shape[0] * shape[1]
