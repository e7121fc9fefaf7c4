"""The numbers of SpInfer's own product: group tiles in slots of shared memory, and what a warp has of one.

A *group tile* is 64 x 64 elements of W: 4 strips of 4 tensor-core tiles (16 x 16), each of 4 bitmap tiles (8 x 8).
Source: SpInfer (EuroSys'25), sections 4.1 to 4.3.
"""

from __future__ import annotations

from typing import Final

from ..layout import Layout
from ..swizzle import SWIZZLES, swizzled

#: Rows and columns of a group tile, its strips of 16 rows, its bitmaps, and those of a tensor-core tile.
SIDE, STRIPS, BITMAPS, TILE = 64, 4, 64, 4
#: Elements of 16 bits in a piece of 16 bytes.
PIECE: Final = 8
#: Columns of x of a block, and warps that share a group tile's strips.
COLS: Final = (8, 16, 32, 64)
WARPS: Final = (1, 2, 4)


def place(cols: int, order: str) -> Layout:
    """Where a slab of x lies in its slot: row and element of a tile of rows of x, or of columns of x.

    Pieces are exchanged, so that a phase of ``ldmatrix`` and the lanes' own loads meet no bank twice.
    """
    rows, width = (SIDE, cols) if order == "row" else (cols, SIDE)
    return swizzled(rows, 2 * width, 2 * width if 2 * width in SWIZZLES else 0)


def shared_bytes(most: int, cols: int, buffers: int, single: bool) -> int:
    """Bytes of shared memory of a block: slots of starts, bitmaps, ``most`` values and x; a word with ``single`` False,
    where splits find out who is the last."""
    return buffers * (4 * STRIPS + 8 * BITMAPS + 2 * most + 2 * SIDE * cols) + 4 * (not single)


def sums(cols: int, warps: int) -> int:
    """Sums of a lane: of all columns and its warp's part of the strips."""
    return cols // 8 * 4 * (STRIPS // warps)


def fragments(warps: int) -> int:
    """Registers of a lane for its warp's part of a group tile, as operands of mma."""
    return STRIPS // warps * (SIDE // 16) * TILE
