"""Kernels of toeplitz through nvcc, with no GPU: no spills at the registers that the family says, computed memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import compile_cubin
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.boundary import periodic
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry, legal
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.module import Module
from sparsegen.schedule import PRODUCTS, StencilSchedule
from tests.schedules import device, kernels, lowered, stencil

SHAPE = (1, 10_000_000)
MMA = {"sm_80": ["f64.m8n8k4"], "sm_90a": ["f64.m8n8k4", "f64.m16n8k4", "f64.m16n8k8"]}


@pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize(("arch", "profile"), [("sm_80", "a100"), ("sm_90a", "h200")])
def test_no_spills(arch: str, profile: str) -> None:
    s, target = stencil(np.array([[0.25, 0.5, 0.25]]), periodic), device(profile)
    fp, funcs, lines = Footprint.of(s), [], {}
    for mma in MMA[arch]:
        for products in PRODUCTS:
            for fuse in (3, 16, 32, 48, 64):
                for warps in (1, 4):
                    line = StencilSchedule("toeplitz", mma=mma, fuse=fuse, products=products, warps=warps)
                    try:
                        legal(line, fp, target)
                    except ScheduleError:  # more registers than there are
                        continue
                    func = kernels(lowered(s, SHAPE, line, profile=target).warp)["stencil"]
                    assert func.shared_bytes == geometry(line, fp).smem_bytes, line
                    name = f"k{len(funcs)}"
                    funcs.append(replace(func, symbol=name))
                    lines[name] = line
    assert len(funcs) >= 10 * len(MMA[arch])
    used = compile_cubin(translation_unit(Module("sample", tuple(funcs)), title=arch), arch).resources
    assert not [f"{lines[n]}: {r.registers} registers, {r.spill_stores} bytes spilled" for n, r in used.items()
                if r.spills or r.stack]  # fmt: skip
