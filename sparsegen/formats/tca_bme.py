"""Nested bitmap tiles as in SpInfer (TCA-BME): a 64-bit bitmap for each 8 x 8 tile, values in the order of the bits.

Three levels: 8 x 8 bitmap tiles; 2 x 2 of them, column by column, for the registers of one A fragment of mma.m16n8k16;
4 x 4 of those, row by row, in a group of 64 x 64. Groups follow one another row by row:

- ``offsets`` uint32 [groups + 1]: the first value of each group, counted in values; at the end, all of them.
- ``bitmaps`` uint64 [groups down, groups across, 64]: ``BIT`` of each tile.
- ``values`` uint16: the kept values' bits, tile after tile; each group is filled with zeros up to 16 bytes.

torch holds the same bits in signed integers.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from sparsegen.formats.axes import Dense, Mask, Pointers, Stored
from sparsegen.formats.blocks import Blocked
from sparsegen.formats.format import Format
from sparsegen.ir.expr import Expr
from sparsegen.ir.layout import Layout, layout
from sparsegen.ir.types import DType, u16, u32, u64

#: (row, col) of an element in its 8 x 8 tile -> its bit in the bitmap.
BIT: Final[Layout] = layout({"row": 8, "col": 8}, lambda row, col: row * 8 + col)


def _position(row: Expr, col: Expr) -> Expr:
    fragment, tile = row // 16 * 4 + col // 16, col // 8 % 2 * 2 + row // 8 % 2
    return (fragment * 4 + tile) * 64 + BIT(row % 8, col % 8)


#: (row, col) of an element in its group -> its place among the group's values, were all of them kept.
GROUP: Final[Layout] = layout({"row": 64, "col": 64}, _position)


@cache
def tca_bme(dtype: DType) -> Format:
    """The format for f16 or bf16."""
    bits = layout({"tile": 64, "bit": 64}, lambda tile, bit: (tile, bit))
    bitmaps = Mask("element", Stored("bitmaps", u64), Pointers("offsets", u32, align=8), bits)
    return Format("tca_bme", dtype, Blocked(64, 64, GROUP), (Dense("strip"), Dense("slab"), bitmaps), u16)
