"""Results to global memory: the cells of a box, and those that a frozen border keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import tile as t
from .. import tile_lowrank as lr
from ..expr import TRUE, Expr, Value, all_of, any_of
from ..op import Box
from .context import Context

StoreOp = t.StoreFragments | t.StorePoints | lr.StoreBlocks


@dataclass(frozen=True)
class Cell:
    """A cell of the output, whether this lane has one at all, and its place on the axes before the rows."""

    row: Expr
    col: Expr
    valid: Expr = TRUE
    lead: tuple[Expr, ...] = ()

    def element(self, extent: tuple[int, ...], pitch: int) -> Expr:
        """Its element in a field whose rows are ``pitch`` apart."""
        return row_of((*self.lead, self.row), extent) * pitch + self.col


def row_of(at: Sequence[Expr], extent: Sequence[int]) -> Expr:
    """The number of a row, counted over all planes: ``at`` has all coordinates but the column."""
    row = at[0]
    for i, n in zip(at[1:], extent[1:], strict=False):
        row = row * n + i
    return row


def in_box(row: Expr, col: Expr, box: Box, lead: tuple[Expr, ...] = ()) -> Expr:
    """Whether a cell lies in a box."""
    return all_of(*(t for i, (low, high) in zip((*lead, row, col), box, strict=True) for t in (i.ge(low), i.lt(high))))


def kept(cell: Cell, col: Expr, op: StoreOp) -> Expr:
    """Whether a frozen border keeps the cell: ``keep`` cells from the low and the high side of each axis."""
    sides = []
    for i, n, (low, high) in zip((*cell.lead, cell.row, col), op.extent, op.keep, strict=True):
        sides += [i.lt(low)] if low else []
        sides += [i.ge(n - high)] if high else []
    return any_of(*sides)


def with_keep(
    cx: Context, op: StoreOp, cells: Callable[[bool], None], rows: int, cols: int, lead: tuple[Expr, ...] = ()
) -> None:
    """Runs ``cells(True)`` for tiles that reach a frozen border and ``cells(False)`` for all others."""
    first = (*lead, cx.resolve(op.y), cx.resolve(op.x))
    sides = []
    for lo, size, n, (low, high) in zip(first, (1,) * len(lead) + (rows, cols), op.extent, op.keep, strict=True):
        sides += [lo.lt(low)] if low else []
        sides += [(lo + size).gt(n - high)] if high else []
    cond = any_of(*sides)
    cx.branch(cx.b.let("border", cond), lambda: cells(True), lambda: cells(False))


def store_cells(cx: Context, op: StoreOp, cell: Cell, vals: Sequence[Value], *, keep: bool) -> None:
    """Stores adjacent values, converted, where the cells are in the box; kept cells take their old value."""
    b, col, n = cx.b, cell.col, len(vals)
    vals = [cx.convert(v, op.dst.dtype) for v in vals]
    index, old = cell.element(op.extent, op.pitch), cell.element(op.extent, op.src_pitch)
    inside = [b.let("in", all_of(cell.valid, in_box(cell.row, col + j, op.box, cell.lead))) for j in range(n)]
    together = n > 1 and op.vector == n
    if together and not any(x % n for x in op.box[-1]):
        inside = inside[:1] * n  # they start at a multiple of their number: the box takes all or none
    if keep:
        vals = [
            b.select(k, b.ld(op.src, old + j, where=all_of(inside[j], k), hint="old"), v)
            for j, v in enumerate(vals)
            for k in (b.let("kept", kept(cell, col + j, op)),)
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
