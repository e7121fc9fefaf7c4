"""``direct``: all counts by formula equal the emulator's."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from sparsegen.boundary import dirichlet, frozen
from sparsegen.cost.counts import launches
from sparsegen.dsl.stencil import Stencil
from sparsegen.schedule import Schedule
from tests.cost.counts.borders import closed, every
from tests.cost.counts.kit import H200, differences, draws, weights

SIZES = {1: [(5, 400)], 2: [(7, 50), (7, 80)], 3: [(7, 9), (7, 11), (7, 40)]}


@pytest.mark.parametrize(("axes", "trials"), [(1, 24), (2, 24), (3, 24)])
def test_random_cases(axes: int, trials: int) -> None:
    radii = (1, 1, 2, 3) if axes < 3 else (1, 1, 2)
    dtypes = "f64 f64 f32 f16 bf16"
    for s, shape, schedule in draws(
        "direct", axes, trials, SIZES[axes], dtypes=dtypes, boundaries=every(axes), radii=radii
    ):
        assert not differences(s, shape, schedule), (s, shape, schedule)


@pytest.mark.parametrize("block", ["20x6", "7x9", "48x2", "1x64", "96x3", "5x5"])
@pytest.mark.parametrize("axes", [2, 3])
def test_blocks_whose_warps_span_rows(block: str, axes: int) -> None:
    draw = random.Random(f"{block} {axes}")
    s = Stencil.from_weights(weights(draw, axes, 1), draw.choice(closed(axes)), dtype="f64")
    shape = tuple(draw.randint(7, 40 if axes == 2 else 14) for _ in range(axes))
    assert not differences(s, shape, Schedule.parse(f"direct block={block}")), (s, shape)


@pytest.mark.parametrize("shape", [(10240, 10240), (10239, 10237), (511, 512, 509)])
@pytest.mark.parametrize("dtype", ["f64", "f16"])
def test_a_large_field_takes_no_time(shape: tuple[int, ...], dtype: str) -> None:
    boundary = dirichlet(0.5) if len(shape) == 3 else frozen
    s = Stencil.from_weights(np.full((7,) * len(shape), 1.0), boundary, dtype=dtype)
    begin = time.perf_counter()
    found = launches(s, shape, Schedule.parse(f"direct fuse={4 - len(shape)}"), H200)
    assert time.perf_counter() - begin < 1
    assert sum(launch.counts["bytes.global.write"] for launch in found) >= np.prod(shape) * (8 if dtype == "f64" else 2)
