"""``column``: counts by formula equal the emulator's."""

from __future__ import annotations

import time

import numpy as np
import pytest

from sparsegen.boundary import dirichlet, frozen, neumann, periodic
from sparsegen.cost.counts import launches
from sparsegen.dsl.stencil import Stencil
from sparsegen.schedule import Schedule
from tests.cost.counts.cases import wrong
from tests.cost.counts.kit import H200
from tests.cost.counts.knobs import Knobs, agree

KNOBS: Knobs = {
    "planes": (None, 1, 2, 8), "lines": (1, 2, 5, 8), "warps": (2, 4, 12), "stages": (2, 3, 8),
}  # fmt: skip


def test_equal_the_emulators() -> None:
    agree("column", 3, [(3, 9), (5, 26), (5, 66)], "f64 f32", KNOBS, 40, (1, 1, 1, 2))


def test_a_frozen_side_that_only_some_cells_can_touch() -> None:
    """Where the compiler knows that a thread's cell never lies at a frozen side, it keeps nothing for it."""
    star = np.zeros((3, 3, 3))
    star[1, 1, :] = star[1, :, 1] = star[:, 1, 1] = 1 / 7
    sides = ({0: periodic, 1: (frozen, neumann), 2: periodic}, {0: neumann, 1: (neumann, frozen), 2: dirichlet(1.0)},
             {0: periodic, 1: periodic, 2: (neumann, frozen)})  # fmt: skip
    lines = ("column levels=1 lines=6 warps=1", "column levels=2 lines=5 warps=2", "column levels=1 lines=4 warps=3")
    assert not wrong([(Stencil.from_weights(star, b), shape, Schedule.parse(line)) for b in sides for line in lines
             for shape in ((5, 3, 7), (4, 11, 64))])  # fmt: skip


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("kind", ["star", "box"])
def test_borders_that_wider_stencils_cross(kind: str, dtype: str) -> None:
    w = np.random.default_rng(3).uniform(0.3, 1.3, (5, 5, 5))
    if kind == "star":
        w[np.count_nonzero(np.indices(w.shape) - 2, axis=0) > 1] = 0.0
    sides = (frozen, dirichlet(0.5), {0: (frozen, dirichlet(1.5)), 1: (frozen, dirichlet(0.3)), 2: (frozen, frozen)},
             {0: frozen, 1: periodic, 2: dirichlet(0.2)})  # fmt: skip
    lines = (("column levels=1 lines=2 warps=6 planes=7 stages=3", (11, 9, 70)),
             ("column levels=2 lines=2 warps=8 planes=9 stages=2", (17, 13, 131)),
             ("column levels=2 lines=2 warps=8 stages=2", (9, 8, 66)))  # fmt: skip
    assert not wrong([(Stencil.from_weights(w / w.sum(), b, dtype=dtype), shape, Schedule.parse(line))
                      for b in sides for line, shape in lines])  # fmt: skip


@pytest.mark.parametrize("shape", [(768, 768, 768), (769, 767, 770)])
def test_large_fields_take_no_longer(shape: tuple[int, int, int]) -> None:
    s = Stencil.from_weights(np.full((3, 3, 3), 1 / 27), frozen)
    start = time.perf_counter()
    launches(s, shape, Schedule.parse("column levels=2 planes=16"), H200)
    assert time.perf_counter() - start < 2
