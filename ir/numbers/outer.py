"""The numbers of N:M patterns on CUDA cores for many columns: outer products of a lane, turns, what waits in a ring."""

from __future__ import annotations

from math import gcd
from typing import Final

from .arithmetic import up

#: Lanes of a warp along rows of W, and along columns of x.
DOWN, ACROSS = 4, 8
#: Rows of W of a lane, and of a warp.
HIGH: Final = 8
TALL: Final = DOWN * HIGH
#: 32-bit elements of a 16-byte piece, which one access takes: adjacent columns of a lane, entries of a list.
PIECE: Final = 4
#: Slots of a ring at least: one is multiplied, one is there for warps that are ahead, one is filled.
LEAST: Final = 3
#: Columns of x of a lane: what there is a kernel for.
EACH: Final = (4, 8, 16)


def windows_of(m: int, deep: int) -> int:
    """Windows of ``m`` columns of W of a turn: as many as ``deep`` rows of x hold, one at least."""
    return max(1, deep // m)


def turns_of(k: int, m: int, windows: int) -> int:
    """Turns of so many windows that ``k`` columns of W take."""
    return -(-k // (m * windows))


def share_of(vector: int) -> int:
    """Rows of a warp that read one list: as many of its lanes' eight as share their pattern."""
    return gcd(vector, TALL)


def list_words(entries: int, rows: int, share: int) -> int:
    """Words of the lists of a tile of ``rows`` rows for a turn: the row of x of each entry, in whole pieces."""
    return rows // share * up(entries, PIECE)


def shared_bytes(rows: int, cols: int, deep: int, entries: int, share: int, stages: int) -> int:
    """Bytes of a block's ring, ``deep`` rows of x, values and lists of a tile's entries a slot; and its mbarriers."""
    return 4 * stages * (deep * cols + entries * rows + list_words(entries, rows, share)) + 8 * 2 * stages


def threads(rows: int, cols: int, each: int) -> int:
    """Threads of a block: a warp for 32 rows and ``ACROSS`` x ``each`` columns."""
    return 32 * (rows // TALL) * (cols // (ACROSS * each))
