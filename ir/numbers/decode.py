"""The numbers of N:M products that decode W for warpgroups: what a lane that copies has of a turn, and shared memory.

A turn is 64 columns of W, kept or not.  Of a tile of ``groups`` x 64 rows each copying lane has a row, or one of two
shares of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .groups import COPIERS, PIECE, ROWS, STEP, bars, slot_bytes

#: Bytes of packed words that a block has on their way at least, if that takes no more turns than MOST_AHEAD; at most
#: what is left beside a ring of four slots of the largest tiles.
UNDER_WAY: Final = 24 * 1024
LEAST_AHEAD, MOST_AHEAD = 2, 8
#: Warps of a team that copies: each has its own part of a turn's words.
WARPS: Final = COPIERS // 32
#: Places that a word has: each is the number of an element in a swizzled row of 64, in a byte.
PLACES: Final = 4


@dataclass(frozen=True)
class Entries:
    """What a lane has of a turn: ``runs`` of ``run`` adjacent columns; in words of 32 bits their values, then a byte of
    each run, its place in the row."""

    run: int
    runs: int

    @property
    def values(self) -> int:
        """Words of values."""
        return -(-self.runs * self.run // 2)

    @property
    def words(self) -> int:
        """Words in all."""
        return self.values + -(-self.runs // PLACES)

    @property
    def turn(self) -> int:
        """Words of a turn of all lanes."""
        return COPIERS * self.words

    def ahead(self, teams: int) -> int:
        """Turns whose words are in shared memory, or on their way there: the same number for each team that copies."""
        return teams * (min(MOST_AHEAD, max(LEAST_AHEAD * teams, UNDER_WAY // (4 * self.turn))) // teams)


def sharers(groups: int) -> int:
    """Copying lanes that share a row of the tile."""
    return COPIERS // (ROWS * groups)


def run_of(wide: int) -> int:
    """Adjacent columns that are stored at once, of blocks ``wide`` columns wide: the power of two that divides them."""
    return min(PIECE, wide & -wide)


def most_kept(n: int, m: int) -> int:
    """The most of 64 adjacent columns, from a multiple of 64 on, that n of every m can keep."""
    found = 0
    for start in range(0, STEP * m, STEP):
        windows = range(start // m, (start + STEP - 1) // m + 1)
        found = max(found, sum(min(n, min(start + STEP, (w + 1) * m) - max(start, w * m)) for w in windows))
    return found


def entries(n: int, m: int, wide: int, groups: int) -> Entries:
    """What a lane has of rows that keep n of every m columns, in blocks ``wide`` columns wide."""
    run = run_of(wide)
    return Entries(run, -(-most_kept(n, m) // (run * sharers(groups))))


def shared_bytes(groups: int, cols: int, stages: int, teams: int, e: Entries) -> int:
    """Bytes of shared memory of a block: the ring, the packed words of some turns, the mbarriers."""
    ahead = e.ahead(teams)
    return stages * slot_bytes(groups, cols) + 4 * ahead * e.turn + 8 * bars(stages, WARPS * ahead)
