"""The numbers of ``bitmap_block``: the slots of a block's ring, and where a slab's rows or columns of x lie in one."""

from __future__ import annotations

from typing import Final

#: Columns of x of a block, by mma of warps and by those of warpgroups.
COLS: Final = (8, 16, 32, 64)
GROUP_COLS: Final = (8, 16, 32, 64, 128)
#: Adjacent columns of x that lie together in a slot: a piece of 16 bytes.
PIECE: Final = 8
#: What mma is called where warpgroups multiply.
GROUPED: Final = "wgmma"
#: Warps of a warpgroup, which share a slab.
GROUP: Final = 4


def is_late(mma: str, cols: int) -> bool:
    """Whether products go on while the next slab is decoded: for fewer columns more warps run, which have no registers
    for that."""
    return mma == GROUPED and cols > COLS[-1]


def lag(parts: int, late: bool) -> int:
    """Slabs after which the slot of one is filled again, so that the slowest warp has left it: two, or of several
    ``parts`` those of a turn; one more where products go on while the next slab is decoded."""
    return (2 if parts == 1 else parts) + late


def longest(strips: int, runs: int, unit: int) -> int:
    """Strips of the longest of ``runs``, each of which has a multiple of ``unit``, but for the last."""
    units = -(-strips // unit)
    return min(-(-units // runs) * unit, strips)


def exchanged(sums: int, warps: tuple[int, int], splits: int) -> int:
    """32-bit words through which a lane's ``sums`` go, of ``warps`` = (those of a slab, parts) of each block of a
    cluster: to the warps of the first part, then to those that store."""
    row_warps, parts = warps
    return 32 * sums * max(row_warps * (parts - 1), (splits - 1) * -(-row_warps // splits))


def operands(cols: int, fragments: int) -> int:
    """Registers of a lane for x of so many fragments of 16 columns of W."""
    return fragments * cols // 4
