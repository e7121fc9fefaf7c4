"""stencil2row on three axes and on one through nvcc, with no GPU: no spills at the registers that the family says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sparsegen.boundary import dirichlet, frozen, periodic
from sparsegen.cost.search import candidates
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry
from sparsegen.ir import warp as w
from sparsegen.schedule import StencilSchedule
from tests.nvcc_kit import covering, needs_nvcc, used
from tests.schedules import device, kernels, lowered, stencil

CUBE, LINE = (96, 100, 1000), (1, 1_000_000)
STAR = np.where(np.abs(np.indices((3, 3, 3)) - 1).sum(axis=0) <= 1, 0.25, 0.0)
BOX = np.ones((3, 3, 3))


def traits(s: StencilSchedule, fp: Footprint) -> Iterator[tuple[object, ...]]:
    """Each mma shape, fusion and number of products a warp; of boxes every shape at its deepest, and with the most."""
    products = geometry(s, fp).tiles_per_warp
    yield from ((s.mma,), ("fuse", s.fuse), ("products", products))
    if fp.points == BOX.size:
        yield from ((s.mma, "deepest", s.fuse == 3), (s.mma, "most", products == 8))


@needs_nvcc
@pytest.mark.parametrize(("arch", "profile"), [("sm_80", "a100"), ("sm_90a", "h200")])
@pytest.mark.parametrize(
    ("weights", "shape"),
    [(STAR, CUBE), (BOX, CUBE), (np.ones((1, 3)), LINE)],
    ids=["star", "box", "row"],
)
def test_no_spills(arch: str, profile: str, weights: Any, shape: tuple[int, ...]) -> None:
    target, funcs, lines = device(profile), list[w.Func](), list[str]()
    for boundary in (periodic, frozen, dirichlet(1.0)):
        s = stencil(weights, boundary)
        fp = Footprint.of(s)
        found = [x for x in candidates(fp, target, shape) if x.family == "stencil2row"]
        random.Random(fp.k).shuffle(found)
        for line in covering(found, lambda s, fp=fp: traits(s, fp))[: None if boundary == periodic else 1]:  # type: ignore[misc]
            funcs.append(kernels(lowered(s, shape, line, profile=target).warp)["stencil"])
            lines.append(f"{line} {boundary}")
    assert not [f"{line}: {r.registers} registers, {r.spill_stores} bytes spilled"
                for line, r in zip(lines, used(funcs, arch), strict=True) if r.spills or r.stack]  # fmt: skip


@needs_nvcc
@pytest.mark.parametrize(("arch", "profile"), [("sm_80", "a100"), ("sm_90a", "h200")])
def test_the_explicit_form_on_three_axes(arch: str, profile: str) -> None:
    """Both of its kernels: products of one plane and of many, points of small planes beside them."""
    target, funcs = device(profile), list[w.Func]()
    for weights in (STAR, BOX):
        for fuse, mma in ((1, "none"), (3, "none"), (1, "f64.m8n8k4"), (3, "f64.m8n8k4")):
            line = f"stencil2row mma={mma} fuse={fuse} lut=off transform=explicit"
            funcs += kernels(lowered(stencil(weights), CUBE, line, profile=target).warp).values()
    assert len(funcs) == 16 and not [r for r in used(funcs, arch) if r.spills or r.stack]
