"""Results to global memory: the cells of a box, and those that a frozen border keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product as iterate
from typing import Any

from .. import tile as t
from ..expr import TRUE, Expr, Value, all_of, any_of
from ..fragments import SHAPES
from ..grid import kept
from ..op import Box
from ..spread import Products, Spread, Strips, Threads
from .context import Context, rule


@dataclass(frozen=True)
class Cell:
    """A cell of the output, whether this lane has one at all, and its place on the axes before the rows."""

    row: Expr
    col: Expr
    valid: Expr = TRUE
    lead: tuple[Expr, ...] = ()

    @property
    def at(self) -> tuple[Expr, ...]:
        """All its coordinates."""
        return (*self.lead, self.row, self.col)


def in_box(row: Expr, col: Expr, box: Box, lead: tuple[Expr, ...] = ()) -> Expr:
    """Whether a cell lies in a box."""
    return all_of(*(t for i, (low, high) in zip((*lead, row, col), box, strict=True) for t in (i.ge(low), i.lt(high))))


def _with_keep(cx: Context, op: t.Store, cells: Callable[[bool], None]) -> None:
    """Runs ``cells(True)`` for tiles that reach a frozen border and ``cells(False)`` for all others."""
    sides: list[Expr] = []
    size = (*(1,) * (len(op.at) - 2), *op.spread.size)
    for lo, n, cells_of, (low, high) in zip(map(cx.resolve, op.at), size, op.grid.extent, op.keep, strict=True):
        sides += [lo.lt(low)] if low else []
        sides += [(lo + n).gt(cells_of - high)] if high else []
    cx.branch(cx.b.let("border", any_of(*sides)), lambda: cells(True), lambda: cells(False))


def _store_cells(cx: Context, op: t.Store, cell: Cell, vals: Sequence[Value], *, keep: bool) -> None:
    """Stores adjacent values, converted, where the cells are in the box; kept cells take their old value."""
    b, col, n = cx.b, cell.col, len(vals)
    vals = [cx.to_cell(v, op.dst.dtype) for v in vals]
    index, old = op.grid.element(cell.at), replace(op.grid, pitch=op.src_pitch).element(cell.at)
    inside = [b.let("in", all_of(cell.valid, in_box(cell.row, col + j, op.box, cell.lead))) for j in range(n)]
    together = n > 1 and op.vector == n
    if together and not any(x % n for x in op.box[-1]):
        inside = inside[:1] * n  # they start at a multiple of their number: the box takes all or none
    if keep:
        vals = [
            b.select(k, b.ld(op.src, old + j, where=all_of(inside[j], k), hint="old"), v)
            for j, v in enumerate(vals)
            for k in (b.let("kept", kept((*cell.at[:-1], col + j), op.grid.extent, op.keep)),)
        ]
    if together:
        b.st(op.dst, index, *vals, where=_or_none(all_of(*inside)))
        if inside[0] == inside[-1]:
            return
        for j, v in enumerate(vals):
            some = any_of(*(other.eq(0) for i, other in enumerate(inside) if i != j))
            b.st(op.dst, index + j, v, where=all_of(inside[j], some))
        return
    for j, v in enumerate(vals):
        b.st(op.dst, index + j, v, where=_or_none(inside[j]))


def _or_none(where: Expr) -> Expr | None:
    return None if where == TRUE else where


#: Takes a first register, how many follow it, and what gives the cell of the first one.
Visit = Callable[[Expr, int, Callable[[], Cell]], None]


@rule(t.Store)
def store(cx: Context, op: t.Store) -> None:
    b, each = cx.b, _EACH[type(op.spread)](cx, op.spread)
    *lead, y, x = map(cx.resolve, op.at)

    def cells(keep: bool) -> None:
        def visit(register: Expr, count: int, place: Callable[[], Cell]) -> None:
            vals = [b.ld(op.acc, register + j, hint="o") for j in range(count)]
            _store_cells(cx, op, replace(place(), lead=tuple(lead)), vals, keep=keep)

        each(y, x, visit)

    _with_keep(cx, op, cells)


def _threads(cx: Context, spread: Threads) -> Callable[[Expr, Expr, Visit], None]:
    b, (ty, tx) = cx.b, cx.place(spread.shape)

    def each(y: Expr, x: Expr, visit: Visit) -> None:
        with b.for_("j", 0, spread.per_y, unroll=0) as j:
            row, col = b.let("row", y + ty * spread.per_y + j), b.let("col", x + tx * spread.per_x)
            visit(j * spread.per_x, spread.per_x, partial(Cell, row, col))

    return each


def _products(cx: Context, spread: Products) -> Callable[[Expr, Expr, Visit], None]:
    """Two adjacent columns at a time, as a lane holds them."""
    b, base = cx.b, SHAPES[spread.base]
    per_warp, regs = spread.products // spread.warps, len(base.c.elements)
    g, lane_t = cx.coordinates()

    def each(y: Expr, x: Expr, visit: Visit) -> None:
        with b.for_("i", 0, per_warp, unroll=0) as i:
            product = cx.warp * per_warp + i
            row, across = b.let("row", y + product % spread.rows), product // spread.rows * base.m
            for n, e in iterate(range(spread.blocks), range(0, regs, 2)):
                inside, m = (lane_t * 2 + 8 * n).lt(spread.group), base.c.elements[e](0, 0)[0]

                def place(n: int = n, m: int = m, inside: Expr = inside) -> Cell:
                    return Cell(row, b.let("col", x + (across + g + m) * spread.group + lane_t * 2 + 8 * n), inside)

                visit((i * spread.blocks + n) * regs + e, 2, place)

    return each


def _strips(cx: Context, spread: Strips) -> Callable[[Expr, Expr, Visit], None]:
    b, base = cx.b, SHAPES[spread.base]
    regs = len(base.c.elements)
    g, lane_t = cx.coordinates()
    first, left = cx.warp % spread.strips * base.m, cx.warp // spread.strips * (8 * spread.blocks)

    def each(y: Expr, x: Expr, visit: Visit) -> None:
        with b.for_("n", 0, spread.blocks, unroll=0) as n:
            col = b.let("col", x + (left + n * 8 + lane_t * 2))
            for h in range(base.m // 8):
                row = b.let("row", y + (first + g + 8 * h))
                visit(n * regs + 2 * h, 2, partial(Cell, row, col))

    return each


_EACH: dict[type[Spread], Callable[[Context, Any], Callable[[Expr, Expr, Visit], None]]] = {
    Threads: _threads, Products: _products, Strips: _strips,
}  # fmt: skip
