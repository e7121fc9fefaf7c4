"""Schedules of f16 and bf16 stencils through nvcc, with no GPU: no spills, wide accesses, the headers they need."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

import numpy as np
import pytest

from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import compile_cubin
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.boundary import frozen, neumann, periodic
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.search import candidates
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry
from sparsegen.ir import warp as w
from sparsegen.ir.module import Module
from sparsegen.ir.node import walk
from sparsegen.schedule import StencilSchedule
from tests.schedules import device, kernels, lowered, stencil

#: Rows that 16 bytes divide, and rows that they do not.
SHAPES = (1000, 1000), (1000, 1002)
#: (extents, boundary, most steps a pass, how many schedules of each family).
STENCILS = [
    ((3, 3), {0: (neumann, frozen), 1: periodic}, 12, {"direct": 1, "tiled": 3, "stream": 3}),
    ((7, 7), frozen, 2, {"direct": 1, "tiled": 2, "stream": 1}),
    ((1, 5), frozen, 8, {"direct": 1, "tiled": 1, "stream": 2}),
]


def sample(dtype: str, profile: DeviceProfile) -> Iterator[tuple[StencilSchedule, Footprint, int, w.Func]]:
    """Legal schedules of every family that takes 16 bits; their kernels, and the shared memory that they should take.

    Single elements are too narrow for cp.async: where no wide piece fits the rows, a tile is not fetched ahead and
    needs one stage.
    """
    draw = random.Random(f"{dtype} {profile.arch}")
    for extents, boundary, limit, wanted in STENCILS:
        s = stencil(np.random.default_rng(3).uniform(0.1, 1.0, extents), boundary, dtype)  # type: ignore[arg-type]
        fp = Footprint.of(s)
        legal = list(candidates(fp, profile, SHAPES[0], limit))
        assert {one.family for one in legal} == set(wanted)
        for family, n in wanted.items():
            for one in draw.sample([x for x in legal if x.family == family], n):
                shape = draw.choice(SHAPES)
                ring = one if one.family != "tiled" or shape[1] % 8 == 0 else one.but(stages=1)
                program = lowered(s, shape, one, profile=profile)
                for func in kernels(program.warp).values():
                    yield one, fp, geometry(ring, fp).smem_bytes, func


@pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize(("arch", "profile"), [("sm_80", "a100"), ("sm_90a", "h200")])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_legal_schedules_compile_without_spills(dtype: str, arch: str, profile: str) -> None:
    found = [(s, fp, smem, dataclasses.replace(f, symbol=f"{f.symbol}_{i}"))
             for i, (s, fp, smem, f) in enumerate(sample(dtype, device(profile)))]  # fmt: skip
    source = translation_unit(Module("sample", tuple(f for *_, f in found)), title=dtype)
    assert ("cuda_fp16.h" in source, "cuda_bf16.h" in source) == (dtype == "f16", dtype == "bf16")
    used = compile_cubin(source, arch).resources
    for s, fp, smem, func in found:
        r = used[func.symbol]
        assert not r.spills and not r.stack, f"{s}: {r.registers} registers"
        assert r.registers * func.threads * func.min_blocks <= device(profile).regs_sm, f"{s}: {r.registers} registers"
        if "rim" not in func.symbol and not fp.flat:
            assert func.shared_bytes == smem, f"{s}"


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_elements_move_sixteen_bytes_at_a_time(dtype: str) -> None:
    """Eight to shared memory, four or eight from there and to the field; one to the field where rows are odd."""

    def widths(line: str, cols: int) -> dict[str, set[int]]:
        out: dict[str, set[int]] = {"copy": set(), "ld": set(), "st": set()}
        program = lowered(stencil(np.ones((3, 3)), dtype=dtype), (256, cols), line)
        (func,) = kernels(program.warp).values()

        for op in walk(func.body):
            if isinstance(op, w.CpAsync):
                out["copy"].add(op.count)
            elif isinstance(op, w.Ld) and op.buf.space == "shared":
                out["ld"].add(len(op.out))
            elif isinstance(op, w.St) and op.buf.space == "global":
                out["st"].add(len(op.vals))
        return out

    tiled, stream = "tiled tile=16x128 warps=4 stages=2", "stream cols=8 levels=2"
    assert widths(tiled, 512) == {"copy": {8}, "ld": {4}, "st": {4}}
    assert widths(stream, 512) == {"copy": {8}, "ld": {8}, "st": {8}}
    assert widths(tiled, 511) == {"copy": set(), "ld": {4}, "st": {1}}
    assert widths(stream, 511) == {"copy": set(), "ld": {1, 8}, "st": {1}}
