"""The numbers of products of strips: turns of whole windows, the tile of x that the warps of a block share, slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from .arithmetic import up

#: k of one mma, and the rows of W of one.
DEPTH: Final = 16
#: Rows of W of a warp, columns of x of a block, kept columns of a turn that are tried.
STRIPS: Final = (16, 32, 64)
COLS: Final = (16, 32, 64, 128, 256)
KEPT: Final = (16, 32, 48, 64)
#: Rows of W of a block, where it has so many strips as are tried.
TILES: Final = (32, 64, 128, 256, 512, 1024)
#: Elements of a 16-byte piece, and of a row of a block of x in shared memory: 128 bytes.
PIECE, BLOCK = 8, 64
#: Rows of a tile of x that lie in different banks: what a phase of ``ldmatrix`` reads at once.
BANKS: Final = 8
#: Bytes at which slots start, so that the pattern of every swizzle begins there.
ALIGN: Final = 1024
#: Slots of a ring at least: one is multiplied while another is filled.
LEAST: Final = 2
#: Rows of x of a turn that a thread copies a piece of, at most: their numbers wait in registers.
MOST_ROWS: Final = 16


#: n and m of a pattern, and the rows and columns of its blocks.
Pattern = tuple[int, int, int, int]


class Turn(NamedTuple):
    """A turn: ``windows`` windows of W, of which a strip keeps ``depth`` columns, those that fill the last mma counted,
    and the strips of a block ``rows`` between them, those that fill the last eight counted."""

    windows: int
    depth: int
    rows: int


def kept_of(pattern: Pattern, rows: int) -> int:
    """Columns of a window that so many adjacent rows keep at most: those of all vectors that they may have."""
    n, m, high, _ = pattern
    vectors = 1 if high % rows == 0 else rows // high if rows % high == 0 else (rows - 2) // high + 2
    return min(m, n * vectors)


def windows_of(pattern: Pattern, strip: int, kept: int) -> int:
    """Windows of a turn in which a strip keeps about ``kept`` columns."""
    return max(1, kept // kept_of(pattern, strip))


def turn_of(pattern: Pattern, strip: int, down: int, kept: int, unions: Mapping[tuple[int, int], int]) -> Turn:
    """The turn of ``down`` strips of ``strip`` rows that keep about ``kept`` columns each.

    ``unions``: how many columns so many rows keep at most in so many windows, where that is known.
    """
    windows, rows = windows_of(pattern, strip, kept), strip * down
    most = unions.get((rows, windows), windows * kept_of(pattern, rows))
    return Turn(windows, up(windows * kept_of(pattern, strip), DEPTH), up(most, BANKS))


def sums(strip: int, width: int) -> int:
    """Sums of a lane, of a strip and ``width`` columns."""
    return strip * width // 32


def row_bytes(cols: int) -> int:
    """Bytes of a row of a block of x in shared memory: its swizzle."""
    return 2 * min(cols, BLOCK)


def passes(cols: int, threads: int, rows: int) -> int:
    """Rows of a turn that a thread copies a piece of, one after the other; ``cols // PIECE`` threads share a row."""
    return -(-rows * (cols // PIECE) // threads)


def slot_bytes(strip: int, down: int, cols: int, turn: Turn) -> int:
    """Bytes of a slot: the rows of x, the values of ``down`` strips, and where each strip's rows of x lie."""
    return 2 * (turn.rows * cols + down * (strip + 1) * turn.depth)
