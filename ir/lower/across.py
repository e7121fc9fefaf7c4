"""Rows whose length whole pieces do not divide: what of a window lies across the border."""

from __future__ import annotations

from collections.abc import Iterator

from ..boundary_map import elsewhere
from ..expr import Expr, all_of, any_of, as_expr, maximum, minimum, select
from ..numbers.arithmetic import up


class Across:
    """A window of ``width`` columns from ``first`` on, of rows of ``n``, that is copied in pieces of ``vector``.

    Cells across a border that count are copied one by one: those of the piece that ends outside, and a halo of ``lead``
    cells beyond.  Nothing that counts is made of pieces farther out, which are copies of some inside.
    """

    def __init__(self, first: Expr, width: int, lead: int, n: int, vector: int) -> None:
        self.first, self.width, self.vector = first, width, vector
        self.cut, self.end = n - n % vector, up(n + lead, vector)
        self.count = self.end - self.cut  #: single cells of a row at most
        self.clear = all_of(first.ge(0), (first + width).le(n))  #: predicate: there are none
        low, high = (first, as_expr(0)), (as_expr(self.cut), as_expr(self.end))
        self._ends = [low, high]
        if n > width:  # no window has both
            begin, limit = (select(first.lt(0), below, above) for below, above in zip(low, high, strict=True))
            self._ends = [(begin, limit)]

    def piece(self, at: Expr) -> tuple[Expr, Expr]:
        """The column that the piece at column ``at`` is read from, and whether it is copied at once."""
        column = select(at.lt(self.cut), at, elsewhere(at, self.cut, self.vector))
        return column, all_of(at.ge(0), any_of(at.lt(self.cut), at.ge(self.end)))

    def cells(self, i: Expr) -> Iterator[tuple[Expr, Expr, Expr]]:
        """Single cell ``i`` of a row, at either end: its column, its place in the window, whether there is one."""
        for begin, limit in self._ends:
            cell = begin + i
            local = minimum(maximum(cell - self.first, 0), self.width - 1)
            yield cell, local, all_of(cell.ge(self.first), cell.lt(self.first + self.width), cell.lt(limit))
