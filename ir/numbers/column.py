"""The numbers of ``column``: a block's column of the field, its window of a plane, and its ring of planes."""

from __future__ import annotations

from .arithmetic import PIECE, SECTOR, up


class Planes:
    """``warps`` warps of ``lines`` rows, a lane has 16 bytes of each; ``planes`` outputs deep; all in elements.

    ``radius`` is a level's, axis by axis; ``stages`` planes are under way.  ``chained``: a level's plane is complete
    without its neighbours, so that the next level takes it at once (a star).
    """

    def __init__(
        self, *, radius: tuple[int, int, int], levels: int, nbytes: int, lines: int, planes: int, warps: int,
        stages: int, chained: bool,
    ) -> None:  # fmt: skip
        rz, ry, rx = radius
        self.piece = PIECE // nbytes  #: columns of a lane
        self.cells = lines * self.piece  #: cells of a thread
        self.size = warps * lines, 32 * self.piece  #: rows and columns of a plane's window
        #: rows and columns of the window before the tile, and after it; windows start at a sector
        self.lead = levels * ry, up(levels * rx, SECTOR // nbytes)
        self.step = self.size[0] - 2 * self.lead[0], self.size[1] - 2 * self.lead[1]  #: rows and columns of the tile
        self.above = levels * rz  #: planes of halo before the outputs
        self.lag = rz if chained else rz + 1  #: planes from a level to the next
        self.delay = self.above + (levels - 1) * self.lag + rz  #: turns until the last level's first plane is complete
        self.turns = planes + self.delay  #: planes that a block walks over
        self.ring = stages * self.size[0] * self.size[1]  #: elements of the ring
        #: elements of the rows that warps show each other, of two turns
        self.edges = 2 * max(1, ry) * levels * warps * 2 * self.size[1]
        self.tile = planes, *self.step  #: outputs of a block
