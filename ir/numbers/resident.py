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
#: Bytes of a lane's sums, at most, of the pieces of a row.
SUMS: Final = 64


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


def pieces(wide: int, entries: int, piece: int) -> int:
    """Pieces that a lane has of each row of ``wide`` bytes, of which it multiplies its share of ``entries`` at once;
    ``piece``: bytes of a piece's sums.

    Of rows of all banks as many as leave a lane no more than :data:`SUMS` bytes of sums: lanes with more pieces of a
    row are fewer, and each loads the places and values of its entries.  Of narrower ones a single one: rows of more
    lanes at once would meet in banks.
    """
    return min(SUMS // piece, wide // PIECE, entries) if wide == max(WIDTHS) else 1


def cut_rows(slots: int, teams: int) -> int:
    """Records of the rows that so many pieces are of, two at least each: a whole number for each of ``teams`` teams."""
    return up(slots // 2, teams)
