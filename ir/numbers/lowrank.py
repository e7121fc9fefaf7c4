"""The numbers of ``lowrank``: blocks of outputs, their window, and the slices of both products."""

from __future__ import annotations

from .arithmetic import SECTOR, conflict_free, up


def slices(reach: int) -> int:
    """Slices of four in 8 + ``reach`` elements: registers of a factor, for a band that is ``reach`` + 1 long."""
    return -(-(8 + reach) // 4)


class Blocks:
    """Tiles of ``rows`` x ``cols`` doubles; a warp makes the ``m`` rows of an mma of an equal share of the columns."""

    def __init__(self, *, radius: tuple[int, int], rows: int, cols: int, m: int, warps: int) -> None:
        self.strips = rows // m  #: strips of ``m`` rows
        self.blocks = cols // 8 * self.strips // warps  #: column blocks of 8 that a warp makes
        self.before = up(radius[1], SECTOR // 8)  #: columns fetched left of the tile: windows start at a sector
        self.height = rows + 2 * radius[0]  #: rows of the window
        self.width = up(self.before + cols + radius[1], 2)  #: columns of the window
        self.pitch = conflict_free(self.width)  #: elements from row to row of it
        self.size = self.height * self.pitch  #: elements of it in shared memory
        self.depth = slices(2 * radius[0]) + 2 * (m // 8 - 1)  #: slices of the first product
        self.across = slices(2 * radius[1])  #: slices of the second product
        self.window = self.blocks + up(2 * radius[1], 8) // 8  #: column blocks of a warp's window
