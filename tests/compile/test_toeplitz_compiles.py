"""Kernels of toeplitz through nvcc, with no GPU: no spills at the registers that the family says, computed memory."""

from __future__ import annotations

import numpy as np
import pytest

from sparsegen.boundary import periodic
from sparsegen.families.toeplitz import PRODUCTS
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry, legal
from sparsegen.ir import warp as w
from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import StencilSchedule
from tests.nvcc_kit import needs_nvcc, used
from tests.schedules import device, kernels, lowered, stencil

SHAPE = (1, 10_000_000)
MMA = {"sm_80": ["f64.m8n8k4"], "sm_90a": ["f64.m8n8k4", "f64.m16n8k4", "f64.m16n8k8"]}


@needs_nvcc
@pytest.mark.parametrize(("arch", "profile"), [("sm_80", "a100"), ("sm_90a", "h200")])
def test_no_spills(arch: str, profile: str) -> None:
    s, target = stencil(np.array([[0.25, 0.5, 0.25]]), periodic), device(profile)
    fp, funcs, lines = Footprint.of(s), list[w.Func](), list[StencilSchedule]()
    for mma in MMA[arch]:
        for products in PRODUCTS:
            for fuse, warps in ((3, 1), (3, 4), (16, 4), (32, 1), (48, 4), (64, 1), (64, 4)):
                line = StencilSchedule("toeplitz", mma=mma, fuse=fuse, products=products, warps=warps)
                try:
                    legal(line, fp, target)
                except ScheduleError:  # more registers than there are
                    continue
                func = kernels(lowered(s, SHAPE, line, profile=target).warp)["stencil"]
                assert func.shared_bytes == geometry(line, fp).smem_bytes, line
                funcs.append(func)
                lines.append(line)
    assert len(funcs) >= 7 * len(MMA[arch])
    assert not [f"{line}: {r.registers} registers, {r.spill_stores} bytes spilled"
                for line, r in zip(lines, used(funcs, arch), strict=True) if r.spills or r.stack]  # fmt: skip
