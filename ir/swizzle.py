"""How a tile lies in shared memory for a warpgroup's product: one description for packer, copies and descriptor.

A tile is rows of 32, 64 or 128 bytes, one after the other.  The swizzle exchanges the 16-byte pieces of each row, so
that eight pieces of one column lie in different banks: on the byte address, bits 4-6 are xored with bits 7-9 (of 64
bytes 4-5 with 7-8, of 32 bytes 4 with 7).  The pattern repeats every eight times the row's width: tiles start there.

Source: PTX ISA, "wgmma: shared memory matrix layout"; CUTLASS, ``cute/arch/mma_sm90_desc.hpp``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .errors import IRError
from .layout import Layout, layout

SWIZZLES: Final = (0, 32, 64, 128)
#: k of one product of 16-bit elements.
DEPTH: Final = 16
#: Swizzle, leading and stride offset in bytes, as a matrix descriptor has them.
Tile = tuple[int, int, int]


def atom(swizzle: int) -> int:
    """Bytes after which the pattern of a swizzle repeats; without one, those of a piece."""
    return 8 * swizzle or 16


def swizzled(rows: int, row_bytes: int, swizzle: int, itemsize: int = 2) -> Layout:
    """(row, element) of a tile to the element's place; ``swizzle`` is ``row_bytes``, or 0 for rows as they are.

    IRError for another swizzle.  For a tile of several blocks: ``blocks`` times this one.
    """
    if swizzle not in (0, row_bytes) or swizzle not in SWIZZLES:
        raise IRError(f"rows of {row_bytes} bytes with a swizzle of {swizzle}",
                      hint="the swizzle is as wide as the row (32, 64 or 128 bytes), or 0")  # fmt: skip
    n, piece = row_bytes // itemsize, 16 // itemsize
    if not swizzle:
        return layout({"row": rows, "element": n}, lambda r, e: r * n + e)
    return layout({"row": rows, "element": n},
                  lambda r, e: r * n + (e ^ (r // (128 // swizzle) % (swizzle // 16) * piece)))  # fmt: skip


def k_major(row_bytes: int) -> Tile:
    """The descriptor of a swizzled tile of rows (of a) or columns (of b), each with ``row_bytes`` of adjacent k.

    The tile of the next 16 k starts 32 bytes on.
    """
    return row_bytes, 16, 8 * row_bytes


def mn_major(row_bytes: int, depth: int) -> Tile:
    """The descriptor of a swizzled tile of k, each with ``row_bytes`` of adjacent rows (of a) or columns (of b).

    What is wider than ``row_bytes`` goes on in another block, behind the ``depth`` k of this one.  The tile of the next
    16 k starts 16 rows on.
    """
    return row_bytes, depth * row_bytes, 8 * row_bytes


def tile_bytes(count: int, tile: Tile, major: str, start: int = 0, depth: int = DEPTH) -> NDArray[np.int64]:
    """The bytes at which a product's operand lies: ``[count, depth]``, by row of a (or column of b) and k.

    ``start`` is where the tile starts, counted from a place that is a multiple of :func:`atom`.  Elements have 16 bits.
    """
    swizzle, lead, stride = tile
    i, k = np.indices((count, depth), dtype=np.int64)
    row, along = (i, k) if major == "k" else (k, i)  # of the tile: which row, and which element of it
    piece, inside = along // 8, along % 8 * 2
    if swizzle and major == "k":
        at = row % 8 * swizzle + row // 8 * stride + piece * 16
    elif swizzle:
        wide = swizzle // 16
        at = row % 8 * swizzle + row // 8 * stride + piece % wide * 16 + piece // wide * lead
    elif major == "k":
        at = row % 8 * 16 + row // 8 * stride + piece * lead
    else:
        at = row % 8 * 16 + row // 8 * lead + piece * stride
    at = start + at + inside
    return at ^ (at >> 7 & (swizzle // 16 - 1)) << 4 if swizzle else at
