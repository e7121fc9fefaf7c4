"""nvcc takes bitmap tiles whose warps share a ring: no spills, shared memory as the model counts it, and registers that
let as many blocks share an SM as it says."""

from __future__ import annotations

import dataclasses
from typing import Any

import sparsegen as sg
from sparsegen.products.bitmap_block import shape_of
from sparsegen.products.product import BitmapNumbers
from sparsegen.schedule import SpmmSchedule
from tests.nvcc_kit import fit, needs_nvcc
from tests.products_kit import matrix, program
from tests.schedules import device

#: The schedules of figures: as many warps as registers let run, sets of them, warpgroups; of every order and epilogue.
LINES: list[tuple[str, int, str, dict[str, Any]]] = [
    ("mma=f16.m16n8k16 cols=16 warps=14x2 rows=2 stages=6 splits=2", 16, "row", {"bias": True}),
    ("mma=f16.m16n8k16 cols=8 warps=7x4 rows=2 stages=8 splits=2", 8, "row", {"activation": "gelu"}),
    ("mma=f16.m16n8k16 cols=32 warps=11x2 rows=1 stages=12 splits=2", 32, "column", {"residual": True}),
    ("mma=f16.m16n8k16 cols=64 warps=16x1 rows=1 stages=9 splits=1", 64, "column", {"scale": True}),
    ("mma=wgmma cols=64 warps=28x1 rows=1 stages=6 splits=2", 64, "row", {"bias": True}),
    ("mma=wgmma cols=128 warps=16x1 rows=1 stages=7 splits=1", 128, "row", {}),
]


@needs_nvcc
def test_sums_and_operands_stay_in_registers() -> None:
    profile, funcs, shapes = device("h200"), [], []
    for i, (words, n, order, epilogue) in enumerate(LINES):
        product = sg.spmm(matrix(1792, 2048, 0.6), n=n, **epilogue)
        schedule = SpmmSchedule.parse(f"bitmap_block {words}")
        made = program(product, str(schedule), (order, order, 8), profile)
        funcs += [dataclasses.replace(f, symbol=f"k{i}") for f in made.warp.funcs if f.threads == schedule.threads]
        shapes.append(shape_of(BitmapNumbers.of(product), schedule, profile))
    fit(funcs, shapes, profile)
