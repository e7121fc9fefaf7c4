"""Counts of sampled products: those of whole runs; and what the words of their schedules change."""

from __future__ import annotations

import pytest

import sparsegen as sg
from tests.counts.kit import wrong
from tests.sddmm_kit import case


@pytest.mark.parametrize("device", ("h200", "a100"))
@pytest.mark.parametrize(
    ("dtype", "k", "line"),
    [
        ("i8", 128, "strips rows=64 warps=2 groups=2 prefetch=on"), ("i8", 50, "strips rows=32 warps=3 groups=1"),
        ("i16", 96, "strips rows=32 warps=4 groups=2 prefetch=off"), ("i4", 96, "strips rows=64 warps=1 groups=3"),
        ("i8", 2100, "strips rows=32 warps=2 groups=1"), ("i16", 96, "gather warps=2 most=2 stages=3"),
        ("i8", 50, "gather warps=3 most=1 stages=2"),
    ],
)  # fmt: skip
def test_as_a_whole_run(dtype: str, k: int, line: str, device: str) -> None:
    made = case(45, 70, k, 8, 0.6, dtype, out="sr_bcrs")
    kernel = sg.compile(made.product, device=device, backend="emulator", schedule=line)
    assert not wrong(kernel._plan(0).main, kernel.weights())


def test_what_a_tile_takes() -> None:
    """An mma and a read of 16 rows for each 32 bytes of k; of 4 bits two, of 16 bits four for two reads."""
    for dtype, each, reads in (("i8", 4, 4), ("i4", 4, 2), ("i16", 16, 8)):
        made = case(64, 64, 128, 8, 0.5, dtype)
        counts = sg.compile(
            made.product, device="h200", backend="emulator",
            schedule="strips rows=64 warps=2 groups=1 prefetch=on",
        ).counts()  # fmt: skip
        tiles = made.product.pattern.arrays["ptr"][1:] - made.product.pattern.arrays["ptr"][:-1]
        tiles = int((-(-tiles // 16)).sum())
        mma = sum(n for name, n in counts.items() if name.startswith("mma."))
        own = 8 * {"i8": 2, "i4": 1, "i16": 4}[dtype]  # reads of the rows of a of 8 tasks
        assert (mma, counts["ldmatrix"] - own) == (tiles * each, tiles * reads)
