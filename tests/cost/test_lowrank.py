"""``lowrank``: ranks of weights, geometry as lowered, nvcc's registers, cost near the measured; when auto takes it."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.boundary import BoundarySpec, frozen, periodic
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import load_profile
from sparsegen.cost.search import rank
from sparsegen.cost.stencil import blocks_per_sm, cost, evaluate
from sparsegen.dsl.stencil import Stencil
from sparsegen.families.lowrank import REGISTERS, SHAPES
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry, legal, legalise, split
from sparsegen.ir import warp as w
from sparsegen.ir.errors import ScheduleError
from sparsegen.pipelines import lower
from sparsegen.problems.stencil import StencilProblem
from sparsegen.schedule import Schedule, StencilSchedule
from sparsegen.sizes import MMA
from tests.cost.measured import LOW_RANK, LOWRANKS, LowRank
from tests.cost.test_geometry import best_of_families, mma_of_a_warp
from tests.nvcc_kit import needs_nvcc, used
from tests.schedules import lowered

H200, SHAPE = load_profile("h200"), (10240, 10240)
HEAT = np.array([[0.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 0.0]]) / 8
BLUR = np.outer([1.0, 2.0, 1.0], [1.0, 2.0, 1.0]) / 16


def weights(terms: int, k: int) -> Any:
    """A sum of products, of that rank."""
    r = np.random.default_rng(10 * terms + k)
    return sum(np.outer(r.uniform(0.1, 1.0, k), r.uniform(0.1, 1.0, k)) for _ in range(terms)) / (terms * k * k)


def footprint(w: Any, **options: Any) -> Footprint:
    return Footprint.of(Stencil.from_weights(w, **options))


# ---------------------------------------------------------------------------------------------------------- ranks
@pytest.mark.parametrize(
    ("w", "ranks"),
    [
        (BLUR, (1,) * 12),
        (np.ones((7, 7)) / 49, (1,) * 12),
        (HEAT, (2, 3, 4)),
        (weights(3, 3), (3,)),
        (weights(5, 5), ()),
        (np.random.default_rng(0).random((7, 7)), ()),
        (BLUR * 1e200, (1,)),  # two steps overflow
        (np.ones((1, 3)) / 3, ()),  # one row: another family's
    ],
)  # fmt: skip
def test_ranks(w: Any, ranks: tuple[int, ...]) -> None:
    assert footprint(w).ranks == ranks


@pytest.mark.parametrize("seed", range(40))
def test_ranks_do_not_depend_on_rounding(seed: int) -> None:
    r = np.random.default_rng(seed)
    k, terms = r.choice([3, 5, 7, 9]), int(r.integers(1, 4))
    w = sum(np.outer(r.uniform(-1, 1, k), r.uniform(-1, 1, k)) for _ in range(terms))
    assert footprint(w).ranks[0] == terms


# ------------------------------------------------------------------------------------------------------- geometry
def schedules(fp: Footprint) -> Iterator[StencilSchedule]:
    """Legal ones of every mma, with rings too."""
    for fuse in range(1, len(fp.ranks) + 1):
        for mma in REGISTERS:
            for strips, blocks, parts in (*SHAPES, (8, 8, 1), (2, 16, 1), (4, 2, 1)):
                for stages in (1, 2, 3):
                    tile = (strips * MMA[mma][0], 8 * blocks * parts)
                    s = StencilSchedule("lowrank", mma=mma, fuse=fuse, tile=tile, warps=strips * parts, stages=stages)
                    try:
                        legal(s, fp, H200)
                    except ScheduleError:
                        continue
                    yield s


def kernel(stencil: Stencil, s: StencilSchedule) -> w.Func:
    func = lower(StencilProblem(stencil, (1000, 998)), s, H200, s.steps).warp.funcs[0]
    assert isinstance(func, w.Func)
    return func


STENCILS = [(BLUR, periodic), (HEAT, frozen), (weights(3, 7), periodic), (weights(1, 7), frozen)]


@pytest.mark.parametrize("of", STENCILS)
def test_geometry_is_the_lowering(of: tuple[Any, BoundarySpec]) -> None:
    stencil = Stencil.from_weights(*of)
    fp = Footprint.of(stencil)
    for s in random.Random(fp.k).sample(list(schedules(fp)), 6):
        g, func = geometry(s, fp), kernel(stencil, s)
        assert (func.shared_bytes, func.threads) == (g.smem_bytes, g.threads), str(s)
        assert func.min_blocks == blocks_per_sm(s, g, H200, fp), str(s)
        executed = mma_of_a_warp(func.body)
        assert {shape: n * s.warps for shape, n in executed.items()} == dict(g.mmas), str(s)


@needs_nvcc
def test_legal_schedules_do_not_spill() -> None:
    """A sample of all, and of what auto chooses among every fusion."""
    found: list[tuple[Stencil, StencilSchedule]] = []
    for of in STENCILS:
        stencil = Stencil.from_weights(*of)
        fp = Footprint.of(stencil)
        every = list(schedules(fp))
        found += [(stencil, s) for s in random.Random(7).sample(every, 4)]
        plain = [s for s in every if s.stages == 1 and s.tile == (64, 64) and s.mma == "f64.m16n8k4"]
        found += [(stencil, s) for s in plain if s.warps == 4][::3]

    for (st, s), r in zip(found, used([kernel(st, s) for st, s in found], "sm_90a"), strict=True):
        fp = Footprint.of(st)
        assert not r.spill_stores and not r.stack, f"{fp} {s}: {r}"
        blocks = blocks_per_sm(s, geometry(s, fp), H200, fp)
        assert 4 * (16384 // (32 * (-(-r.registers // 8) * 8))) // s.warps >= blocks, f"{fp} {s}: {r}"


def test_steps_of_a_rest() -> None:
    s = Schedule.parse("lowrank fuse=12")
    assert [(p.fuse, p.tile, n) for p, n in split(s, 100, 3)] == [(4, (64, 64), 1), (12, (64, 64), 8)]
    program = lowered(Stencil.from_weights(BLUR), (40, 60), "lowrank fuse=5")
    assert program.steps == 5


# ------------------------------------------------------------------------------------------------------------ cost
def at(p: LowRank) -> Cost:
    fp = LOW_RANK[p.stencil]
    s = legalise(Schedule.parse(p.schedule), fp.k)
    return evaluate(fp, SHAPE, s, H200, geometry(s, fp), blocks=p.blocks)


def test_near_the_measured() -> None:
    """Of each other; they are predicted 14 % too slow: seven took less than the memory takes in the model (443 us),
    which is fitted to the random kernels (test_random_kernels.py)."""
    ratios = np.array([at(p).time * 1e6 / p.microseconds for p in LOWRANKS])
    assert len(ratios) >= 16 and 1 <= np.median(ratios) <= 1.15
    apart = np.abs(ratios / np.median(ratios) - 1)
    assert np.median(apart) <= 0.03 and max(apart) <= 0.09


def test_the_measured_order() -> None:
    """One tile a block beats a ring, four warps beat eight, and 12 fused steps give the most."""
    one = {p.schedule: at(p).time_per_step for p in LOWRANKS if p.stencil == "product9"}
    assert one["lowrank fuse=3"] < one["lowrank fuse=3 stages=2"]
    assert one["lowrank fuse=12"] < one["lowrank fuse=12 warps=8"]
    assert min(one, key=one.__getitem__) == "lowrank fuse=12"


@pytest.mark.parametrize("text", ["lowrank fuse=8", "lowrank mma=f64.m16n8k8 fuse=3 stages=2"])
@pytest.mark.parametrize("shape", [(10007, 9999), (300, 1031)])
def test_formula_is_the_number(text: str, shape: tuple[int, int]) -> None:
    fp = dataclasses.replace(LOW_RANK["product9"], boundary="frozen")
    c = cost(fp, shape, Schedule.parse(text), H200)
    assert float(c.formula.xreplace(c.substitution())) == pytest.approx(c.time, rel=1e-12)
    assert {"tensor", "shared", "issue", "rim"} <= set(c.terms) == set(c.reasons())


# ------------------------------------------------------------------------------------------------------------ auto
@pytest.mark.parametrize(
    ("w", "family"), [(BLUR, "lowrank"), (weights(1, 7), "lowrank"), (HEAT, "stream"), (weights(3, 3), "stream")]
)
def test_auto(w: Any, family: str) -> None:
    k = sg.compile(Stencil.from_weights(w), SHAPE, steps=96, device="h200", backend="emulator")
    assert k.schedule.family == family
    if w is BLUR:
        assert str(k.schedule) == "lowrank mma=f64.m16n8k4 fuse=12 tile=64x64 warps=4 stages=1"


def test_auto_on_other_devices() -> None:
    fp = LOW_RANK["product9"]
    assert rank(fp, load_profile("a100"), SHAPE, limit=96).costs[0].schedule.mma == "f64.m8n8k4"
    assert "lowrank" not in best_of_families(rank(fp, load_profile("v100"), SHAPE, limit=96))
    assert "lowrank" not in best_of_families(rank(dataclasses.replace(fp, dtype="f32"), H200, SHAPE, limit=9))


@pytest.mark.parametrize(
    ("text", "fp", "device", "words"),
    [
        ("lowrank fuse=4", LOW_RANK["heat"], "h200", ["fuse=4", "rank above 4", "of fuse=3 rank 4", "lower fuse"]),
        ("lowrank", Footprint(7, 49), "h200", ["fuse=1", "rank above 4", "choose another family"]),
        ("lowrank", LOW_RANK["heat"], "a100", ["needs sm_90", "sm_80", "set mma=f64.m8n8k4"]),
        ("lowrank mma=f64.m8n8k4 tile=32x64", LOW_RANK["heat"], "v100", ["needs sm_80", "choose tiled or direct"]),
        ("lowrank mma=none tile=32x64", LOW_RANK["heat"], "h200", ["mma=none", "tensor cores", "f64.m16n8k4"]),
        ("lowrank", dataclasses.replace(LOW_RANK["heat"], dtype="f32"), "h200", ["not f32", "choose tiled"]),
        ("lowrank fuse=3 tile=64x128", LOW_RANK["heat"], "h200", ["registers", "255", "make tile= smaller"]),
        ("lowrank fuse=12 tile=256x64 warps=16", LOW_RANK["product49"], "h200", ["bytes of shared memory", "tile="]),
    ],
)
def test_illegal(text: str, fp: Footprint, device: str, words: list[str]) -> None:
    with pytest.raises(ScheduleError) as e:
        legal(Schedule.parse(text), fp, load_profile(device))
    for word in words:
        assert word in str(e.value)
