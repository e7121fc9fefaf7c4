"""The numbers of ``stream``: a warp's strip of columns, its halo, and its ring of rows."""

from __future__ import annotations

from .arithmetic import PIECE, up


class Strips:
    """``warps`` strips of 32 * ``per_lane`` columns side by side, ``rows`` outputs down; all in elements.

    ``radius`` is a level's, in rows and columns; ``stages`` rows of each strip are under way.
    """

    def __init__(
        self, *, radius: tuple[int, int], levels: int, nbytes: int, per_lane: int, rows: int, warps: int, stages: int
    ) -> None:
        self.piece = PIECE // nbytes  #: elements of 16 bytes
        self.width = 32 * per_lane  #: columns of a strip's window
        self.lead = up(levels * radius[1], self.piece)  #: columns of the window before the strip's own, and after them
        self.step = self.width - 2 * self.lead  #: columns that a strip stores
        self.above = levels * radius[0]  #: rows of halo above the outputs, and below
        self.turns = rows + 2 * self.above  #: rows that a strip walks over
        #: columns of a slot after which a piece is left out: lanes then read their own pieces without conflicts
        self.gap = 8 * self.piece
        self.slot = self.width + self.width // self.gap * self.piece  #: elements of a row in the ring
        self.ring = warps * stages * self.slot  #: elements of the rings of all warps
        self.tile = rows, warps * self.step  #: outputs of a block
