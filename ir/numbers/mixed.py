"""The numbers of bands of rows with dense tiles and other entries: tiles, slots of a ring, sums, who shares a row."""

from __future__ import annotations

from math import prod
from typing import Final, NamedTuple

from .strips import DEPTH

#: Rows and columns of a dense tile, and rows of a band, which has one or some of them on top of each other.
TILES: Final = (16, 32, 64)
ROWS: Final = (16, 32, 64, 128)
#: Bytes that a thread copies at once, and of a row of a block of x in shared memory.
PIECE, ROW = 16, 128
#: Words of a band's record: its first turn, and the one after its last.
SPAN: Final = 2
#: Words of a row's record: which row of y it is, its first other entry, the one after the last, its place in the band.
#: Of a row that is cut the last one is ``place + PLACES * (first + PLACES * count)``: its first piece in the band, and
#: how many there are.
RECORD: Final = 4
PLACES: Final = 256
#: Lanes of a warp, each of which looks up one of the turns to come.
AHEAD: Final = 32
#: Sums from row to row in shared memory beyond the columns: pairs of an mma's sums then lie in different banks.
PAD: Final = 8


#: Warps that share a band's dense tiles: strips of its rows x parts of the columns x slices of k.
Warps = tuple[int, int, int]


#: Columns of x that are the rows of a warpgroup's product.
SIDE: Final = 64


class Team(NamedTuple):
    """Lanes that add up a row's other entries: ``across`` side by side, ``parts`` that share the entries; a lane has
    ``blocks`` times ``vec`` columns."""

    across: int
    parts: int
    vec: int
    blocks: int

    @property
    def lanes(self) -> int:
        """Lanes of a team."""
        return self.across * self.parts


def team_of(rows: int, cols: int, warps: int, vec: int) -> Team:
    """The teams of a block: as many lanes side by side as have columns, and as many parts as leave no row without a
    team; ``vec``: columns that a load takes."""
    across = min(32, cols // vec)
    parts = max(1, min(32 // across, 32 * warps // (across * rows)))
    return Team(across, parts, vec, cols // (across * vec))


def slots(cuts: int, teams: int) -> int:
    """Rows of shared memory for the sums of so many pieces of rows, by powers of two; each team has one at least."""
    return max(teams, 1 << (cuts - 1).bit_length()) if cuts else 0


def sums_pitch(cols: int) -> int:
    """Sums from row to row in shared memory."""
    return cols + PAD


def tile_words(rows: int, tile: int, item: int) -> int:
    """32-bit words of the dense tiles of a turn, of values of ``item`` bytes."""
    return rows * tile * item // 4


def slot_bytes(rows: int, tile: int, cols: int, item: int) -> int:
    """Bytes of a slot of the ring: the rows of x that dense tiles multiply, and the tiles."""
    return item * tile * cols + 4 * tile_words(rows, tile, item)


def shared_bytes(rows: int, tile: int, cols: int, stages: int, item: int, slices: int) -> int:
    """Bytes of shared memory of a block with dense tiles: the ring, and the sums of each slice."""
    return stages * slot_bytes(rows, tile, cols, item) + sums_bytes(slices * rows, cols)


def sums_bytes(rows: int, cols: int) -> int:
    """Bytes of the sums of so many rows, or pieces of rows, in shared memory."""
    return 4 * rows * sums_pitch(cols)


def block_row(cols: int, item: int) -> int:
    """Elements of a row of a block of x in shared memory: 128 bytes, or all that there are."""
    return min(cols, ROW // item)


def passes(tile: int, cols: int, threads: int, item: int) -> int:
    """Rows of x of a turn that a thread copies a piece of, one after the other."""
    return -(-tile * (cols * item // PIECE) // threads)


def steps(tile: int, item: int) -> int:
    """Products along k of a turn, one mma each: 16 columns of W of 16-bit values, 8 of f32."""
    return tile * item // (2 * DEPTH)


def fits(rows: int, cols: int, warps: Warps) -> bool:
    """Whether warps share a band without rest, and each has a team with a row of it."""
    down, across, _ = warps
    powers = all(n >= 1 and n & (n - 1) == 0 for n in warps)
    return powers and rows % (DEPTH * down) == 0 and cols % (DEPTH * across) == 0 and prod(warps) <= rows


def share_of(tile: int, item: int, slices: int) -> int:
    """Products along k of a turn that a slice takes."""
    return max(1, steps(tile, item) // slices)


def rounds(tile: int, item: int, slices: int) -> int:
    """Turns of which a slice multiplies one: more slices than a turn has products along k take turns in turn."""
    return max(1, slices // steps(tile, item))


def groups_of(cols: int, warps: Warps) -> int:
    """Warpgroups that share the columns of a block, if four warps each do, and whole products are left; 0 if not."""
    down, across, _ = warps
    groups = across // 4
    return groups if down == 1 and across % 4 == 0 and cols % (SIDE * max(1, groups)) == 0 else 0
