"""nvcc takes products against strips of x that stay for every GPU that has them: no spills, shared memory as the model
counts it, and registers that let as many blocks share an SM as it says."""

from __future__ import annotations

import dataclasses

import pytest

import sparsegen as sg
from sparsegen.products.csr_strip_cost import shape_of
from sparsegen.products.ragged import Ragged
from sparsegen.schedule import SpmmSchedule
from tests.csr_kit import NUMPY, ragged
from tests.nvcc_kit import fit, needs_nvcc
from tests.products_kit import program
from tests.schedules import device

#: Of each GPU the type and the words: most threads, most entries a turn, several groups, two blocks an SM.
LINES = {
    "h200": [("f32", "wide=128 lists=33 warps=32 groups=1 unroll=4"),
             ("f16", "wide=128 lists=20 warps=16 groups=1 unroll=8"),
             ("f32", "wide=64 lists=33 warps=16 groups=4 unroll=8"),
             ("bf16", "wide=32 lists=40 warps=32 groups=2 unroll=4"),
             ("f64", "wide=64 lists=33 warps=16 groups=2 unroll=8")],
    "a100": [("f32", "wide=128 lists=33 warps=32 groups=1 unroll=4"),
             ("f16", "wide=64 lists=20 warps=16 groups=2 unroll=8"),
             ("f64", "wide=128 lists=33 warps=32 groups=1 unroll=4")],
    "rtx4090": [("f32", "wide=64 lists=16 warps=16 groups=2 unroll=8"),
                ("bf16", "wide=32 lists=9 warps=8 groups=8 unroll=2")],
}  # fmt: skip


@needs_nvcc
@pytest.mark.parametrize("name", LINES)
def test_sums_stay_in_registers(name: str) -> None:
    """With every epilogue among them, and columns of x that are no whole pieces."""
    profile, funcs, shapes = device(name), [], []
    for i, (dtype, words) in enumerate(LINES[name]):
        w = sg.sparse(ragged(2048, 512, 40, full=2).toarray().astype(NUMPY[dtype]), format="csr")
        odd = i == 1 and name != "h200"
        how = {"bias": i == 0, "residual": i == 1, "activation": "gelu" if i == 2 else None}
        product = sg.spmm(w, n=509 if odd else 512, **how)
        schedule = SpmmSchedule.parse(f"csr_strip {words}")
        made = program(product, str(schedule), ("row", "row", 1 if odd else 16 // NUMPY[dtype].itemsize), profile)
        funcs += [dataclasses.replace(f, symbol=f"k{i}_{n}") for n, f in enumerate(made.warp.funcs)]
        shapes += [*([None] * odd), shape_of(Ragged.of(product), schedule, profile)]
    fit(funcs, shapes, profile)


@needs_nvcc
@pytest.mark.parametrize("name", ["h200", "a100"])
def test_batches(name: str) -> None:
    """Matrices one behind the other: rows of x gathered out of all of them, or first written side by side."""
    profile, funcs = device(name), []
    w = sg.sparse(ragged(2048, 512, 40, full=2).toarray().astype("f2"), format="csr")
    product = sg.spmm(w, n=16, batch=8, bias=True, residual=True)
    lines = ("csr team=16x2 columns=8 unroll=4 cut=64 warps=4", "csr_strip wide=64 lists=20 warps=16 groups=2 unroll=4")
    for i, line in enumerate(lines):
        made = program(product, line, ("row", "row", 8, False, 16, 16), profile)
        assert len(made.warp.funcs) == 1 + i
        funcs += [dataclasses.replace(f, symbol=f"k{i}_{n}") for n, f in enumerate(made.warp.funcs)]
    fit(funcs, [None] * len(funcs), profile)
