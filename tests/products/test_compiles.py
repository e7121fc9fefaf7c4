"""Sparse products through nvcc, with no GPU: no spills, registers and shared memory as the model has them."""

from __future__ import annotations

from pathlib import Path

import pytest

import sparsegen as sg
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.ir.numbers.experts import most_tiles
from sparsegen.products.geometry import geometry
from sparsegen.products.product import BitmapNumbers
from tests.nvcc_kit import library
from tests.products_kit import matrix, pair

pytestmark = pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")
LINES = [
    ("bitmap cols=8 warps=1x8 rows=2 stages=3 splits=1", 8, "f16"),
    ("bitmap cols=16 warps=2x8 rows=7 stages=2 splits=1", 16, "f16"),
    ("bitmap cols=16 warps=2x8 rows=7 stages=2 splits=1", 16, "bf16"),
    ("bitmap cols=16 warps=2x2 rows=1 stages=6 splits=2", 12, "bf16"),
    ("bitmap cols=32 warps=2x4 rows=7 stages=2 splits=1", 32, "f16"),
    ("bitmap cols=64 warps=1x4 rows=4 stages=3 splits=3", 64, "bf16"),
    ("bitmap cols=16 warps=2x8 rows=6 stages=2 splits=1", 16, "i8"),
    ("bitmap cols=8 warps=1x8 rows=4 stages=3 splits=1", 8, "e4m3"),
    ("bitmap cols=32 warps=2x4 rows=7 stages=2 splits=1", 32, "e5m2"),
    ("bitmap mma=none warps=4x4 rows=4 stages=3 splits=1", 1, "i8"),
    ("bitmap mma=none warps=4x4 rows=4 stages=3 splits=1", 1, "f16"),
    ("bitmap mma=none warps=4x4 rows=4 stages=3 splits=1", 1, "bf16"),
]


@pytest.mark.parametrize(("line", "n", "dtype"), LINES)
def test_no_spills(line: str, n: int, dtype: str) -> None:
    product = sg.spmm(matrix(8192, 512, 0.6, dtype), n=n, bias=True, residual=True, activation="gelu")
    k = sg.compile(product, device="h200", backend="emulator", schedule=line)
    g = geometry(BitmapNumbers.of(product), k.schedule, k.device)
    (use,) = k.resources()
    assert use.spills == use.stack == 0
    assert use.registers <= g.registers + 15  # an estimate; the kernel is compiled for g.resident blocks an SM
    assert use.shared == g.shared and use.blocks == g.blocks and use.threads == k.schedule.threads


@pytest.mark.parametrize(
    "line", ["bitmap cols=16 warps=2x8 rows=7 stages=2 splits=1", "bitmap mma=none warps=4x4 rows=4"]
)
def test_a_gated_pair_takes_no_more(line: str) -> None:
    """Neither registers nor spills: its sums are in the same places."""
    both = pair(4096, 512)
    products = [sg.spmm(w, n=1 if "none" in line else 16, bias=True, activation="silu") for w in (both, both.w)]
    kernels = [sg.compile(product, device="h200", backend="emulator", schedule=line) for product in products]
    gated, alone = (k.resources() for k in kernels)
    assert gated.spills == 0 and gated.registers <= alone.registers + 8 and gated.shared == alone.shared


@pytest.mark.parametrize("line", [
    "bitmap cols=8 warps=1x8 rows=2 stages=3 splits=1", "bitmap cols=32 warps=2x4 rows=7 stages=2 splits=2",
])  # fmt: skip
def test_experts_take_little_more(line: str) -> None:
    """No spills, shared memory as the model has it, and as many blocks as there may be tiles of columns."""
    one = [matrix(1024, 512) for _ in range(8)]
    product = sg.spmm(one, n=64, ragged=True, bias=True, activation="silu")
    k = sg.compile(product, device="h200", backend="emulator", schedule=line)
    g = geometry(BitmapNumbers.of(product), k.schedule, k.device)
    (use,) = k.resources()
    assert use.spills == use.stack == 0 and use.occupancy.blocks >= g.resident and use.shared == g.shared
    assert use.blocks == g.groups * k.schedule.splits * most_tiles(64, 8, k.schedule.cols)


@pytest.mark.parametrize("device", ["a100", "rtx4090"])
@pytest.mark.parametrize("n", [1, 16, 32])
def test_no_spills_without_bulk_copies(device: str, n: int) -> None:
    """What the model chooses there."""
    product = sg.spmm(matrix(4096, 512), n=n)
    k = sg.compile(product, device=device, backend="emulator")
    (use,) = k.resources()
    assert "cp.async.cg" in k.source() and "cp.async.bulk" not in k.source()
    assert use.spills == use.stack == 0
    assert use.shared == geometry(BitmapNumbers.of(product), k.schedule, k.device).shared


def test_an_exported_product_is_a_library(tmp_path: Path) -> None:
    product = sg.spmm(matrix(100, 300), n=16, bias=True)
    k = sg.compile(product, device="h200", backend="emulator", schedule="bitmap splits=2")
    library(k.export(tmp_path / "spmm.cu"), "sm_90a")
