"""stencil2row on three axes and on one through nvcc, with no GPU: no spills at the registers that the family says."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import compile_cubin
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.boundary import dirichlet, frozen, periodic
from sparsegen.cost.search import candidates
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry
from sparsegen.ir.module import Module
from sparsegen.schedule import StencilSchedule
from tests.schedules import device, kernels, lowered, stencil

CUBE, LINE = (96, 100, 1000), (1, 1_000_000)
STAR = np.where(np.abs(np.indices((3, 3, 3)) - 1).sum(axis=0) <= 1, 0.25, 0.0)
SAMPLE = 14


def sample(found: list[StencilSchedule], fp: Footprint) -> list[StencilSchedule]:
    """Schedules of all mma shapes, fusions and numbers of products a warp; a few of them."""
    random.Random(fp.k).shuffle(found)
    kinds = {(s.mma, s.fuse, geometry(s, fp).tiles_per_warp): s for s in found}
    return list(kinds.values())[:SAMPLE]


@pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize(("arch", "profile"), [("sm_80", "a100"), ("sm_90a", "h200")])
@pytest.mark.parametrize(
    ("weights", "shape"),
    [(STAR, CUBE), (np.ones((3, 3, 3)), CUBE), (np.ones((1, 3)), LINE)],
    ids=["star", "box", "row"],
)
def test_no_spills(arch: str, profile: str, weights: Any, shape: tuple[int, ...]) -> None:
    target, funcs, lines = device(profile), [], dict[str, str]()
    for boundary in (periodic, frozen, dirichlet(1.0)):
        s = stencil(weights, boundary)
        fp = Footprint.of(s)
        found = [x for x in candidates(fp, target, shape) if x.family == "stencil2row"]
        for line in sample(found, fp)[: SAMPLE if boundary == periodic else 2]:
            func = kernels(lowered(s, shape, line, profile=target).warp)["stencil"]
            name = f"k{len(funcs)}"
            funcs.append(replace(func, symbol=name))
            lines[name] = f"{line} {boundary}"
    used = compile_cubin(translation_unit(Module("sample", tuple(funcs)), title=arch), arch).resources
    assert not [f"{lines[n]}: {r.registers} registers, {r.spill_stores} bytes spilled" for n, r in used.items()
                if r.spills or r.stack]  # fmt: skip
