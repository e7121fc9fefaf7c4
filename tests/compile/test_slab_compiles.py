"""nvcc takes the kernels of ``slab`` that the model calls legal without spills: those of wide boxes and stars, too, of
which it loads many rows before it sums them."""

from __future__ import annotations

import numpy as np
import pytest

from sparsegen.boundary import BoundarySpec, dirichlet, periodic
from sparsegen.cost.search import candidates
from sparsegen.dsl.stencil import Stencil
from sparsegen.footprint import Footprint
from sparsegen.sizes import ITEMSIZE
from tests.nvcc_kit import needs_nvcc, used
from tests.schedules import device, kernels, lowered, stencil

#: Rows that 16 bytes do not divide in f32, so that the ends of rows are copied cell by cell.
SHAPE = (64, 98, 98)
SIDES = dirichlet(0.5)


def wide(radius: int, box: bool, dtype: str, boundary: BoundarySpec) -> Stencil:
    """A dense box, or the star in it."""
    far = np.abs(np.indices((2 * radius + 1,) * 3) - radius)
    weights = np.random.default_rng(3).uniform(0.1, 1.0, far.shape[1:])
    return stencil(weights if box else weights * ((far > 0).sum(0) <= 1), boundary, dtype)


@needs_nvcc
@pytest.mark.parametrize(("radius", "box"), [(2, True), (3, True), (4, False)], ids=["box-2", "box-3", "star-4"])
@pytest.mark.parametrize(
    ("dtype", "boundary"),
    [("f64", periodic), ("f64", SIDES), ("f32", SIDES)],
    ids=["periodic-f64", "dirichlet-f64", "dirichlet-f32"],
)
def test_wide_stencils_do_not_spill(radius: int, box: bool, dtype: str, boundary: BoundarySpec) -> None:
    """One kernel of each number of rows a thread, and of each number of threads above each other."""
    s, profile = wide(radius, box, dtype, boundary), device("h200")
    legal = [c for c in candidates(Footprint.of(s), profile, SHAPE, 1) if c.family == "slab" and c.stages == 3]
    found = list({(c.lines, c.warps * ITEMSIZE[s.dtype] / c.cols): c for c in legal}.values())
    assert found and any(c.lines > 1 for c in found)
    funcs = [next(iter(kernels(lowered(s, SHAPE, c, profile=profile).warp).values())) for c in found]
    for c, use in zip(found, used(funcs, profile.arch), strict=True):
        assert not max(use.spill_stores, use.spill_loads, use.stack), f"{c}: {use.registers} registers"
