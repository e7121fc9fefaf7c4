"""``tile.slide``: operand A is read once and added to the unfinished sums that it touches; sums move up by one.

An mma has separate registers for the sum that it reads and the one that it makes, so moving the sums costs nothing.
"""

from __future__ import annotations

from functools import partial

from .. import tile_products as t
from ..expr import Expr, Value, all_of
from ..fragments import SHAPES, MmaShape
from .context import Context, rule


def fragment_degree(op: t.Slide, shape: MmaShape) -> int:
    """Bank-conflict degree of the loads of A: the worst over the columns of a run."""
    cols = op.layout.extents[1]
    return max(
        op.layout.conflict_degree([(lane // 4, c + lane % 4) for lane in range(32)], op.src.dtype.nbytes)
        for c in range(0, cols - 3, 4)
    )


@rule(t.Slide)
def slide(cx: Context, op: t.Slide) -> None:
    b, shape = cx.b, SHAPES[op.shape]
    regs, last = len(shape.c.elements), op.bands - 1
    cx.alloc(op.acc)
    g, lane_t = cx.coordinates()
    run, base, degree = cx.warp * shape.m + g, cx.slot_base(op.src, op.slot), fragment_degree(op, shape)
    zero = b.const(op.acc.dtype, 0.0, hint="zero")
    for e in range(regs):  # what a product's sum begins with
        b.st(op.acc, op.bands * regs + e, zero)
    with b.for_("c", 0, op.products + last, unroll=0) as c:
        fragments = []
        for s in range(8 // shape.k):
            at = [(run + row, c * 8 + (s * shape.k + col) + lane_t) for row, col in (x(0, 0) for x in shape.a.elements)]
            fragments.append([b.ld(op.src, base + op.layout(*x), hint="a", degree=degree) for x in at])
        for s, a in enumerate(fragments):
            with b.for_("k", 0, op.bands, unroll=0) as k:  # the product that k more groups of eight columns will touch
                one = all_of((c + k).ge(last), (c + k).lt(op.products + last))
                cx.guard(one, partial(_add, cx, op, a, k, s))
        cx.guard(c.ge(last), partial(_finished, cx, op, c - last))


def _add(cx: Context, op: t.Slide, a: list[Value], k: Expr, s: int) -> None:
    """Adds the s-th fragment of eight columns to sum k; the first one takes it from where it was, one further up."""
    b, shape = cx.b, SHAPES[op.shape]
    regs, slices = len(shape.c.elements), shape.k // 4
    first = (op.bands - 1 - k) * 2 + s * slices
    weights = [b.ld(op.weights, first + j, hint="w") for j in range(slices)]
    cx.multiply(op.shape, a, weights, op.acc, (k if s else k + 1) * regs, k * regs)


def _finished(cx: Context, op: t.Slide, product: Expr) -> None:
    cx.env[op.product] = cx.b.let("i", product, lo=0)
    cx.all(op.body)
