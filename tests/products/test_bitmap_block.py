"""Bitmap tiles whose warps share a ring: right for all words of its schedules, any size, order and epilogue."""

from __future__ import annotations

from typing import Any

import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.families.spmm.bitmap_block import FAMILY
from sparsegen.ir.errors import ScheduleError
from sparsegen.products.bitmap_block import shape_of
from sparsegen.products.product import BitmapNumbers
from tests.nm_kit import formulas_hold
from tests.products_kit import EPILOGUES, ORDERS, called, matrix

#: Every word, and words together: sets of warps, strips of a warp, clusters, warpgroups, slots freed late.
LINES = (
    "cols=16 warps=4x1 rows=1 stages=4 splits=1", "cols=8 warps=3x1 rows=2 stages=3 splits=2",
    "cols=32 warps=2x3 rows=2 stages=6 splits=1", "cols=64 warps=1x2 rows=1 stages=6 splits=4",
    "cols=8 warps=5x2 rows=4 stages=4 splits=4", "mma=wgmma cols=8 warps=4x1 rows=1 stages=3 splits=1",
    "mma=wgmma cols=64 warps=8x1 rows=1 stages=5 splits=2", "mma=wgmma cols=128 warps=4x1 rows=1 stages=4 splits=2",
)  # fmt: skip


def line(words: str, dtype: str = "f16") -> str:
    """A schedule's line."""
    return f"bitmap_block {words}" if "mma" in words else f"bitmap_block mma={dtype}.m16n8k16 {words}"


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("words", LINES)
def test_all_words_are_right(words: str, dtype: str) -> None:
    k = called(sg.spmm(matrix(330, 700, dtype=dtype), n=24), schedule=line(words, dtype), device="h200")
    assert not k.counts()["conflicts.cp_async"]


@pytest.mark.parametrize(*ORDERS)
@pytest.mark.parametrize("words", [LINES[1], LINES[2], LINES[7]])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 70, 1), (64, 128, 8), (65, 129, 17), (40, 320, 9), (136, 200, 40)])
def test_any_size_and_order(m: int, k: int, n: int, words: str, x_order: str, y_order: str) -> None:
    words = words.replace("x3", f"x{min(3, -(-k // 64))}").replace("stages=6", "stages=12")
    called(sg.spmm(matrix(m, k), n=n), x_order, y_order, line(words), device="h200")


@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.95, 1.0])
def test_any_sparsity(sparsity: float) -> None:
    for words in (LINES[0], LINES[4], LINES[6]):
        called(sg.spmm(matrix(330, 600, sparsity), n=16), schedule=line(words), device="h200")


@pytest.mark.parametrize(*EPILOGUES)
def test_epilogues(activation: Any, operands: tuple[str, ...]) -> None:
    for order in ("row", "column"):
        for words in (LINES[0], LINES[2]):
            product = sg.spmm(matrix(72, 200), n=16, activation=activation, **dict.fromkeys(operands, True))
            called(product, order, order, line(words), device="h200")


@pytest.mark.parametrize(
    ("words", "device", "message"),
    [
        (LINES[0], "a100", "copies in bulk"),
        ("mma=bf16.m16n8k16 cols=16 warps=4x1 rows=1 stages=4 splits=1", "h200", "does not multiply f16"),
        ("mma=f16.m16n8k16 cols=128 warps=4x1 rows=1 stages=4 splits=1", "h200", "cols=128 with mma="),
        ("mma=wgmma cols=16 warps=6x1 rows=1 stages=4 splits=1", "h200", "make no warpgroups"),
        ("mma=wgmma cols=16 warps=4x1 rows=2 stages=4 splits=1", "h200", "make no warpgroups"),
        ("cols=16 warps=4x2 rows=1 stages=5 splits=1", "h200", "has as many slots"),
        ("cols=16 warps=4x2 rows=1 stages=4 splits=8", "h200", "but W has 4 slabs"),
        ("cols=64 warps=28x1 rows=4 stages=8 splits=1", "h200", "do not fit an SM"),
        ("cols=16 warps=40x1 rows=1 stages=4 splits=1", "h200", "are 1280 threads"),
    ],
)
def test_what_cannot_run_is_refused(words: str, device: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message) as e:
        sg.compile(sg.spmm(matrix(330, 256), n=16), device=device, backend="emulator", schedule=line(words))
    assert e.value.hint


def test_the_formula_says_what_it_says() -> None:
    product = sg.spmm(matrix(330, 700), n=20)
    formulas_hold(sg.compile(product, device="h200", backend="emulator", schedule=line(words)).cost for words in LINES)


def test_slots_fill_the_shared_memory() -> None:
    """Without ``stages`` there are as many as fit, a whole number for each set of warps."""
    device, p = load_profile("h200"), BitmapNumbers.of(sg.spmm(matrix(4096, 1024, 0.5), n=16))
    for cost in FAMILY.every(p, device, {"cols": 16}).costs:
        s = cost.schedule
        assert s.stages % s.warps[1] == 0 and shape_of(p, s, device).shared <= device.smem_block


@pytest.mark.parametrize("dtype", ["i8", "e4m3", "e5m2"])
def test_elements_of_8_bits(dtype: str) -> None:
    for words in (LINES[0], LINES[2], LINES[6]):
        called(sg.spmm(matrix(330, 600, 0.6, dtype), n=24), schedule=line(words), device="h200")
