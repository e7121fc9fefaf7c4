"""nvcc takes products with N:M matrices: no spills where blocks share an SM, shared memory as the model counts it."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.products.nm import NmNumbers
from sparsegen.schedule import SpmmSchedule
from tests.nvcc_kit import needs_nvcc, used
from tests.products_kit import DTYPES, program
from tests.schedules import device

#: Lines, columns, n of m, types and loads of x; so many rows that an SM has as many blocks as the model lets it have.
CASES = [
    ("nm_lanes cols=1 warps=4x4", 1, (16, 32), "f16", 1),
    ("nm_lanes cols=8 warps=1x8", 11, (8, 32), "bf16", 1),
    ("nm_lanes cols=2 warps=2x4", 2, (3, 10), "f32", 2),
    ("nm_lanes cols=4 warps=1x8", 4, (48, 64), "f32", 4),
    ("nm_windows cols=1 warps=8", 1, (8, 32), "f16", 1),
    ("nm_windows cols=4 warps=4", 11, (16, 32), "bf16", 1),
    ("nm_windows cols=2 warps=8", 2, (3, 10), "f32", 2),
    ("nm_windows cols=1 warps=8 layout=windows", 1, (48, 64), "f32", 1),
]
ROWS, COLUMNS = 1 << 15, 512


@needs_nvcc
@pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
@pytest.mark.parametrize(("arch", "name", "cases"), [("sm_80", "a100", CASES[::3]), ("sm_90a", "h200", CASES)])
def test_no_spills(arch: str, name: str, cases: list[tuple[str, int, tuple[int, int], str, int]]) -> None:
    profile, funcs, shapes = device(name), [], []
    for line, n, (of, m), dtype, vec in cases:
        w = sg.sparse(np.zeros((ROWS, COLUMNS), DTYPES[dtype]), format="nm", n=of, m=m)
        product = sg.spmm(w, n=n, bias=True, activation="gelu" if n == 11 else None)
        funcs += program(product, line, ("row", "row", vec), profile).warp.funcs
        s = SpmmSchedule.parse(line)
        shapes.append(s.rules.shape(NmNumbers.of(product), s, profile))
    for case, func, g, use in zip(cases, funcs, shapes, used(funcs, arch), strict=True):
        print(case, use.registers, g)
        assert use.spills == use.stack == use.static_shared == 0, case
        assert func.shared_offsets()[1] == g.shared and func.min_blocks == g.resident > 1, case
        assert use.registers * func.threads * g.resident <= profile.regs_sm, case
