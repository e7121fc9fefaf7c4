"""nvcc takes products with dense tiles and other entries for every GPU that has them: no spills, shared memory as the
model counts it, and registers that let as many blocks share an SM as it says."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import sparsegen as sg
from sparsegen.products.hybrid import HybridNumbers
from sparsegen.products.hybrid_cost import shape_of
from sparsegen.schedule import SpmmSchedule
from tests.mixed_kit import line, matrix, values
from tests.nvcc_kit import fit, needs_nvcc
from tests.products_kit import program
from tests.schedules import device

#: Of each GPU the tile, how many of them a band has, and words: most sums and columns, one warp, shared rows, slices,
#: and warpgroups.
LINES = {
    "h200": [(32, 1, "cols=128 warps=1x4 mma=sync slices=1 stages=4 unroll=4"),
             (64, 1, "cols=128 warps=2x4 mma=sync slices=1 stages=3 unroll=4"),
             (32, 2, "cols=64 warps=1x2 mma=sync slices=1 stages=3 unroll=4"),
             (16, 1, "cols=256 warps=1x8 mma=sync slices=1 stages=6 unroll=4"),
             (32, 1, "cols=32 warps=2x2 mma=sync slices=4 stages=4 unroll=4"),
             (64, 1, "cols=64 warps=4x2 mma=sync slices=4 stages=2 unroll=1"),
             (64, 1, "cols=128 warps=2x4 mma=sync slices=2 stages=2 unroll=2"),
             (32, 1, "cols=256 warps=1x8 mma=wgmma slices=1 stages=4 unroll=4"),
             (32, 1, "cols=256 warps=1x4 mma=wgmma slices=2 stages=4 unroll=4"),
             (64, 2, "cols=128 warps=1x8 mma=wgmma slices=1 stages=3 unroll=4"),
             (16, 1, "cols=64 warps=1x4 mma=wgmma slices=4 stages=6 unroll=2")],
    "a100": [(32, 2, "cols=256 warps=2x4 mma=sync slices=1 stages=3 unroll=4"),
             (32, 1, "cols=64 warps=1x1 mma=sync slices=1 stages=4 unroll=2")],
    "rtx4090": [(32, 1, "cols=128 warps=1x8 mma=sync slices=1 stages=3 unroll=2"),
                (16, 4, "cols=16 warps=1x1 mma=sync slices=1 stages=6 unroll=4")],
}  # fmt: skip


@needs_nvcc
@pytest.mark.parametrize("name", LINES)
def test_sums_stay_in_registers(name: str) -> None:
    """With every epilogue among them, and columns of x that are loaded one by one."""
    profile, funcs, shapes = device(name), [], []
    for i, (tile, high, words) in enumerate(LINES[name]):
        w = matrix(4096, 512, tile, "bf16" if name == "a100" else "f16", method="none", delta=0.02)
        odd = i == 1 and name != "h200"
        how = {"bias": i == 0, "residual": i == 1, "activation": "gelu" if i == 2 else None}
        product = sg.spmm(w, n=1021 if odd else 1024, **how)
        schedule = SpmmSchedule.parse(f"hybrid high={high} {words}")
        made = program(product, str(schedule), ("row", "row", 1 if odd else 8), profile)
        funcs += [dataclasses.replace(f, symbol=f"k{i}_{n}") for n, f in enumerate(made.warp.funcs)]
        shapes += [*([None] * odd), shape_of(HybridNumbers.of(product), schedule, profile)]
    fit(funcs, shapes, profile)


@needs_nvcc
@pytest.mark.parametrize("precision", [None, "tf32"])
@pytest.mark.parametrize("name", ["h200", "a100"])
def test_f32(name: str, precision: Any) -> None:
    """Dense tiles of f32 on tensor cores, split and rounded: rows of x of 128 and of 64 bytes, most sums of a lane, in
    many fragments of W and in few, and most warps that share an SM."""
    profile, funcs, shapes = device(name), [], []
    w = matrix(4096, 512, 32, "f32", method="none", delta=0.02)
    lines = (
        line(128, "1x4", 3, 2), line(16, "2x1", 3, 4, 2), line(128, "1x8", 2, 4, 4), line(128, "2x1", 2, 4),
        line(64, "2x4", 2, 4, 2), line(32, "2x2", 2, 4), line(32, "2x2", 4, 4, slices=4),
    )  # fmt: skip
    for i, words in enumerate(lines):
        product, schedule = sg.spmm(w, n=1024, bias=True, precision=precision), SpmmSchedule.parse(words)
        made = program(product, str(schedule), ("row", "row", 4), profile)
        funcs += [dataclasses.replace(f, symbol=f"k{i}_{n}") for n, f in enumerate(made.warp.funcs)]
        shapes.append(shape_of(HybridNumbers.of(product), schedule, profile))
    fit(funcs, shapes, profile)


@needs_nvcc
@pytest.mark.parametrize("name", ["h200", "a100"])
def test_long_rows_in_pieces(name: str) -> None:
    """Two walks of entries in one kernel, and shared memory for the sums of pieces, with dense tiles and without."""
    profile, funcs, shapes = device(name), [], []
    lines = line(128, "1x4", 3, 4), line(32, "2x1", 3, 2, 2), line(32, "2x2", slices=4)
    for i, words in enumerate(lines):
        w = values(4096, 512, noise=0.0, fill=0.0, long=1)
        w[: 0 if i else 64, :64] = 1
        product = sg.spmm(sg.sparse(w, format="hybrid", tile=32, method="none"), n=1024, bias=True)
        schedule = SpmmSchedule.parse(words)
        assert HybridNumbers.of(product).counted(schedule.high).cuts
        made = program(product, str(schedule), ("row", "row", 8), profile)
        funcs += [dataclasses.replace(f, symbol=f"k{i}_{n}") for n, f in enumerate(made.warp.funcs)]
        shapes.append(shape_of(HybridNumbers.of(product), schedule, profile))
    fit(funcs, shapes, profile)
