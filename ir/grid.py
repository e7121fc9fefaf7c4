"""Fields as kernels address them: where a cell lies, and what is read outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from .boundary_map import Mapped, map_index
from .expr import Expr, any_of
from .op import Sides
from .text import attribute


@attribute
@dataclass(frozen=True)
class Grid:
    """A field of ``extent`` cells in global memory, its rows ``pitch`` elements apart; ``sides`` hold outside of it.

    ``ghosts``: a row that wraps has so many of its last cells again before its first one, and of its first ones behind
    its last.  What reads across a border reads these as they lie; what stores a cell stores its ghosts, too.  ``lead``:
    elements of a row before its first cell, the last of which are ghosts; how many there should be says
    :func:`sparsegen.ir.numbers.memory.lead`.
    """

    extent: tuple[int, ...]
    pitch: int
    sides: Sides = ()
    ghosts: int = 0
    lead: int = 0

    @property
    def size(self) -> int:
        """Elements from the first row to the end of the last."""
        return prod(self.extent[:-1]) * self.pitch

    def row(self, at: Sequence[Expr]) -> Expr:
        """The number of a row, counted over all planes: ``at`` has all coordinates but the column."""
        row = at[0]
        for i, n in zip(at[1:], self.extent[1:], strict=False):
            row = row * n + i
        return row

    def element(self, at: Sequence[Expr]) -> Expr:
        """The element that a cell is."""
        return self.row(at[:-1]) * self.pitch + self.place(at[-1])

    def place(self, column: Expr) -> Expr:
        """The place of a column in its row."""
        return column + self.lead if self.lead else column

    def mapped(self, at: Sequence[Expr]) -> tuple[Expr, tuple[Mapped, ...]]:
        """The element that a cell, perhaps one outside, is read from, and what each axis has made of it."""
        axes = tuple(map_index(i, n, pair) for i, n, pair in zip(at, self.extent, self.sides, strict=True))
        return self.element([m.index for m in axes]), axes


def keep(radius: tuple[int, ...], sides: Sides, steps: int = 1) -> tuple[tuple[int, int], ...]:
    """How many cells from each border a kernel must leave as they are: frozen sides keep the radius of one step."""
    return tuple(
        (r if low == "frozen" else 0, r if high == "frozen" else 0) if steps == 1 else (0, 0)
        for r, ((low, _), (high, _)) in zip(radius, sides, strict=True)
    )


def kept(at: Sequence[Expr], extent: Sequence[int], keep: Sequence[tuple[int, int]]) -> Expr:
    """Whether a frozen border keeps a cell: ``keep`` cells from the low and the high end of each axis."""
    near: list[Expr] = []
    for i, n, (low, high) in zip(at, extent, keep, strict=True):
        near += [i.lt(low)] if low else []
        near += [i.ge(n - high)] if high else []
    return any_of(*near)
