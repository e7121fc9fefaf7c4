"""Cells of a row and their ghosts: what a row that wraps has of its cells again before its first one and behind its
last, so that whoever reads across the border finds adjacent cells."""

from __future__ import annotations

from collections.abc import Sequence

from ..boundary_map import elsewhere
from ..expr import Expr, Value, all_of, select
from ..grid import Grid
from ..numbers.arithmetic import up
from ..types import Buffer
from .context import Context


def place_of(grid: Grid, column: Expr, vector: int) -> Expr:
    """The place in its row that a piece of a window is read from.

    A window is no farther beyond the first cell than there are ghosts; nothing that counts is made of pieces behind the
    last ghosts.
    """
    place, end = grid.place(column), grid.pitch if vector > 1 else grid.extent[-1]
    return select(place.le(end - vector), place, elsewhere(place, end, vector))


def store_ghosted(
    cx: Context, out: Buffer, grid: Grid, at: Sequence[Expr], values: Sequence[Value], mine: Expr
) -> None:
    """Stores a piece of a row, from ``at`` on, where it is ``mine``: the cells inside the row, and their ghosts.

    Columns of pieces are multiples of their length: so what a piece has at the ends of a row is known but for its
    number, and those far from both ends pass two branches that nobody takes.
    """
    b, n, ghosts, col, first, wide = cx.b, grid.extent[-1], grid.ghosts, at[-1], grid.element(at), len(values)
    cut, low = n - n % wide, up(ghosts, wide)
    high = up(n - ghosts - wide + 1, wide)

    def behind() -> None:
        for e, value in enumerate(values):
            end = up(ghosts - e, wide)
            b.st(out, first + (n + e), value, where=None if end == low else b.let("again", col.lt(end)))

    def before() -> None:
        inside = b.let("in", col.eq(cut))
        for e, value in enumerate(values[: n - cut]):
            b.st(out, first + e, value, where=inside)
        ranges = [(up(n - ghosts - e, wide), up(n - e, wide)) for e in range(wide)]
        again = {r: b.let("again", all_of(col.ge(r[0]), col.lt(r[1]))) for r in dict.fromkeys(ranges)}
        for e, (value, r) in enumerate(zip(values, ranges, strict=True)):
            b.st(out, first + (e - n), value, where=again[r])

    b.st(out, first, *values, where=b.let("whole", all_of(mine, col.lt(cut))))
    cx.guard(all_of(mine, col.lt(low)), behind)
    cx.guard(all_of(mine, col.ge(high)), before)
