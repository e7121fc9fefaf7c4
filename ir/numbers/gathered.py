"""The numbers of sampled products whose columns of b are gathered: rings of tiles, tasks of a few tiles."""

from __future__ import annotations

from typing import Any, Final

from .sampled import GROUP, TILE, Cut

#: Bits of a column of b in a list; those above say which vector row of a group.
COLUMN_BITS: Final = 28
#: Slots of a ring at least: one is multiplied while another is filled.
LEAST: Final = 2
#: Tiles of a task, at most, that are tried.
MOST: Final = (1, 2, 3, 4, 6, 8, 16, 32)


def runs(tiles: Any, most: int) -> Any:
    """Tasks of so many tiles of a group."""
    return (tiles + (most - 1)) // most


def shared_bytes(warps: int, stages: int, c: Cut) -> int:
    """Bytes of a block: of each warp the ring and the rows of a."""
    return warps * (stages * TILE + GROUP) * c.nbytes
