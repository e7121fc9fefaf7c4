"""Results to global memory: the cells of a box, and those that a frozen border keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import tile as t
from ..expr import TRUE, Expr, Value, all_of, any_of
from ..op import Box
from .context import Context

StoreOp = t.StoreFragments | t.StorePoints


@dataclass(frozen=True)
class Cell:
    """A cell of the output, and whether this lane has one at all."""

    row: Expr
    col: Expr
    valid: Expr = TRUE


def in_box(row: Expr, col: Expr, box: Box) -> Expr:
    """Whether a cell lies in a box."""
    (y0, y1), (x0, x1) = box
    return all_of(row.ge(y0), row.lt(y1), col.ge(x0), col.lt(x1))


def kept(row: Expr, col: Expr, op: StoreOp) -> Expr:
    """Whether a frozen border keeps the cell: ``keep`` cells from the low and the high side of each axis."""
    (y_low, y_high), (x_low, x_high) = op.keep
    ny, nx = op.extent
    sides = []
    for i, n, low, high in ((row, ny, y_low, y_high), (col, nx, x_low, x_high)):
        sides += [i.lt(low)] if low else []
        sides += [i.ge(n - high)] if high else []
    return any_of(*sides)


def with_keep(cx: Context, op: StoreOp, cells: Callable[[bool], None], rows: int, cols: int) -> None:
    """Runs ``cells(True)`` for tiles that reach a frozen border and ``cells(False)`` for all others."""
    y, x = cx.resolve(op.y), cx.resolve(op.x)
    (y_low, y_high), (x_low, x_high) = op.keep
    ny, nx = op.extent
    sides = []
    for lo, size, n, low, high in ((y, rows, ny, y_low, y_high), (x, cols, nx, x_low, x_high)):
        sides += [lo.lt(low)] if low else []
        sides += [(lo + size).gt(n - high)] if high else []
    cond = any_of(*sides)
    cx.branch(cx.b.let("border", cond), lambda: cells(True), lambda: cells(False))


def store_cells(cx: Context, op: StoreOp, cell: Cell, vals: Sequence[Value], *, keep: bool) -> None:
    """Stores one value or an adjacent pair where the cells are in the box; kept cells take their old value."""
    b, (row, col) = cx.b, (cell.row, cell.col)
    index, old = row * op.pitch + col, row * op.src_pitch + col
    inside = [b.let("in", all_of(cell.valid, in_box(row, col + j, op.box))) for j in range(len(vals))]
    if op.vector == 2 and len(vals) == 2 and not any(x % 2 for x in op.box[1]):
        inside[1] = inside[0]  # a pair starts at an even column: the box takes both or none
    if keep:
        vals = [
            b.select(k, b.ld(op.src, old + j, where=all_of(inside[j], k), hint="old"), v)
            for j, v in enumerate(vals)
            for k in (b.let("kept", kept(row, col + j, op)),)
        ]
    if len(vals) == 2 and op.vector == 2:
        both = all_of(*inside)
        b.st(op.dst, index, *vals, where=_or_none(both))
        if inside[0] == inside[1]:
            return
        for j in (0, 1):
            b.st(op.dst, index + j, vals[j], where=all_of(inside[j], inside[1 - j].eq(0)))
        return
    for j, v in enumerate(vals):
        b.st(op.dst, index + j, v, where=_or_none(inside[j]))


def _or_none(where: Expr) -> Expr | None:
    return None if where == TRUE else where
