"""nvcc takes products by outer products: no spills, shared memory as the model counts it, and registers that let as
many blocks share an SM as it says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import compile_cubin
from sparsegen.ir.module import Module
from sparsegen.products.nm import NmNumbers
from sparsegen.products.outer_cost import shape_of
from sparsegen.schedule import SpmmSchedule
from tests.nvcc_kit import needs_nvcc
from tests.products_kit import program
from tests.schedules import device

#: Tiles of lanes of each width, deep and not, the largest blocks among them.
TILES = [(256, 128, 16, 64, 3), (128, 128, 16, 32, 3), (128, 128, 8, 32, 4), (256, 64, 8, 32, 3), (32, 64, 4, 64, 3)]
#: So many rows that an SM has as many blocks as the model lets it have.
ROWS, COLUMNS = 1 << 15, 512


@needs_nvcc
@pytest.mark.parametrize(("name", "arch"), [("h200", "sm_90a"), ("a100", "sm_80")])
def test_sums_stay_in_registers(name: str, arch: str) -> None:
    """With every epilogue among them, lists of all sizes, and x and y in both orders."""
    profile, funcs, shapes = device(name), [], []
    for i, (rows, cols, each, deep, stages) in enumerate(TILES):
        w = sg.sparse(
            np.zeros((ROWS, COLUMNS), "f4"), format="nm", n=(8, 3)[i % 2], m=(32, 10)[i % 2], vector=8 << i % 3
        )
        product = sg.spmm(w, n=cols * 4, bias=i % 2 == 0, residual=i == 3, activation="gelu" if i == 4 else None)
        schedule = SpmmSchedule.parse(f"nm_outer rows={rows} cols={cols} each={each} deep={deep} stages={stages}")
        made = program(product, str(schedule), ("row", "column" if i == 1 else "row", 4), profile)
        funcs += [dataclasses.replace(f, symbol=f"k{i}") for f in made.warp.funcs]
        shapes.append(shape_of(NmNumbers.of(product), schedule, profile))
    done = compile_cubin(translation_unit(Module("sample", tuple(funcs)), title="sums"), arch)
    assert "warning" not in done.log
    for func, g in zip(funcs, shapes, strict=True):
        use = done.resources[func.symbol]
        print(func.symbol, use.registers, g)
        assert (use.spill_stores, use.spill_loads, use.stack, use.static_shared) == (0, 0, 0, 0), func.symbol
        assert func.shared_bytes == g.shared and func.min_blocks == g.resident, func.symbol
        assert use.registers * func.threads * g.resident <= profile.regs_sm, func.symbol
