"""``tiled``: all counts by formula equal the emulator's, with plain copies, copies waited for at once, and rings."""

from __future__ import annotations

import time

import numpy as np
import pytest

from sparsegen.boundary import dirichlet, frozen, neumann
from sparsegen.cost.counts import launches
from sparsegen.dsl.stencil import Stencil
from sparsegen.schedule import Schedule
from tests.cost.counts.borders import every
from tests.cost.counts.kit import H200, differences, draws

SIZES = {1: [(5, 700)], 2: [(7, 100), (7, 140)]}


@pytest.mark.parametrize(("axes", "trials"), [(1, 24), (2, 24)])
def test_random_cases(axes: int, trials: int) -> None:
    for s, shape, schedule in draws(
        "tiled", axes, trials, SIZES[axes], dtypes="f64 f64 f32 f16 bf16", boundaries=every(axes)
    ):
        assert not differences(s, shape, schedule), (s, shape, schedule)


@pytest.mark.parametrize("cols", [160, 161, 164])  # whole pieces, single elements, pieces of some types
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_every_kind_of_copy(cols: int, dtype: str, stages: int) -> None:
    """A radius of 1 comes by plain copies without a ring, one of 2 at once; sides differ, so constants are chosen."""
    sides = {0: (dirichlet(0.5), dirichlet(0.25)), 1: (dirichlet(0.125), neumann)}
    for radius in (1, 2):
        w = np.full((2 * radius + 1,) * 2, 0.04, dtype="float32" if dtype == "f32" else "float64")
        s = Stencil.from_weights(w, sides, dtype=dtype)
        schedule = Schedule.parse(f"tiled tile=8x32 warps=4 stages={stages}")
        assert not differences(s, (61, cols), schedule), (s, cols, schedule)


@pytest.mark.parametrize("shape", [(10240, 10240), (10239, 10237)])
@pytest.mark.parametrize("line", ["tiled tile=8x32 warps=4 fuse=2 stages=3", "tiled tile=64x64 fuse=1"])
def test_a_large_field_takes_no_time(shape: tuple[int, int], line: str) -> None:
    s = Stencil.from_weights(np.full((7, 7), 1 / 49), frozen, dtype="f64")
    begin = time.perf_counter()
    found = launches(s, shape, Schedule.parse(line), H200)
    assert time.perf_counter() - begin < 1
    assert sum(launch.counts["bytes.global.write"] for launch in found) == 8 * shape[0] * shape[1]
