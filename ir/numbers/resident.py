"""The numbers of strips that stay in shared memory: their rows, boxes and parts."""

from __future__ import annotations

from typing import Any, Final

from .arithmetic import up

#: Bytes of a row: the widths of swizzles.
WIDTHS: Final = (32, 64, 128)
#: Rows of the smallest box of a copy, and of the largest.
ROWS, MOST = 32, 256
#: Bytes of which the place of a strip is a multiple: the widest pattern of a swizzle.
ALIGN: Final = 1024
#: Bytes that a lane reads of a row, and that a swizzle exchanges.
PIECE: Final = 16


def padded_rows(rows: int, parts: int = 1) -> int:
    """Rows of a strip that holds so many, in parts of whole boxes."""
    return up(-(-rows // parts), ROWS) * parts


def box(rows: int) -> int:
    """Rows of a copy, of a part of so many."""
    return next(n for n in (MOST, 128, 64, ROWS) if rows % n == 0)


def place(row: Any, wide: int) -> Any:
    """Where the first piece of a row of ``wide`` bytes lies in a swizzled strip, counted in pieces; the p-th one lies
    at that ``^ p``.  ``row``: a number or an array of them."""
    across = wide // PIECE
    return row * across + row // (128 // wide) % across
