"""A covering sample of the legal schedules through nvcc, with no GPU: no spills, no stack, computed shared memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from itertools import cycle

import numpy as np
import pytest

from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.search import candidates
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry
from sparsegen.ir import warp as w
from sparsegen.schedule import StencilSchedule
from sparsegen.sizes import MAX_FUSE
from tests.nvcc_kit import covering, needs_nvcc, used
from tests.schedules import device, kernels, lowered, stencil

SHAPE = (1000, 998)
#: Architectures and the profile whose legal schedules are compiled for it; m16n8k* exist on sm_90 only.
ARCHS = {"sm_80": "a100", "sm_89": "rtx4090", "sm_90a": "h200"}
#: (edge, dtype, may fuse): what stencils the sample is taken for.
STENCILS = [(3, "f64", True), (3, "f32", True), (7, "f64", False)]
BOUNDARIES: list[BoundarySpec] = [periodic, dirichlet(1.0), frozen, {0: (neumann, frozen), 1: periodic}]

Item = tuple[str, int, str, StencilSchedule, w.Func]


def traits(s: StencilSchedule, k: int, full: bool) -> Iterator[tuple[object, ...]]:
    """What must occur in the sample: choices, and pairs of choices that meet in one loop or one register budget."""
    if s.family == "direct":
        yield from ((s.family, s.block), (s.family, s.fuse))
        return
    if s.family == "stream":
        yield from (("levels", s.levels), ("cols", s.cols, s.unroll), ("fuse", s.fuse))
        return
    if s.family == "patches":
        yield from ((s.mma, "levels", s.levels), (s.mma, "strips", s.strips), ("fuse", s.fuse))
        return
    assert s.tile is not None
    if s.family == "tiled" and not full:
        yield from (("stages", s.stages), ("rows", s.tile[0]), ("cols", s.tile[1]))
        return
    if s.family == "tiled":
        yield from (("stages", s.stages), ("fuse", s.fuse), ("rows", s.tile[0], s.warps), ("cols", s.tile[1]))
        return
    per_warp = geometry(s, Footprint(k)).tiles_per_warp
    if not full:
        yield from ((s.mma, per_warp), ("stages", s.stages))
        return
    yield from (
        (s.mma, "fuse", s.fuse), (s.mma, "stages", s.stages), (s.mma, "products", per_warp),
        ("lut", s.lut, s.dirty), ("dirty", s.dirty, s.stages), ("warps", s.warps, s.fuse),
        ("transform", s.transform), ("pad", s.pad),
    )  # fmt: skip


def sample(k: int, dtype: str, profile: DeviceProfile, fuse: int) -> list[StencilSchedule]:
    """Few schedules that show every trait that a legal one has.

    All pairs of choices where instructions differ: sm_89 has those of sm_80, and budgets of its own.
    """
    legal = list(candidates(Footprint(k, dtype=dtype), profile, SHAPE, fuse, ablation=True))
    random.Random(k).shuffle(legal)
    full = (k, dtype) == STENCILS[0][:2] and profile.arch != "sm_89"
    legal = legal if full else legal[:60]
    return covering(legal, lambda s: [(s.family, *x) for x in traits(s, k, full)])


@cache
def items(arch: str) -> tuple[Item, ...]:
    """(name, edge, dtype, schedule, kernel) of every kernel of the sample."""
    profile = device(ARCHS[arch])
    return tuple(_items(profile))


def _items(profile: DeviceProfile) -> Iterator[Item]:
    boundaries = cycle(BOUNDARIES)
    for k, dtype, fuses in STENCILS:
        weights = np.random.default_rng(k).uniform(0.1, 1.0, (k, k))
        for i, s in enumerate(sample(k, dtype, profile, MAX_FUSE if fuses else 1)):
            program = lowered(stencil(weights, next(boundaries), dtype), SHAPE, s, profile=profile)
            for func in kernels(program.warp).values():
                name = f"k{k}_{dtype}_{i}_{func.symbol}"
                yield name, k, dtype, s, func


@needs_nvcc
@pytest.mark.parametrize("arch", ARCHS)
def test_legal_schedules_compile_without_spills(arch: str) -> None:
    profile = device(ARCHS[arch])
    everything = items(arch)
    assert len(everything) > 20
    wrong = []
    for (_, k, dtype, s, func), r in zip(everything, used([item[-1] for item in everything], arch), strict=True):
        if r.spills or r.stack:
            wrong.append(f"k={k} {dtype} {s} ({func.symbol}): {r.registers} registers, {r.spill_stores} bytes spilled, "
                         f"{r.stack} bytes of stack")  # fmt: skip
        if r.static_shared:
            wrong.append(f"{s}: {r.static_shared} bytes of static shared memory")
        if r.registers * func.threads * func.min_blocks > profile.regs_sm:
            wrong.append(f"{s}: {r.registers} registers, {func.min_blocks} blocks of {func.threads} do not fit")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("arch", ARCHS)
def test_shared_memory_is_as_computed(arch: str) -> None:
    """What the schedule's geometry says, the cost model counts with and the launch asks for is one number."""
    profile = device(ARCHS[arch])
    for name, k, dtype, s, func in items(arch):
        assert func.shared_bytes <= profile.smem_block, name
        if name.endswith("_stencil") and s.transform != "explicit":
            assert func.shared_bytes == geometry(s, Footprint(k, dtype=dtype)).smem_bytes, s
