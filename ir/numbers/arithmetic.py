"""What the numbers of several families have in common."""

from __future__ import annotations

from typing import Final

#: Bytes of a piece, the most that a thread moves at once; and of a memory sector: windows that start in the middle of
#: one are copied slower.
PIECE: Final = 16
SECTOR: Final = 32


def up(n: int, to: int) -> int:
    """``n`` rounded up to a multiple."""
    return -(-n // to) * to


def skew(before: int, piece: int) -> int:
    """Elements before the first slot of a ring whose rows are copied from ``before`` elements ahead of a sector on.

    Then pieces lie in shared memory as they do in sectors of global memory: of others ``cp.async`` moves 14.5 bytes a
    clock of an SM instead of 27 (an H200, pieces of 16 bytes).
    """
    return -before % (piece * SECTOR // PIECE)


def conflict_free(needed: int) -> int:
    """Smallest row stride >= needed (in doubles) that is 4 or 12 mod 16: 8 x 4 fragments load without conflicts."""
    return needed + (4 - needed) % 8
