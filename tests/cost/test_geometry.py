"""The geometry that costs and legality rest on is that of the real lowering: shared memory, threads, mma."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from functools import cache

import numpy as np
import pytest

from sparsegen.boundary import periodic
from sparsegen.choose import Options
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import load_profile
from sparsegen.cost.search import space
from sparsegen.dsl.stencil import Stencil
from sparsegen.families.mma import narrowing
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry, legal, legalise
from sparsegen.ir import warp as w
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.expr import Const, Expr
from sparsegen.ir.node import Op
from sparsegen.pipelines import lower
from sparsegen.problems.stencil import StencilProblem
from sparsegen.schedule import Schedule, StencilSchedule
from sparsegen.sizes import MMA

H200 = load_profile("h200")
TRIALS = 24


def main_kernel(schedule: StencilSchedule, k: int, dtype: str = "f64") -> w.Func:
    """The kernel that a schedule becomes (of the explicit form, the transform's)."""
    weights = np.random.default_rng(k).random((k, k)) + 0.1
    stencil = Stencil.from_weights(weights.astype({"f64": "float64", "f32": "float32"}[dtype]), periodic)
    func = lower(StencilProblem(stencil, (257, 300)), schedule, H200, schedule.fuse).warp.funcs[0]
    assert isinstance(func, w.Func)
    return func


def trips(loop: w.For) -> int:
    """How often a loop with constant bounds runs; 1 for the others (over a block's tiles, over a thread's elements)."""
    bounds: list[Expr] = [loop.start, loop.stop, loop.step]
    if not all(isinstance(x, Const) for x in bounds):
        return 1
    start, stop, step = (int(x.value) for x in bounds if isinstance(x, Const))
    return len(range(start, stop, step))


def best_of_families(found: Options) -> dict[str, Cost]:
    """The cheapest schedule of each family."""
    return {c.schedule.family: c for c in reversed(found.costs)}


def mma_of_a_warp(ops: Iterable[Op]) -> Counter[str]:
    """The mma that a warp executes for one tile, by shape."""
    total: Counter[str] = Counter()
    for op in ops:
        if isinstance(op, w.Mma):
            total[op.shape] += 1
        elif isinstance(op, w.For):
            inside = mma_of_a_warp(op.body)
            total.update({shape: n * trips(op) for shape, n in inside.items()})
        elif isinstance(op, w.If):
            assert not mma_of_a_warp(op.orelse)
            total.update(mma_of_a_warp(op.then))
    return total


def compare(schedule: StencilSchedule, k: int, dtype: str = "f64") -> None:
    """Geometry against the lowered kernel."""
    schedule = legalise(schedule, k)
    g, func = geometry(schedule, Footprint(k, k * k, dtype)), main_kernel(schedule, k, dtype)
    assert (func.shared_bytes, func.threads) == (g.smem_bytes, g.threads), str(schedule)
    if schedule.family == "stencil2row" and schedule.transform == "implicit":
        executed = mma_of_a_warp(func.body)
        assert {shape: n * schedule.warps for shape, n in executed.items()} == dict(g.mmas), str(schedule)


@pytest.mark.parametrize("family", ["direct", "tiled", "stencil2row"])
@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_random_schedules(family: str, dtype: str) -> None:
    draw = random.Random(f"{family} {dtype}")
    tried = 0

    @cache
    def tried_for(k: int, fuse: int) -> list[StencilSchedule]:
        every = space(Footprint(k, k * k, dtype), fuse, ablation=True)
        return [s for s in every if (s.family, s.fuse) == (family, fuse)]

    while tried < TRIALS:
        k = draw.choice([1, 3, 5, 7])
        fp, fuse = Footprint(k, k * k, dtype), draw.randint(1, 3)
        schedule = draw.choice(tried_for(k, fuse))
        try:
            legal(schedule, fp, H200)
        except ScheduleError:
            continue
        compare(schedule, k, dtype)
        tried += 1


@pytest.mark.parametrize("mma", [m for m in MMA if m != "none"])
@pytest.mark.parametrize(("k", "fuse"), [(3, 1), (3, 3), (5, 1), (7, 1), (3, 2)])
@pytest.mark.parametrize("stages", [1, 3])
def test_every_mma(mma: str, k: int, fuse: int, stages: int) -> None:
    schedule = StencilSchedule("stencil2row", mma=mma, fuse=fuse, stages=stages)
    compare(schedule, k)


def test_slices_run_over_the_joint_of_a_and_b() -> None:
    assert narrowing("f64.m8n8k4", 26) == [("f64.m8n8k4", 26)]
    assert narrowing("f64.m16n8k8", 26) == [("f64.m16n8k8", 13)]
    assert narrowing("f64.m16n8k16", 26) == [("f64.m16n8k16", 6), ("f64.m16n8k8", 1)]
    g = geometry(Schedule.parse("stencil2row mma=f64.m16n8k16 stages=2"), Footprint(7))
    assert dict(g.mmas) == {"f64.m16n8k16": 6 * 32, "f64.m16n8k8": 32} and g.fragments == 26


def test_offsets_that_a_table_cannot_hold() -> None:
    # on today's devices shared memory or registers run out first
    text = "stencil2row mma=f64.m16n8k4 fuse=3 tile=64x1024 warps=16 transform=explicit"
    with pytest.raises(ScheduleError, match="table's offsets end at 65535") as e:
        legal(Schedule.parse(f"{text} lut=on"), Footprint(3), H200)
    assert "lut=off" in str(e.value)
    with pytest.raises(ScheduleError, match="products of a tile"):
        legal(Schedule.parse(f"{text} lut=off"), Footprint(3), H200)
