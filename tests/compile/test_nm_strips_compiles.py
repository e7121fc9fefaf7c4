"""nvcc takes products of strips for every GPU that has them: no spills, shared memory as the model counts it, and
registers that let as many blocks share an SM as it says."""

from __future__ import annotations

import dataclasses

import pytest

import sparsegen as sg
from sparsegen.products.nm import NmNumbers
from sparsegen.products.strips_cost import shape_of
from sparsegen.schedule import SpmmSchedule
from tests.nm_kit import matrix
from tests.nvcc_kit import fit, needs_nvcc
from tests.products_kit import program
from tests.schedules import device

#: The widest of each GPU, of all strips, and warps side by side.
LINES = {
    "h200": ["strip=32 warps=8x1 cols=128 kept=32 stages=4", "strip=32 warps=8x2 cols=128 kept=32 stages=4",
             "strip=64 warps=4x2 cols=128 kept=32 stages=4", "strip=16 warps=16x1 cols=128 kept=16 stages=4"],
    "a100": ["strip=32 warps=8x1 cols=128 kept=32 stages=3", "strip=64 warps=2x2 cols=64 kept=16 stages=3"],
    "rtx4090": ["strip=32 warps=4x1 cols=128 kept=16 stages=2", "strip=16 warps=4x2 cols=64 kept=32 stages=3"],
}  # fmt: skip


@needs_nvcc
@pytest.mark.parametrize("name", LINES)
def test_sums_stay_in_registers(name: str) -> None:
    """With every epilogue among them; an x by columns is turned by a kernel of its own."""
    profile, funcs, shapes = device(name), [], []
    w = matrix(4096, 1024, 8, 32, (16, 1), "bf16" if name == "a100" else "f16")
    for i, words in enumerate(LINES[name]):
        product = sg.spmm(w, n=4096, bias=i == 0, residual=i == 1, activation="gelu" if i == 2 else None)
        schedule = SpmmSchedule.parse(f"nm_strips {words}")
        made = program(product, str(schedule), ("column", "row", 1) if i == 1 else ("row", "row", 8), profile)
        funcs += [dataclasses.replace(f, symbol=f"k{i}_{n}") for n, f in enumerate(made.warp.funcs)]
        shapes += [*([None] if i == 1 else []), shape_of(NmNumbers.of(product), schedule, profile)]
    fit(funcs, shapes, profile)
