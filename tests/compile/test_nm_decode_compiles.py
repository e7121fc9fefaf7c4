"""nvcc takes products that decode W for warpgroups: sums in registers while a product is under way, no spills, shared
memory as the model counts it, and registers that let as many blocks share an SM as it says."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import compile_cubin
from sparsegen.ir.module import Module
from sparsegen.products.decode_cost import shape_of
from sparsegen.products.nm import NmNumbers
from sparsegen.schedule import SpmmSchedule
from tests.nvcc_kit import needs_nvcc
from tests.products_kit import DTYPES, program
from tests.schedules import device

#: So many rows that an SM has as many blocks as the model lets it have.
ROWS, COLUMNS = 1 << 15, 1024
#: Columns of x of a block, slots and teams.
WIDTHS = ((16, 4, 2), (32, 4, 2), (64, 4, 1), (128, 3, 2), (256, 3, 1))


@needs_nvcc
@pytest.mark.parametrize(("rows", "pattern", "dtype"), [
    (64, (16, 32, 1), "f16"), (128, (4, 32, (4, 4)), "bf16"), (128, (63, 64, 1), "f16"),
])  # fmt: skip
def test_sums_stay_in_registers(rows: int, pattern: Any, dtype: str) -> None:
    """Of every width, with every epilogue among them, and an x by columns."""
    profile, funcs, shapes = device("h200"), [], []
    n, m, vector = pattern
    w = sg.sparse(np.zeros((ROWS, COLUMNS), DTYPES[dtype]), format="nm", n=n, m=m, vector=vector)
    for i, (cols, stages, teams) in enumerate(WIDTHS):
        product = sg.spmm(w, n=cols * 4, bias=i % 2 == 0, residual=i == 3, activation="silu" if i == 4 else None)
        schedule = SpmmSchedule.parse(f"nm_decode rows={rows} cols={cols} stages={stages} teams={teams}")
        made = program(product, str(schedule), ("column" if i == 1 else "row", "row", 8), profile)
        funcs += [dataclasses.replace(f, symbol=f"k{i}") for f in made.warp.funcs]
        shapes.append(shape_of(NmNumbers.of(product), schedule, profile))
    done = compile_cubin(translation_unit(Module("sample", tuple(funcs)), title="sums"), "sm_90a")
    assert "serialized" not in done.log and "warning" not in done.log
    for func, g in zip(funcs, shapes, strict=True):
        use = done.resources[func.symbol]
        print(func.symbol, use.registers, g)
        assert not max(use.spill_stores, use.spill_loads, use.stack) and use.static_shared == 0, func.symbol
        assert func.shared_bytes == g.shared and func.min_blocks == g.resident, func.symbol
        assert use.registers * func.threads * g.resident <= profile.regs_sm, func.symbol
