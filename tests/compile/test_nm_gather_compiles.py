"""nvcc takes products that gather rows of x: sums in registers while a product is under way, no spills, shared memory
as the model counts it, and registers that let as many blocks share an SM as it says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import compile_cubin
from sparsegen.ir.module import Module
from sparsegen.ir.numbers.groups import COLS
from sparsegen.products.gather_cost import shape_of
from sparsegen.products.nm import NmNumbers
from sparsegen.schedule import SpmmSchedule
from tests.nvcc_kit import needs_nvcc
from tests.products_kit import DTYPES, program
from tests.schedules import device

#: So many rows that an SM has as many blocks as the model lets it have.
ROWS, COLUMNS = 1 << 15, 2048


@needs_nvcc
@pytest.mark.parametrize(("rows", "dtype"), [(64, "f16"), (128, "bf16")])
def test_sums_stay_in_registers(rows: int, dtype: str) -> None:
    """Of every width, with every epilogue among them; an x by columns is turned by a kernel of its own."""
    profile, funcs, shapes = device("h200"), [], []
    w = sg.sparse(np.zeros((ROWS, COLUMNS), DTYPES[dtype]), format="nm", n=8, m=32, vector=rows)
    for i, cols in enumerate(COLS):
        product = sg.spmm(w, n=cols * 4, bias=i % 2 == 0, residual=i == 3, activation="gelu" if i == 4 else None)
        schedule = SpmmSchedule.parse(f"nm_gather rows={rows} cols={cols} stages=3")
        made = program(product, str(schedule), ("column", "column", 8) if i == 1 else ("row", "row", 8), profile)
        funcs += [dataclasses.replace(f, symbol=f"k{i}_{n}") for n, f in enumerate(made.warp.funcs)]
        shapes += [*([None] if i == 1 else []), shape_of(NmNumbers.of(product), schedule, profile)]
    done = compile_cubin(translation_unit(Module("sample", tuple(funcs)), title="sums"), "sm_90a")
    assert "serialized" not in done.log and "warning" not in done.log
    for func, g in zip(funcs, shapes, strict=True):
        use = done.resources[func.symbol]
        print(func.symbol, use.registers, g)
        assert not max(use.spill_stores, use.spill_loads, use.stack, use.static_shared), func.symbol
        if g is not None:
            assert func.shared_bytes == g.shared and func.min_blocks == g.resident, func.symbol
            assert use.registers * func.threads * g.resident <= profile.regs_sm, func.symbol
