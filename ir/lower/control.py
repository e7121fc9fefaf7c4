"""Tiles, prefetches, waits and barriers: who does which tile, and when its data is fetched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from .. import tile as t
from ..expr import Expr, ExprLike, as_expr, maximum, select
from ..op import AXES, tile_counts
from .context import Context, rule


@dataclass(frozen=True)
class Place:
    """First cell of a tile, and the first ones past its box, on each axis."""

    at: tuple[Expr, ...]
    end: tuple[Expr, ...]

    def unless(self, cond: Expr, other: Place) -> Place:
        """The other place where the predicate holds."""
        at, end = (
            tuple(select(cond, new, old) for new, old in zip(getattr(other, f), getattr(self, f), strict=True))
            for f in ("at", "end")
        )
        return Place(at, end)


def place(op: t.ForTiles, number: Expr) -> Place:
    """Where a tile is: the boxes come one after the other, in each the last axis is the fastest."""
    first, out = 0, None
    for box in op.boxes:
        n = number if first == 0 else maximum(number - first, 0)  # of an earlier box: not selected
        at: list[Expr] = []
        counts = tile_counts(box, op.size)
        for axis in reversed(range(len(box))):
            here = n if axis == 0 else n % counts[axis]
            at.append(here * op.size[axis] + box[axis][0])
            n = n // counts[axis]
        spot = Place(tuple(reversed(at)), tuple(as_expr(high) for _, high in box))
        out = spot if out is None else out.unless(number.ge(first), spot)
        first += prod(counts)
    assert out is not None
    return out


@contextmanager
def bound(cx: Context, op: t.ForTiles, number: Expr, turn: ExprLike) -> Iterator[None]:
    """The loop's values stand for the tile of this number."""
    with cx.scope():
        spot = place(op, number)
        cx.env |= {op.number: number, op.turn: as_expr(turn)}
        for values, exprs, hint in ((op.at, spot.at, "{}0"), (op.end, spot.end, "{}_end")):
            for value, e, axis in zip(values, exprs, AXES[-len(values) :], strict=True):
                cx.env[value] = cx.b.let(hint.format(axis), e)
        yield


@rule(t.ForTiles)
def for_tiles(cx: Context, op: t.ForTiles) -> None:
    total = sum(prod(tile_counts(box, op.size)) for box in op.boxes)
    if not op.stride:
        with bound(cx, op, _early(cx, op, total), 0):
            cx.all(op.body)
        _tell(cx, op)
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


def _early(cx: Context, op: t.ForTiles, total: int) -> Expr:
    """The number of a block's tile: those of the box's end come first, then those of its beginning, then the others."""
    last = op.first * op.early[0] // max(1, sum(op.early))
    if not last:
        return cx.bx
    return cx.b.let("tile", select(cx.bx.lt(last), cx.bx + (total - last), cx.bx - last), lo=0, hi=total - 1)


def _tell(cx: Context, op: t.ForTiles) -> None:
    """A block whose tile comes early says that it is done, all its stores before that."""
    if op.told is None:
        return
    with cx.b.if_(cx.bx.lt(op.first)):
        cx.b.barrier()
        with cx.b.if_(cx.tid.eq(0)):
            cx.b.fence("gpu")
            cx.b.atom("add", op.told, 0, 1, hint="told")


def _prefetch(cx: Context, op: t.ForTiles, p: t.Prefetch, number: Expr, turn: Expr, total: int) -> None:
    def fetch() -> None:
        with bound(cx, op, cx.b.let("later", number, hi=total - 1), turn):
            cx.all(p.body)

    cx.guard(number.lt(total), fetch)
    cx.b.commit()  # an empty group keeps the count of groups equal to the count of turns


@rule(t.Prefetch)
def fetch(cx: Context, op: t.Prefetch) -> None:
    """In a block of one tile: that tile's own data."""
    cx.all(op.body)
    cx.b.commit()


@rule(t.Wait)
def wait(cx: Context, op: t.Wait) -> None:
    cx.b.wait(op.pending)


@rule(t.Meet)
def meet(cx: Context, op: t.Meet) -> None:
    (cx.b.barrier if op.scope == "block" else cx.b.sync)()


@rule(t.Overlap)
def overlap(cx: Context, op: t.Overlap) -> None:
    (cx.b.launch_wait if op.launch == "last" else cx.b.launch_next)()


@rule(t.Alloc)
def alloc(cx: Context, op: t.Alloc) -> None:
    if op.buf.space == "reg":
        cx.alloc(op.buf)
        if op.zeroed:
            cx.clear(op.buf)
        return
    cx.shared.append(op.buf)
    cx.slots[op.buf] = op.slots
    if not op.zeroed:
        return
    each = op.buf.size // (cx.func.threads // 32)
    zero, base = cx.zero(op.buf.dtype), cx.b.let("own", cx.warp * each)
    with cx.b.for_("z", cx.lane, each, 32) as z:
        cx.b.st(op.buf, base + z, zero)


@rule(t.When)
def when(cx: Context, op: t.When) -> None:
    b = cx.b
    here = b.name(cx.resolve(op.pred), "here")
    with cx.scope(), b.if_(here):
        cx.all(op.body)
    if op.other:
        with cx.scope(), b.else_():
            cx.all(op.other)


@rule(t.Slots)
def slots(cx: Context, op: t.Slots) -> None:
    cx.slots[op.buf] = op.count


@rule(t.Zero)
def zero(cx: Context, op: t.Zero) -> None:
    value, base = cx.b.const(op.dst.dtype, 0.0, hint="zero"), cx.slot_base(op.dst, op.slot)
    with cx.b.for_("e", cx.tid, op.table.size, cx.func.threads) as e:
        at = cx.b.ld(op.table, e, cache="nc", hint="pad", lo=0, hi=op.dst.size // cx.slots.get(op.dst, 1) - 1)
        cx.b.st(op.dst, base + at, value, degree=op.degree)


@rule(t.Fragments)
def fragments(cx: Context, op: t.Fragments) -> None:
    cx.alloc(op.regs)
    with cx.b.for_("r", 0, op.regs.size, unroll=0) as r:
        cx.b.st(op.regs, r, cx.b.ld(op.table, (r + op.first) * 32 + cx.lane, cache="nc", hint="wf"))
