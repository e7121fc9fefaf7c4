"""Cells of a row and their ghosts: what a row that wraps has of its cells again before its first one and behind its
last, so that whoever reads across the border finds adjacent cells."""

from __future__ import annotations

from collections.abc import Sequence

from ..expr import Expr, Value, all_of, minimum, select
from ..grid import Grid
from ..types import Buffer
from .context import Context


def place_of(grid: Grid, column: Expr, vector: int) -> Expr:
    """The place in its row that a piece of a window is read from.

    A window is no farther beyond the first cell than there are ghosts; of pieces behind the last ghosts, which nothing
    that counts is made of, the row's last one is read.
    """
    return minimum(grid.place(column), grid.pitch - vector)


def store_ghosted(
    cx: Context, out: Buffer, grid: Grid, at: Sequence[Expr], values: Sequence[Value], mine: Expr
) -> None:
    """Stores a piece of a row, from ``at`` on, where it is ``mine``: the cells inside the row, and their ghosts.

    Far from the ends of a row that is one store.  A piece at the low end has ghosts of all its cells.
    """
    b, n, ghosts, col, first = cx.b, grid.extent[-1], grid.ghosts, at[-1], grid.element(at)
    clear = all_of(col.ge(ghosts), (col + len(values)).le(n - ghosts))
    b.st(out, first, *values, where=b.let("whole", all_of(mine, clear)))

    def single() -> None:
        low = col.lt(ghosts)
        again, since = first + b.let("away", select(low, n, -n)), b.let("since", select(low, 0, n - ghosts))
        for e, value in enumerate(values):
            inside = b.let("in", (col + e).lt(n))
            b.st(out, first + e, value, where=inside)
            b.st(out, again + e, value, where=b.let("again", all_of(inside, (col + e).ge(since))))

    cx.guard(all_of(mine, clear.eq(0)), single)
