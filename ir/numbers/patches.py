"""The numbers of ``patches``: a patch, the window it needs, and a warp's strip of groups of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..expr import Expr, maximum, select
from .arithmetic import up

#: Rows and columns of a patch; a group is as many rows.  Of the patches of eight outputs this takes the fewest mma.
PATCH: Final = (2, 4)


@dataclass(frozen=True)
class Window:
    """The cells of a group that a patch needs, as the K of an mma: all whole quads of columns, then what is left.

    Both rows together fill the last slice, as an even number of columns is left.
    """

    columns: int  #: the patch's and its halo's

    @property
    def quads(self) -> int:
        """Slices a row that take four adjacent columns."""
        return self.columns // 4

    @property
    def slices(self) -> int:
        """Slices of four of a group."""
        return PATCH[0] * self.columns // 4

    def cell(self, k: Expr) -> tuple[Expr, Expr]:
        """(row, column) of operand element k."""
        whole = 4 * PATCH[0] * self.quads
        row, column = k // 4 // self.quads, k // 4 % self.quads * 4 + k % 4
        if not (rest := self.columns % 4):
            return row, column
        inside, left = k.lt(whole), maximum(k - whole, 0)
        return select(inside, row, left // rest), select(inside, column, left % rest + 4 * self.quads)


class Groups:
    """``warps`` strips of ``strips`` sub-strips, ``m`` patches wide each, ``rows`` outputs down; all in elements.

    ``radius`` is a level's, in rows and columns; ``stages`` groups of each strip are under way.
    """

    def __init__(
        self, *, radius: tuple[int, int], levels: int, m: int, strips: int, rows: int, warps: int, stages: int
    ) -> None:
        (height, across), (ry, rx) = PATCH, radius
        self.window = Window(across + 2 * rx)  #: what a patch needs of a group
        self.touched = up(height + 2 * ry, height) // height  #: groups of outputs that need a group of rows
        self.fragments = self.touched * self.window.slices  #: weights that a lane holds
        self.lead = up(rx * levels, 2)  #: columns of the window before the strip's own
        self.shift = self.lead - rx * levels  #: columns fetched for nothing but alignment
        self.above = ry * levels  #: rows of halo above the outputs
        self.part = m * across  #: columns of a sub-strip
        self.columns = strips * self.part  #: columns of a strip that are computed
        #: columns of a strip that are right after all levels (each of them spoils its halo at the right end)
        self.step = (self.columns - 2 * rx * (levels - 1)) // across * across
        self.width = up(self.shift + self.columns + 2 * rx, 2)  #: columns of a strip's window
        #: columns from row to row of a group, so that its slices are read without conflicts: a quad of columns is read
        #: by adjacent patches in a row; where a slice takes two columns of both rows, these must fill each other's
        #: gaps: then rows are 2 (mod 4) apart
        self.pitch = self.width + 2 if rx % 2 and self.width % 4 == 0 else self.width
        self.size = height * self.pitch  #: elements of a group
        self.ring = warps * stages * self.size  #: elements of the rings of all warps
        self.between = warps * (levels - 1) * self.size  #: elements of the groups that levels hand on, of all warps
        #: turns until the first outputs: each level runs one turn behind the one before
        self.delay = (self.touched - 1) * levels + levels - 1
        self.turns = rows // height + self.delay  #: groups that a strip walks over
        self.tile = rows, warps * self.step  #: outputs of a block
