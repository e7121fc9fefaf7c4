"""Formats that are not in the tree, declared with its axes: what n of m, block and column formats are."""

from __future__ import annotations

from sparsegen.formats.axes import Compressed, Dense, Fixed, Mask, Pointers, Stored
from sparsegen.formats.blocks import Blocked
from sparsegen.formats.format import Format
from sparsegen.formats.padded import Padded
from sparsegen.ir.layout import Layout, layout
from sparsegen.ir.types import DType, s32, u8, u32


def xor_swizzle(rows: int, cols: int, chunk: int) -> Layout:
    """Row-major, chunk ``c // chunk`` of row r moved to ``(c // chunk) ^ (r mod 8)``."""
    return layout({"r": rows, "c": cols}, lambda r, c: r * cols + ((c // chunk) ^ (r % 8)) * chunk + c % chunk)


def fixed(dtype: DType, n: int, m: int, vector: int = 1) -> Format:
    """n of every m columns, the same ones for ``vector`` adjacent rows."""
    columns = Fixed("slab", Stored("kept", u8), n, m)
    return Format("fixed", dtype, Blocked.plain(vector, 1), (Dense("strip"), columns, Dense("element")))


def blocks(dtype: DType, rows: int, cols: int) -> Format:
    """Blocks that hold anything, by block columns (slab by slab)."""
    kept = Compressed("strip", Stored("idx", s32), Pointers("ptr", s32))
    return Format("blocks", dtype, Blocked.plain(rows, cols), (Dense("slab"), kept, Dense("element")))


def padded(dtype: DType, rows: int, cols: int) -> Format:
    """Blocked-ELL: as many blocks of every block row as the one with most has."""
    kept = Padded("slab", Stored("idx", s32))
    return Format("padded", dtype, Blocked.plain(rows, cols), (Dense("strip"), kept, Dense("element")))


def swizzled(dtype: DType) -> Format:
    """Blocks whose elements stand in an order that is no order of bits of the position."""
    kept = Compressed("slab", Stored("idx", s32), Pointers("ptr", s32))
    order = xor_swizzle(8, 24, 3)
    block = Blocked(8, 24, order)
    return Format("swizzled", dtype, block, (Dense("strip"), kept, Dense("element")))


def vector_mask(dtype: DType) -> Format:
    """A bit for each element of 8 x 16 tiles, columns first."""
    order = layout({"row": 8, "col": 16}, lambda row, col: col * 8 + row)
    words = layout({"word": 4, "bit": 32}, lambda word, bit: (word, bit))
    kept = Mask("element", Stored("bits", u32), Pointers("ptr", u32), words)
    return Format("vector_mask", dtype, Blocked(8, 16, order), (Dense("strip"), Dense("slab"), kept))
