"""Tiles of shared memory: what a packer and a copy write is what the descriptor reads."""

from __future__ import annotations

import numpy as np
import pytest

from sparsegen.ir.errors import IRError
from sparsegen.ir.swizzle import k_major, mn_major, swizzled, tile_bytes


def by_address(rows: int, row_bytes: int, itemsize: int) -> np.ndarray:
    """The element's place by the bits of its byte address, as the hardware has it."""
    at = np.arange(rows * row_bytes).reshape(rows, -1)[:, ::itemsize]
    mask = {128: 0x70, 64: 0x30, 32: 0x10}[row_bytes]
    return (at ^ (at >> 3 & mask)) // itemsize


@pytest.mark.parametrize("row_bytes", [32, 64, 128])
@pytest.mark.parametrize("itemsize", [1, 2, 4])
def test_a_row_s_pieces_are_exchanged(row_bytes: int, itemsize: int) -> None:
    tile = swizzled(24, row_bytes, row_bytes, itemsize)
    (table,) = tile.tables()
    assert np.array_equal(table, by_address(24, row_bytes, itemsize))
    assert tile.injective() and tile.size() == 24 * row_bytes // itemsize
    (plain,) = swizzled(24, row_bytes, 0, itemsize).tables()
    assert np.array_equal(plain.ravel(), np.arange(plain.size))


@pytest.mark.parametrize(("row_bytes", "swizzle"), [(128, 64), (256, 256), (16, 16)])
def test_another_swizzle_is_refused(row_bytes: int, swizzle: int) -> None:
    with pytest.raises(IRError, match=f"rows of {row_bytes} bytes with a swizzle of {swizzle}"):
        swizzled(8, row_bytes, swizzle)


@pytest.mark.parametrize("row_bytes", [32, 64, 128])
def test_the_descriptor_reads_k_major_tiles(row_bytes: int) -> None:
    tile = swizzled(64, row_bytes, row_bytes)
    for step in range(row_bytes // 32):
        got = tile_bytes(64, k_major(row_bytes), "k", 32 * step)
        assert np.array_equal(got // 2, tile.tables()[0][:, 16 * step :][:, :16])


@pytest.mark.parametrize("row_bytes", [32, 64, 128])
def test_the_descriptor_reads_mn_major_tiles(row_bytes: int) -> None:
    wide, depth = row_bytes // 2, 64
    tile = swizzled(depth, row_bytes, row_bytes)
    for step in range(depth // 16):
        got = tile_bytes(128, mn_major(row_bytes, depth), "mn", 16 * step * row_bytes)
        for block in range(128 // wide):
            want = tile.tables()[0][16 * step :][:16].T + block * tile.size()
            assert np.array_equal(got[block * wide :][:wide] // 2, want)
