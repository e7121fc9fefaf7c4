"""nvcc takes SpInfer's own product for every GPU that copies asynchronously: no spills, shared memory as the model
counts it, and registers that let as many blocks share an SM as it says."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import sparsegen as sg
from sparsegen.products.smbd import NestedNumbers
from sparsegen.products.smbd_cost import shape_of
from sparsegen.schedule import SpmmSchedule
from tests.nvcc_kit import fit, needs_nvcc
from tests.products_kit import matrix, program
from tests.schedules import device

#: All words, fewest and most sums and operands of a lane; with every order of x and y and every epilogue among them.
LINES: list[tuple[str, str, dict[str, Any]]] = [
    ("cols=16 warps=4 splits=1 buffers=2 groups=2 two_phase=on ldmatrix=on", "row", {"bias": True}),
    ("cols=64 warps=4 splits=2 buffers=2 groups=1 two_phase=on ldmatrix=on", "row", {"residual": True}),
    ("cols=64 warps=2 splits=1 buffers=1 groups=2 two_phase=off ldmatrix=off", "column", {"activation": "gelu"}),
    ("cols=64 warps=4 splits=2 buffers=1 groups=2 two_phase=off ldmatrix=off", "row", {"activation": "gelu"}),
    ("cols=32 warps=1 splits=4 buffers=2 groups=2 two_phase=on ldmatrix=on", "column", {"scale": True}),
    ("cols=8 warps=1 splits=1 buffers=1 groups=1 two_phase=on ldmatrix=off", "row", {}),
]  # fmt: skip


@needs_nvcc
@pytest.mark.parametrize("name", ["h200", "a100", "rtx4090"])
def test_sums_and_operands_stay_in_registers(name: str) -> None:
    profile, funcs, shapes = device(name), [], []
    for i, (words, order, epilogue) in enumerate(LINES):
        w = matrix(256, 512, 0.6, "bf16" if name == "a100" else "f16", format="tca_bme")
        product, schedule = sg.spmm(w, n=64, **epilogue), SpmmSchedule.parse(f"smbd {words}")
        made = program(product, str(schedule), (order, order, 8), profile)
        funcs += [dataclasses.replace(f, symbol=f"k{i}") for f in made.warp.funcs]
        shapes.append(shape_of(NestedNumbers.of(product), schedule, profile))
    fit(funcs, shapes, profile)
