"""stencil2row: the formulas' counts are the emulator's, for random stencils, schedules and shapes."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

from sparsegen.boundary import dirichlet, frozen
from sparsegen.cost.counts import Pass, launches
from sparsegen.cost.devices import load_profile
from sparsegen.dsl.stencil import Stencil
from sparsegen.schedule import MMA, StencilSchedule
from tests.cost.counts import kit
from tests.cost.counts.cases import Case, boundary, drawn, wrong

SIZES = {1: ((8, 4000),), 2: ((7, 150), (7, 200)), 3: ((3, 9), (5, 40), (5, 60))}


def uneven(draw: random.Random, axes: int) -> Any:
    """Weights with holes whose extents differ from axis to axis."""
    radius = [draw.choice((1, 1, 2, 3)), *(draw.choice((0, 1, 1, 2)) for _ in range(axes - 1))]
    w = np.array([draw.uniform(0.1, 1.0) * (draw.random() < 0.7) for _ in range(np.prod([2 * r + 1 for r in radius]))])
    w[w.size // 2] = 1.0
    return (w / w.sum()).reshape([2 * r + 1 for r in radius])


def case(draw: random.Random, axes: int, mma: str) -> Case:
    """Any schedule for an mma, legal or not."""
    w = kit.weights(draw, axes, draw.choice((1, 1, 2, 3))) if draw.random() < 0.7 else uneven(draw, axes)
    dtype = draw.choice(("f64", "f32")) if mma == "none" else "f64"
    s = Stencil.from_weights(w.astype("float32" if dtype == "f32" else "float64"), boundary(draw, axes), dtype=dtype)
    shape = tuple(draw.randint(*size) for size in SIZES[axes])
    fuse, stages = draw.choice((1, 1, 2, 3)), draw.choice((1, 1, 2, 3, 4))
    groups = draw.choice((1, 2, 4) if axes > 1 else (2, 4, 8, 16)) * MMA[mma][0]
    schedule = StencilSchedule(
        "stencil2row", mma=mma, fuse=fuse, stages=stages, warps=draw.choice((1, 2, 3, 4, 8)),
        tile=(1 if axes == 1 else draw.choice((1, 2, 4, 12, 16, 32)), groups * ((max(w.shape) - 1) * fuse + 2)),
        lut=draw.random() < 0.5, dirty=draw.random() < 0.5, pad=draw.random() < 0.6,
        transform=draw.choice(("implicit", "explicit")) if stages == 1 else "implicit",
    )  # fmt: skip
    return s.gridded, ((1,) if axes == 1 else ()) + shape, schedule


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_counts_of_random_schedules_are_the_emulators(axes: int) -> None:
    every = [drawn(f"stencil2row {axes} {mma}", 7 if axes < 3 else 5, partial(case, axes=axes, mma=mma)) for mma in MMA]
    cases = [one for of in every for one in of]
    schedules = [schedule for _, _, schedule in cases]
    assert {s.stages for s in schedules} == {1, 2, 3, 4}
    assert len({(s.lut, s.dirty, s.pad) for s in schedules}) == 8
    assert not wrong(cases)


def test_counts_of_the_familys_own_space_are_the_emulators() -> None:
    assert not wrong(kit.draws("stencil2row", 2, 12, SIZES[2]))


def test_a_star_in_three_axes_adds_its_small_planes_point_by_point() -> None:
    w = np.zeros((5, 5, 5))
    w[2, 2, :], w[2, :, 2], w[:, 2, 2] = 0.1, 0.05, 0.02
    for sides in ("periodic", {0: (frozen, dirichlet(0.5)), 1: (dirichlet(0.5), dirichlet(0.25)), 2: (frozen, frozen)}):
        s = Stencil.from_weights(w, kit.periodic if sides == "periodic" else sides)
        for line in ("tile=16x48 warps=4", "tile=4x96 warps=2 stages=3 lut=off", "mma=none tile=8x48 warps=8"):
            p = Pass.of(s, (7, 37, 101), StencilSchedule.parse(f"stencil2row {line}"), kit.H200)
            assert p.geometry.points > 0
            assert not kit.differences(s, p.shape, p.schedule)


@pytest.mark.parametrize(
    "line", ["tile=32x64", "tile=16x128 mma=f64.m16n8k8 stages=4", "tile=16x64 transform=explicit"]
)
@pytest.mark.parametrize("shape", [(10240, 10240), (10007, 9999)])
def test_a_large_field_is_counted_at_once(line: str, shape: tuple[int, int]) -> None:
    s = Stencil.from_weights(kit.weights(random.Random(1), 2, 3), frozen)
    began = time.perf_counter()
    counted = launches(s, shape, StencilSchedule.parse(f"stencil2row {line}"), load_profile("h200"))
    assert time.perf_counter() - began < 2.0
    assert counted[-1].counts["bytes.global.write"] == 8 * shape[0] * shape[1]
