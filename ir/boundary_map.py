"""How an index outside the domain is read: the meaning of each boundary as index arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from .expr import TRUE, Expr, ExprLike, all_of, as_expr, maximum, minimum, select
from .op import Sides, SideSpec

#: An axis that wraps, and one of which the edge is read for all that lies outside.
PERIODIC: tuple[SideSpec, SideSpec] = (("periodic", 0.0), ("periodic", 0.0))
EDGE: tuple[SideSpec, SideSpec] = (("frozen", 0.0), ("frozen", 0.0))


@dataclass(frozen=True)
class Mapped:
    """The cell to read instead (always inside the domain), and where a constant stands in for it."""

    index: Expr
    inside: Expr  # predicate: false where the cell holds a dirichlet value
    below: Expr  # predicate: the index is under 0
    low: float
    high: float


def map_index(i: ExprLike, n: int, sides: tuple[SideSpec, SideSpec]) -> Mapped:
    """The cell of an axis of ``n`` cells that index ``i`` means; |overhang| of at most n - 1 cells is exact.

    Farther out (a partial last tile) the cell is any cell of the domain: such values are never used.
    """
    e = as_expr(i)
    below, above = e.lt(0), e.ge(n)
    (low, low_value), (high, high_value) = sides
    out = select(below, {"periodic": e + n, "neumann": -1 - e}.get(low, as_expr(0)), e)
    out = select(above, {"periodic": e - n, "neumann": 2 * n - 1 - e}.get(high, as_expr(n - 1)), out)
    inside = all_of(e.ge(0) if low == "dirichlet" else TRUE, e.lt(n) if high == "dirichlet" else TRUE)
    return Mapped(minimum(maximum(out, 0), n - 1), inside, below, low_value, high_value)


def any_cell(sides: Sides) -> Sides:
    """The sides for reads of a field whose cells outside matter only where an axis is periodic; else any cell will do.

    Along rows such reads wrap too: single cells that lanes copy from one address would take a wavefront each (counters:
    a window that hangs over by 83 of 128 columns, 45 % more).  Of the other axes the edge is read.
    """
    return (*(pair if pair[0][0] == "periodic" else EDGE for pair in sides[:-1]), PERIODIC)


def elsewhere(place: Expr, end: int, vector: int) -> Expr:
    """Where a piece of a row of ``end`` cells is read whose ``place`` is behind them, where nothing that counts is made
    of it: among the last few of the row, which are read anyway.

    Lanes that copy from one address to several in shared memory take a wavefront each (counters: 32 instead of one
    where all single cells of a warp lie behind); addresses all over the row would all be read once more.
    """
    whole = max(end - end % vector, vector)
    few = min(whole, 4 * vector if vector > 1 else 8)
    return maximum(place, 0) % few + (whole - few)
