"""nvcc takes both kernels of a product in Blocked-ELL and compressed rows without spills, tiles as the model counts
them, for x and y in every order."""

from __future__ import annotations

import dataclasses

import pytest

import sparsegen as sg
from sparsegen.families.spmm.blocked_ell import FAMILIES, schedule_of
from sparsegen.ir.warp import Func
from sparsegen.problems.product import SpmmProblem
from sparsegen.products.blocked_ell_cost import TILES
from sparsegen.schedule import SpmmSchedule
from tests.mixed_kit import matrix
from tests.nvcc_kit import fit, needs_nvcc
from tests.products_kit import program
from tests.schedules import device

#: Of each GPU the tile, and words: most sums and columns, one warp, shared rows; teams with most rows on their way.
LINES = {
    "h200": [(32, "cols=128 warps=1x4 stages=4 team=16x1 columns=8 unroll=8 cut=64"),
             (64, "cols=128 warps=2x4 stages=3 team=8x4 columns=16 unroll=4 cut=32")],
    "a100": [(32, "cols=256 warps=2x4 stages=3 team=32x1 columns=8 unroll=4 cut=2048"),
             (16, "cols=64 warps=1x1 stages=4 team=4x8 columns=4 unroll=8 cut=64")],
}  # fmt: skip


@needs_nvcc
@pytest.mark.parametrize("name", LINES)
def test_sums_stay_in_registers(name: str) -> None:
    """Also those that the second kernel begins with."""
    profile, funcs, shapes = device(name), list[Func](), []
    for i, (tile, words) in enumerate(LINES[name]):
        w = matrix(4096, 512, tile, ("f16", "bf16")[i], method="none", delta=0.3, long=1, format="blocked_ell")
        product = sg.spmm(w, n=1024, bias=i == 0, residual=i == 1, activation="gelu" if i else None)
        schedule = SpmmSchedule.parse(f"blocked_ell {words}")
        made = program(product, str(schedule), ("row", ("row", "column")[i], 8), profile)
        assert w.filling and len(made.warp.funcs) == 2
        funcs += [dataclasses.replace(f, symbol=f"k{i}_{n}") for n, f in enumerate(made.warp.funcs)]
        tiles = SpmmProblem(product).facts.tiles
        shapes += [FAMILIES[TILES].shape(tiles, schedule_of(TILES, schedule), profile), None]
    fit(funcs, shapes, profile)
