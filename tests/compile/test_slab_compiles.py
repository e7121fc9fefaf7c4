"""nvcc takes the kernels of ``slab`` that the model calls legal without spills: those of wide boxes and stars, too, of
which it loads many rows before it sums them."""

from __future__ import annotations

import random

import pytest

from sparsegen.bench.regret import weights
from sparsegen.boundary import BoundarySpec, dirichlet, periodic
from sparsegen.cost.search import candidates
from sparsegen.footprint import Footprint
from sparsegen.sizes import ITEMSIZE
from tests.nvcc_kit import needs_nvcc, used
from tests.schedules import device, kernels, lowered, stencil

#: Rows that 16 bytes do not divide in f32, so that the ends of rows are copied cell by cell.
SHAPE = (64, 98, 98)
SIDES = dirichlet(0.5)


@needs_nvcc
@pytest.mark.parametrize(("kind", "radius"), [("box", 2), ("box", 3), ("star", 4)])
@pytest.mark.parametrize(
    ("dtype", "boundary"),
    [("f64", periodic), ("f64", SIDES), ("f32", SIDES)],
    ids=["periodic-f64", "dirichlet-f64", "dirichlet-f32"],
)
def test_wide_stencils_do_not_spill(kind: str, radius: int, dtype: str, boundary: BoundarySpec) -> None:
    """One kernel of each number of rows a thread, and of each number of threads above each other."""
    s, profile = stencil(weights(random.Random(3), kind, 3, radius), boundary, dtype), device("h200")
    legal = [c for c in candidates(Footprint.of(s), profile, SHAPE, 1) if c.family == "slab" and c.stages == 3]
    found = list({(c.lines, c.warps * ITEMSIZE[s.dtype] / c.cols): c for c in legal}.values())
    assert found and any(c.lines > 1 for c in found)
    funcs = [next(iter(kernels(lowered(s, SHAPE, c, profile=profile).warp).values())) for c in found]
    for c, use in zip(found, used(funcs, profile.arch), strict=True):
        assert not max(use.spill_stores, use.spill_loads, use.stack), f"{c}: {use.registers} registers"
