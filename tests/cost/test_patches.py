"""``patches``: geometry as lowered, nvcc's registers, cost near the measured; when auto takes it."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.boundary import BoundarySpec, frozen, periodic
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import load_profile
from sparsegen.cost.search import rank
from sparsegen.cost.stencil import blocks_per_sm, cost, evaluate, filled
from sparsegen.families.patches import SHAPES
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry, legal, misfit, split
from sparsegen.ir import warp as w
from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import Schedule, StencilSchedule
from tests.cost.measured import PATCHES, STENCILS, Patches
from tests.cost.test_geometry import mma_of_a_warp
from tests.nvcc_kit import needs_nvcc, used
from tests.schedules import device, kernels, lowered, stencil

H200, SHAPE = load_profile("h200"), (10240, 10240)
#: Shapes whose rows are at multiples of 16 bytes, and not.
SIZES = [(2000, 2002), (1999, 2001)]


def kernel(s: StencilSchedule, k: int, shape: tuple[int, int], boundary: BoundarySpec = periodic,
           profile: str = "h200") -> w.Func:  # fmt: skip
    """The main kernel that a schedule becomes, of random weights."""
    weights = np.random.default_rng(k).uniform(0.1, 1.0, (k, k))
    return kernels(lowered(stencil(weights, boundary), shape, s, profile=device(profile)).warp)["stencil"]


def legal_ones(mma: str, profile: str = "h200") -> Iterator[tuple[StencilSchedule, int]]:
    """Every legal schedule that neither warps nor stages tell apart, and the edge of its stencil."""
    for k in (3, 5, 7):
        for fuse, levels, strips in ((f, n, s) for f in (1, 2, 3) for n in range(1, 9) for s in (1, 2, 3, 4)):
            s = StencilSchedule("patches", mma=mma, fuse=fuse, levels=levels, strips=strips)
            try:
                legal(s, Footprint(k), load_profile(profile))
            except ScheduleError:
                continue
            yield s, k


@pytest.mark.parametrize("mma", SHAPES)
def test_geometry_is_the_lowering(mma: str) -> None:
    draw = random.Random(mma)
    for s, k in draw.sample(list(legal_ones(mma)), 16):
        s = s.but(warps=draw.choice([1, 2, 4]), stages=draw.choice([2, 3, 6]))
        fp, shape = Footprint(k), (300, 1031)
        g, func = geometry(filled(s, fp, shape, H200), fp), kernel(s, k, shape)
        assert (func.shared_bytes, func.threads) == (g.smem_bytes, g.threads), str(s)
        assert func.grid == (-(-shape[0] // g.rows) * -(-shape[1] // g.cols), 1, 1), str(s)
        assert func.min_blocks == blocks_per_sm(s, g, H200, fp), str(s)
        executed = mma_of_a_warp(func.body)
        assert {shape: n * s.warps for shape, n in executed.items()} == dict(g.mmas), str(s)
        assert g.rows % 2 == 0 and g.fragments == func.params[-1].size // 32


@needs_nvcc
@pytest.mark.parametrize(("arch", "profile", "mma"), [("sm_80", "a100", SHAPES[0]), ("sm_90a", "h200", SHAPES[1])])
def test_legal_ones_do_not_spill(arch: str, profile: str, mma: str) -> None:
    """A sample of those with the most registers that so many blocks an SM allow; and as many blocks as said."""
    target = load_profile(profile)
    tight = [x for x in legal_ones(mma, profile) if need(*x) > 255 or -(-need(*x) // 8) * 8 in (256, 168, 128, 96)]
    sample = random.Random(5).sample(tight, 8)

    funcs = [kernel(s, k, SIZES[i % 2], frozen if i % 3 else periodic, profile) for i, (s, k) in enumerate(sample)]
    for (s, k), taken in zip(sample, used(funcs, arch), strict=True):
        assert not taken.spill_stores and not taken.stack, f"{k} {s}: {taken.registers} registers"
        blocks = blocks_per_sm(s, geometry(s, Footprint(k)), target, Footprint(k))
        assert -(-taken.registers // 8) * 8 * s.threads * blocks <= target.regs_sm, f"{k} {s}"


def need(s: StencilSchedule, k: int) -> int:
    """Estimated registers."""
    return s.rules.registers(s, geometry(s, Footprint(k)), Footprint(k))


@pytest.mark.parametrize(
    ("text", "k", "least"),
    [("patches", 3, 192), ("patches levels=4", 3, 232), ("patches levels=2", 3, 160), ("patches fuse=1", 3, 152),
     ("patches levels=3 strips=1", 3, 120), ("patches fuse=1 levels=2", 7, 240),
     ("patches fuse=1 levels=2 strips=1", 7, 152), ("patches mma=f64.m8n8k4 strips=4", 3, 176),
     ("patches mma=f64.m8n8k4 fuse=1 levels=2", 7, 128)],
)  # fmt: skip
def test_registers(text: str, k: int, least: int) -> None:
    """Never fewer than nvcc 13 needs so that nothing spills, and not many more."""
    s = Schedule.parse(text)
    assert isinstance(s, StencilSchedule) and least <= need(s, k) <= least + 24
    legal(s, Footprint(k), H200)


@pytest.mark.parametrize(
    ("text", "k", "profile", "dtype", "words"),
    [
        ("patches", 3, "h200", "f32", ["multiplies f64", "f32", "choose stream"]),
        ("patches mma=f64.m16n8k8", 3, "h200", "f64", ["mma=f64.m16n8k8", "f64.m8n8k4, f64.m16n8k16"]),
        ("patches", 5, "h200", "f64", ["fuse=2", "radius 2", "reaches 4 cells", "1 to 3", "lower fuse"]),
        ("patches fuse=1", 9, "h200", "f64", ["reaches 4 cells", "choose stream"]),
        ("patches rows=31", 3, "h200", "f64", ["rows=31", "2 rows high", "rows=auto"]),
        ("patches", 3, "a100", "f64", ["needs sm_90", "sm_80", "mma=f64.m8n8k4"]),
        ("patches mma=f64.m8n8k4 stages=2", 3, "v100", "f64", ["cp.async", "sm_70"]),
        ("patches levels=5", 3, "h200", "f64", ["registers", "255", "lower levels"]),
        ("patches fuse=3 levels=8 mma=f64.m8n8k4 strips=1", 3, "h200", "f64", ["levels=8 of radius 3", "32 columns"]),
        ("patches mma=f64.m8n8k4 strips=4 warps=8 stages=8", 3, "rtx4090", "f64", ["bytes of shared memory", "stages"]),
    ],
)
def test_illegal(text: str, k: int, profile: str, dtype: str, words: list[str]) -> None:
    with pytest.raises(ScheduleError) as e:
        legal(Schedule.parse(text), Footprint(k, dtype=dtype), load_profile(profile))
    for word in words:
        assert word in str(e.value)


def test_what_fits_a_shape() -> None:
    s = Schedule.parse("patches")
    assert misfit(s, (3, 3), (6, 6)) is None
    assert "6 steps a pass reach 6 cells on axis 0, which has 5" in str(misfit(s, (3, 3), (5, 60)))


def test_steps_of_a_rest_are_legal() -> None:
    for s, k in legal_ones(SHAPES[1]):
        for rest in range(1, s.steps):
            parts = split(s, 2 * s.steps + rest, k)
            assert sum(p.steps * n for p, n in parts) == 2 * s.steps + rest and parts[-1] == (s, 2)
            for part, _ in parts:
                legal(part, Footprint(k), H200)


def at(p: Patches) -> Cost:
    fp, s = dataclasses.replace(STENCILS[p.stencil], boundary=p.boundary), Schedule.parse(p.schedule)
    return evaluate(fp, p.shape, s, H200, geometry(s, fp), blocks=p.blocks)


def test_near_the_measured() -> None:
    errors = [abs(at(p).time * 1e6 / p.microseconds - 1) for p in PATCHES]
    assert len(errors) >= 15 and np.median(errors) <= 0.05 and max(errors) <= 0.12


def test_surprises() -> None:
    """Three levels of two fused steps are better than two or four, a wide strip better than a narrow one."""

    def rate(name: str, line: str) -> float:
        same = [p for p in PATCHES if (p.stencil, p.boundary, p.shape) == (name, "periodic", SHAPE)]
        return next(at(p).rate for p in same if p.schedule == line)

    assert rate("box9", "patches fuse=2 levels=3") > rate("box9", "patches fuse=2 levels=4")
    assert rate("box9", "patches fuse=2 levels=4") > rate("box9", "patches fuse=2 levels=2")
    assert rate("box9", "patches fuse=2 levels=3") > rate("box9", "patches fuse=3 levels=2")
    assert rate("box49", "patches fuse=1 levels=2") > rate("box49", "patches fuse=1 levels=2 strips=1")
    assert rate("box49", "patches fuse=1 levels=2 strips=1") > rate("box49", "patches fuse=1 levels=3 strips=1")


def test_formula_is_the_number() -> None:
    fp = Footprint(3, 9, boundary="frozen")
    c = cost(fp, (300, 1031), Schedule.parse("patches"), H200)
    assert float(c.formula.xreplace(c.substitution())) == pytest.approx(c.time, rel=1e-12)
    assert c.steps_per_launch == 6 and {"tensor", "rim", "fetch"} <= set(c.terms) == set(c.reasons())


@pytest.mark.parametrize(("name", "line"), [("box9", "stream"), ("heat", "stream"), ("star13", "stream"),
                                            ("box49", str(Schedule.parse("patches fuse=1 levels=2")))])  # fmt: skip
def test_auto(name: str, line: str) -> None:
    """Where a point has many weights the tensor cores do them faster than FMA does."""
    assert str(rank(STENCILS[name], H200, SHAPE, limit=1000).costs[0].schedule).startswith(line)


def test_explains_itself() -> None:
    box = sg.Stencil.from_weights(np.random.default_rng(3).random((3, 3)) / 9)
    text = sg.compile(box, SHAPE, steps=60, device="h200", backend="emulator", schedule="patches").explain()
    assert "120 of 132 columns a warp, 854 rows down; 2 blocks of 4 warps an SM" in text
    assert "bound by tensor" in text and "10 of 6 steps" in text and "may spread farther" in text
    with pytest.raises(ScheduleError, match="fuse=2 levels=3 does 6 time steps at once, but steps=5"):
        sg.compile(box, SHAPE, steps=5, device="h200", backend="emulator", schedule="patches")
