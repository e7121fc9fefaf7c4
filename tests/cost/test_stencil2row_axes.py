"""stencil2row on three axes and on one: the geometry is the lowering's, the cost counts planes and points."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from sparsegen.boundary import BoundarySpec, frozen, neumann, periodic
from sparsegen.cost.devices import load_profile
from sparsegen.cost.search import candidates
from sparsegen.cost.stencil import cost
from sparsegen.footprint import Footprint
from sparsegen.geometry import check, geometry, legal, legalise
from sparsegen.ir import warp as w
from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import Schedule, StencilSchedule
from tests.cost.test_geometry import mma_of_a_warp
from tests.schedules import kernels, lowered, stencil

H200 = load_profile("h200")
CUBE, LINE = (96, 100, 1000), (1, 1_000_001)
TRIALS = 8


def star(radius: int) -> Any:
    off = np.abs(np.indices((2 * radius + 1,) * 3) - radius).astype(bool).sum(axis=0)
    return np.where(off <= 1, 0.25, 0.0)


HOLES = np.where(np.random.default_rng(5).random((3, 3, 3)) < 0.4, 1.0, 0.0)
STENCILS = [
    (star(1), CUBE), (star(2), CUBE), (np.ones((3, 3, 3)), CUBE), (HOLES, CUBE), (np.ones((1, 3, 3)), CUBE),
    (np.ones((1, 3)), LINE), (np.ones((1, 7)), LINE),
]  # fmt: skip


@pytest.mark.parametrize(("weights", "shape"), STENCILS, ids=["star", "far", "box", "holes", "flat", "row3", "row7"])
def test_the_geometry_is_that_of_the_lowering(weights: Any, shape: tuple[int, ...]) -> None:
    s = stencil(weights)
    fp = Footprint.of(s)
    found = [x for x in candidates(fp, H200, shape) if x.family == "stencil2row"]
    assert {x.fuse for x in found} <= {1, 2, 3} and 1 in {x.fuse for x in found}
    for schedule in random.Random(1).sample(found, TRIALS):
        g, func = geometry(schedule, fp), kernels(lowered(s, shape, schedule, profile=H200).warp)["stencil"]
        assert (func.shared_bytes, func.threads) == (g.smem_bytes, g.threads), str(schedule)
        turns = [op for op in func.body if isinstance(op, w.For) and op.var.name == "turn"]  # of blocks that stay
        executed = mma_of_a_warp(turns[0].body if turns else func.body)
        assert {name: n * schedule.warps for name, n in executed.items()} == dict(g.mmas), str(schedule)
        assert sum(p.name == "offsets" and p.size == 3 * g.points for p in func.params) == bool(g.points)


def test_points_of_planes() -> None:
    fp = Footprint.of(stencil(star(1)))
    assert fp.planes == ((1, 5, 1), (1, 5, 13, 5, 1), (1, 5, 13, 25, 13, 5, 1))
    g = geometry(Schedule.parse("stencil2row fuse=3"), fp)
    assert (g.halo_planes, g.points, g.fragments, g.depth) == (1, 38, 26, 52)
    box = geometry(Schedule.parse("stencil2row"), Footprint(3, 27, axes=3))
    assert (box.halo_planes, box.points, box.fragments) == (3, 0, 18)
    assert dict(box.mmas) == {"f64.m8n8k4": 3 * 6 * 32}
    assert Footprint.of(stencil(np.ones((3, 3)))).planes == ()


def test_the_tile_of_a_row_is_the_papers() -> None:
    s = legalise(Schedule.parse("stencil2row"), 7, 1)
    assert s.tile == (1, 1024)
    g = geometry(s, Footprint(7, 7, axes=1))
    assert (g.groups, g.depth, g.stride_ab, g.reach, g.tiles_per_warp) == (128, 8, 12, 0, 2)
    assert dict(g.mmas) == {"f64.m8n8k4": 4 * 16}


@pytest.mark.parametrize("line", [
    "stencil2row fuse=3", "stencil2row mma=f64.m16n8k4 stages=2 lut=off", "stencil2row mma=none",
    "stencil2row transform=explicit",
])  # fmt: skip
@pytest.mark.parametrize(("weights", "shape"), [(star(1), CUBE), (np.ones((3, 3, 3)), CUBE), (np.ones((1, 3)), LINE)])
def test_formula_is_the_number(line: str, weights: Any, shape: tuple[int, ...]) -> None:
    fp = Footprint.of(stencil(weights))
    c = cost(fp, shape, Schedule.parse(line), H200)
    assert float(c.formula.xreplace(c.substitution())) == pytest.approx(c.time, rel=1e-12)


def rate(weights: Any, shape: tuple[int, ...], line: str) -> float:
    return cost(Footprint.of(stencil(weights)), shape, Schedule.parse(line), H200).rate


def test_what_costs_more() -> None:
    cube, row = (768, 768, 768), (1, 102_400_000)
    fast, slow = "stencil2row mma=f64.m16n8k4 stages=2 lut=off", "stencil2row mma=f64.m8n8k4 stages=1 lut=on"
    assert rate(star(1), cube, fast) > rate(np.ones((3, 3, 3)), cube, fast)  # three products, not one
    # random kernels s4 of seed 202 and s15 of seed 303: 1989 us for 2998, 2678 for 3059
    assert rate(star(2), cube, fast) > rate(star(2), cube, slow)
    # a row is bound by memory: three steps cost about as much as one
    assert rate(np.ones((1, 3)), row, f"{fast} fuse=3") > 2 * rate(np.ones((1, 3)), row, fast)


@pytest.mark.parametrize(("weights", "shape"), STENCILS, ids=["star", "far", "box", "holes", "flat", "row3", "row7"])
def test_the_geometry_of_the_explicit_form(weights: Any, shape: tuple[int, ...]) -> None:
    """No shared memory; the products and the points of the implicit form."""
    s = stencil(weights)
    fp = Footprint.of(s)
    found = [x for x in candidates(fp, H200, shape, ablation=True) if x.transform == "explicit"]
    for schedule in random.Random(2).sample(found, 2):
        g, func = geometry(schedule, fp), kernels(lowered(s, shape, schedule, profile=H200).warp)["stencil"]
        assert (func.shared_bytes, func.threads) == (g.smem_bytes, g.threads) == (0, schedule.threads), str(schedule)
        executed = mma_of_a_warp(func.body)
        assert {name: n * schedule.warps for name, n in executed.items()} == dict(g.mmas), str(schedule)
        assert sum(p.name == "offsets" and p.size == 3 * g.points for p in func.params) == bool(g.points)


def test_explicit_planes_are_made_once_and_read_for_each_plane_of_weights() -> None:
    cube, line = (768, 768, 768), "stencil2row lut=off dirty=off transform="
    by_plane = {}
    for planes in (1, 3):
        fp = Footprint.of(stencil(np.ones((planes, 3, 3))))
        by_plane[planes] = cost(fp, cube, Schedule.parse(f"{line}explicit"), H200).terms
        assert "transform" not in cost(fp, cube, Schedule.parse(f"{line}implicit"), H200).terms
    made, of_one, of_three = 2 * 3 / 4, by_plane[1], by_plane[3]
    assert of_one["transform"] == pytest.approx(of_three["transform"])
    assert of_three["hbm"] / of_one["hbm"] == pytest.approx((3 * made + 1) / (made + 1))


def refused(line: str, weights: Any, sides: BoundarySpec = periodic) -> str:
    s = stencil(weights, sides)
    with pytest.raises(ScheduleError) as e:
        check(s, CUBE, Schedule.parse(line), H200)
    assert e.value.hint
    return str(e.value)


def test_refusals() -> None:
    assert "no rim mends" in refused("stencil2row fuse=2", star(1), frozen)
    assert "no rim mends" in refused("direct fuse=2", star(1), {0: frozen, 1: periodic, 2: periodic})
    assert "no rim mends" in refused("stencil2row fuse=2", HOLES, neumann)
    assert "no rim mends" in refused("stencil2row transform=explicit fuse=2", HOLES, frozen)
    assert "shared memory" in refused("stencil2row mma=f64.m16n8k4 fuse=3 stages=4 tile=32x128", np.ones((3, 3, 3)))
    assert "products of a tile" in refused("stencil2row mma=f64.m16n8k4 fuse=3 tile=64x128", star(1))
    legal(StencilSchedule("stencil2row", tile=(32, 48), fuse=2), Footprint.of(stencil(star(1), neumann)), H200)
