"""Tiles, prefetches, waits and barriers: who does which tile, and when its data is fetched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .. import tile as t
from ..expr import Expr, ExprLike, as_expr, maximum, select
from ..op import Box
from .context import Context, rule


def tile_counts(boxes: tuple[Box, ...], rows: int, cols: int) -> list[tuple[int, int]]:
    """How many tiles (down, across) cover each box."""
    return [(-(-(y1 - y0) // rows), -(-(x1 - x0) // cols)) for (y0, y1), (x0, x1) in boxes]


@dataclass(frozen=True)
class Place:
    """First row and column of a tile, and the first ones past its box."""

    y: Expr
    x: Expr
    y_end: Expr
    x_end: Expr

    def unless(self, cond: Expr, other: Place) -> Place:
        """The other place where the predicate holds."""
        return Place(*(select(cond, getattr(other, f), getattr(self, f)) for f in ("y", "x", "y_end", "x_end")))


def place(op: t.ForTiles, number: Expr) -> Place:
    """Where a tile is: the boxes come one after the other, each row by row."""
    first, out = 0, None
    for ((y0, y1), (x0, x1)), (down, across) in zip(op.boxes, tile_counts(op.boxes, op.rows, op.cols), strict=True):
        n = number if first == 0 else maximum(number - first, 0)  # of an earlier box: not selected
        here = Place(n // across * op.rows + y0, n % across * op.cols + x0, as_expr(y1), as_expr(x1))
        out = here if out is None else out.unless(number.ge(first), here)
        first += down * across
    assert out is not None
    return out


@contextmanager
def bound(cx: Context, op: t.ForTiles, number: Expr, turn: ExprLike) -> Iterator[None]:
    """The loop's values stand for the tile of this number."""
    saved = dict(cx.env)
    at = place(op, number)
    cx.env |= {op.number: number, op.turn: as_expr(turn), op.y: cx.b.let("y0", at.y), op.x: cx.b.let("x0", at.x)}
    cx.env |= {op.y_end: cx.b.let("y_end", at.y_end), op.x_end: cx.b.let("x_end", at.x_end)}
    yield
    cx.env = saved


@rule(t.ForTiles)
def for_tiles(cx: Context, op: t.ForTiles) -> None:
    total = sum(a * b for a, b in tile_counts(op.boxes, op.rows, op.cols))
    if not op.stride:
        with bound(cx, op, cx.bx, 0):
            for inner in op.body:
                cx.lower(inner)
        return
    ahead = {p.distance for p in op.body if isinstance(p, t.Prefetch)}
    for d in range(max(ahead, default=0)):  # the first tiles' data, before the loop
        for p in op.body:
            if isinstance(p, t.Prefetch) and d < p.distance:
                _prefetch(cx, op, p, cx.bx + d * op.stride, as_expr(d), total)
    with cx.b.for_("turn", 0, (total + op.stride - 1 - cx.bx) // op.stride, unroll=1) as turn:
        number = cx.b.let("number", cx.bx + turn * op.stride, hi=total - 1)
        with bound(cx, op, number, turn):
            for inner in op.body:
                if isinstance(inner, t.Prefetch):
                    d = inner.distance
                    _prefetch(cx, op, inner, number + d * op.stride, turn + d, total)
                else:
                    cx.lower(inner)


def _prefetch(cx: Context, op: t.ForTiles, p: t.Prefetch, number: Expr, turn: Expr, total: int) -> None:
    def fetch() -> None:
        with bound(cx, op, cx.b.let("later", number, hi=total - 1), turn):
            for inner in p.body:
                cx.lower(inner)

    cx.guard(number.lt(total), fetch)
    cx.b.commit()  # an empty group keeps the count of groups equal to the count of turns


@rule(t.Wait)
def wait(cx: Context, op: t.Wait) -> None:
    cx.b.wait(op.pending)


@rule(t.Barrier)
def barrier(cx: Context, op: t.Barrier) -> None:
    cx.b.barrier()


@rule(t.Alloc)
def alloc(cx: Context, op: t.Alloc) -> None:
    cx.shared.append(op.buf)
    cx.slots[op.buf] = op.slots


@rule(t.Slots)
def slots(cx: Context, op: t.Slots) -> None:
    cx.slots[op.buf] = op.count


@rule(t.Zero)
def zero(cx: Context, op: t.Zero) -> None:
    value, base = cx.b.const(op.dst.dtype, 0.0, hint="zero"), cx.slot_base(op.dst, op.slot)
    with cx.b.for_("e", cx.tid, op.table.size, cx.func.threads) as e:
        at = cx.b.ld(op.table, e, cache="nc", hint="pad", lo=0, hi=op.dst.size // cx.slots.get(op.dst, 1) - 1)
        cx.b.st(op.dst, base + at, value, degree=op.degree)
