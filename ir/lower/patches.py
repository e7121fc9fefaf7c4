"""What runs in a walk of ``patches``: levels on tensor cores, group by group of rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from .. import tile_products as t
from ..expr import Expr, Value, all_of
from ..fragments import SHAPES
from ..types import Buffer
from .context import Context, rule
from .product import accumulate
from .store import in_box


def share(cx: Context, buf: Buffer) -> Expr:
    """First element of the warp's share of a shared buffer."""
    return cx.warp * (buf.size // (cx.func.threads // 32))


@rule(t.ReadGroup)
def read_group(cx: Context, op: t.ReadGroup) -> None:
    b, (strips, _, depth) = cx.b, op.a.extents
    rows = range(0, SHAPES[op.shape].m, 8)
    cx.alloc(op.held)
    g, lane_t = cx.coordinates()
    base = b.let("from", share(cx, op.src) + cx.resolve(op.at))
    with b.for_("s", 0, strips, unroll=0) as s:
        for i in range(depth // 4):
            for j, row in enumerate(rows):
                lanes = [(0, lane // 4 + row, 4 * i + lane % 4) for lane in range(32)]
                degree = op.a.conflict_degree(lanes, op.src.dtype.nbytes)
                v = b.ld(op.src, base + op.a(s, g + row, 4 * i + lane_t), hint="a", degree=degree)
                b.st(op.held, (s * (depth // 4) + i) * len(rows) + j, v)


@rule(t.AddGroup)
def add_group(cx: Context, op: t.AddGroup) -> None:
    """The sums move on one group as they are added to: mma has C and D apart, so that costs nothing."""
    b, base = cx.b, SHAPES[op.shape]
    regs = len(base.c.elements)
    cx.alloc(op.done)
    zero = b.const(op.done.dtype, 0.0, hint="zero")
    with b.for_("s", 0, op.strips, unroll=0) as s:
        for q in reversed(range(op.touched)):
            c: Sequence[Value] = [zero] * regs
            if q:
                old = ((op.level * (op.touched - 1) + q - 1) * op.strips + s) * regs
                c = [b.ld(op.sums, old + e, hint="c") for e in range(regs)]
            c = accumulate(cx, op.shape, op.slices, partial(_operand, cx, op, s), partial(_weight, cx, op, q), c)
            last = q == op.touched - 1
            to = s * regs if last else ((op.level * (op.touched - 1) + q) * op.strips + s) * regs
            for e, v in enumerate(c):
                b.st(op.done if last else op.sums, to + e, v)


def _operand(cx: Context, op: t.AddGroup, strip: Expr, i: int) -> list[Value]:
    """Slice i of a sub-strip's operands."""
    rows = SHAPES[op.shape].m // 8
    return [cx.b.ld(op.held, (strip * op.slices + i) * rows + j, hint="a") for j in range(rows)]


def _weight(cx: Context, op: t.AddGroup, q: int, i: int) -> Value:
    """Slice i of the weights for the q-th youngest of the touched groups."""
    return cx.b.ld(op.weights, q * op.slices + i, hint="w")


def _cells(shape: str) -> list[tuple[int, int]]:
    """(row - g, column - 2 t) of a lane's elements of an accumulator."""
    return [place(0, 0) for place in SHAPES[shape].c.elements]


@rule(t.PassGroup)
def pass_group(cx: Context, op: t.PassGroup) -> None:
    b, places = cx.b, _cells(op.shape)
    g, lane_t = cx.coordinates()
    base = b.let("to", share(cx, op.dst) + cx.resolve(op.at))
    with b.for_("s", 0, op.c.extents[0], unroll=0) as s:
        for e, (m, n) in enumerate(places):
            lanes = [(0, lane // 4 + m, lane % 4 * 2 + n) for lane in range(32)]
            degree = op.c.conflict_degree(lanes, op.dst.dtype.nbytes)
            v = b.ld(op.done, s * len(places) + e, hint="o")
            b.st(op.dst, base + op.c(s, g + m, lane_t * 2 + n), v, degree=degree)


@rule(t.StoreGroup)
def store_group(cx: Context, op: t.StoreGroup) -> None:
    b, places = cx.b, _cells(op.shape)
    turn, rows = cx.resolve(op.turn), op.c.shape()[0]
    g, lane_t = cx.coordinates()
    y, x = map(cx.resolve, op.at)
    first = x + cx.warp * op.step

    def store() -> None:
        top = b.let("top", y + (turn - op.delay) * rows, lo=0)
        with b.for_("s", 0, op.c.extents[0], unroll=0) as s:
            for e, (m, n) in enumerate(places):
                row, local = op.c.at(s, g + m, lane_t * 2 + n)
                where = b.let("in", all_of(local.lt(op.step), in_box(top + row, first + local, op.box)))
                v = b.ld(op.done, s * len(places) + e, hint="o")
                b.st(op.dst, (top + row) * op.grid.pitch + first + local, v, where=where)

    cx.guard(turn.ge(op.delay), store)
