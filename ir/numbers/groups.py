"""The numbers of products of warpgroups that other warps feed: tiles, the slots of a ring, and who copies what."""

from __future__ import annotations

from typing import Final

from .arithmetic import up

#: Columns of W of a turn, kept or all: 128 bytes of 16-bit numbers, the widest swizzle.
STEP: Final = 64
#: Rows of W of a warpgroup, and its threads.
ROWS, GROUP = 64, 128
#: Columns of x of a block.
COLS: Final = (16, 32, 64, 128, 256)
#: Elements of a 16-byte piece, and of a row of a block of x.
PIECE, BLOCK = 8, 64
#: Bytes of a line of L2, and how often rows that straddle lines are gathered, at least, where it pays to write them
#: anew first (on one H200: 20 times and more 3 to 25 % less time, 8 times 14 % more).
LINE, READS = 128, 12
#: Bytes at which slots start, so that the pattern of every swizzle begins there.
ALIGN: Final = 1024
#: Threads of a team that copies, besides those that multiply: the warps of one more warpgroup.
COPIERS: Final = 128
#: Rows and columns of a block that turns columns into rows.
SIDE: Final = 32
#: Rows and columns of a block that turns whole pieces.
PIECES_SIDE: Final = 64
#: Sums from row to row where a warp lays out 8 rows of up to 32 columns, and in all: of 4 rows, or of a row or some
#: rows of fewer columns, what lanes put or take lies in different banks.
STAGE_PITCH: Final = 40
STAGE: Final = 8 * STAGE_PITCH
#: Slots of a ring at least: one is multiplied while another is filled.
LEAST: Final = 2


def side_pitch(item: int) -> int:
    """Elements of ``item`` bytes from row to row of its tile: an odd number of words, or of pairs of them, so that 32
    rows lie in different banks."""
    return SIDE + max(1, 4 // item)


def row_bytes(cols: int) -> int:
    """Bytes of a row of a block of x: its swizzle."""
    return 2 * min(cols, BLOCK)


def slot_bytes(groups: int, cols: int) -> int:
    """Bytes of a slot of the ring: W's tile for ``groups`` warpgroups, and the rows of x."""
    return STEP * 2 * (groups * ROWS + cols)


def bars(stages: int, lists: int) -> int:
    """mbarriers of a block: of each slot whether it is full, and empty; of each of some lists whether it is there."""
    return 2 * stages + lists


def shared_bytes(groups: int, cols: int, stages: int, steps: int) -> int:
    """Bytes of shared memory of a block: the ring, the lists of two tiles of ``steps`` turns, the mbarriers."""
    return stages * slot_bytes(groups, cols) + 2 * steps * STEP * 2 + 8 * bars(stages, lists=2)


def row_pitch(n: int, item: int) -> int:
    """Elements of ``item`` bytes from row to row of an x with ``n`` columns that is written anew: what a block takes of
    a row then lies in as few lines of 128 bytes as can be."""
    line = LINE // item
    return up(n, line) if n > line else max(16 // item, 1 << (n - 1).bit_length())


def straddles(n: int, item: int) -> bool:
    """Whether rows of ``n`` elements begin within lines, so that a block's share of a row lies in two of them."""
    return n * item % LINE > 0 and LINE % (n * item) > 0


def padded(n: int, item: int, reads: float) -> bool:
    """Whether rows of x straddle lines and are written anew before a kernel gathers them, each ``reads`` times."""
    return straddles(n, item) and reads >= READS


def stage_bytes(n: int, warps: int) -> int:
    """Bytes in which so many warps lay out sums for y with ``n`` columns."""
    return 4 * warps * STAGE if n % PIECE else 0


def threads(groups: int, teams: int = 1) -> int:
    """Threads of a block: those of ``groups`` warpgroups that multiply, and of ``teams`` that copy."""
    return GROUP * groups + COPIERS * teams


def across(cols: int) -> int:
    """Threads side by side along a row of x."""
    return cols // PIECE


def rows_each(cols: int) -> int:
    """Rows of x of a turn that a copying thread takes a piece of, one after the other."""
    return STEP * across(cols) // COPIERS


def list_words(cols: int) -> int:
    """32-bit words in which a copying thread has the numbers of those rows, two a word."""
    return max(1, rows_each(cols) // 2)
