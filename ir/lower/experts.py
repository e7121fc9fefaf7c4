"""Which block of a product with several matrices has which strips and columns."""

from __future__ import annotations

from .. import tile_experts as t
from ..expr import Expr, all_of, as_expr, maximum, minimum
from ..types import s32, u32
from .bitmap import exclusive, part
from .context import Context, rule


@rule(t.ShareExperts)
def share_experts(cx: Context, op: t.ShareExperts) -> None:
    b = cx.b
    cx.shared += op.shared
    with b.if_(cx.tid.lt(32)):
        _find(cx, op)
    b.barrier()
    expert = b.ld(op.task, 0, hint="expert", lo=0, hi=op.experts)
    with b.if_(expert.lt(op.experts)), cx.scope():
        run = b.let("run", cx.bx // (op.splits * op.tiles))
        start = b.let("start", part(run, op.groups, op.strips))
        count = b.let("count", part(run + 1, op.groups, op.strips) - start, lo=0, hi=-(-op.strips // op.groups))
        one = b.let("one", expert, hi=op.experts - 1)
        cx.env |= {
            op.first: b.let("first", one * op.strips + start, hi=op.experts * op.strips - 1), op.count: count,
            op.split: b.let("split", cx.bx // op.tiles % op.splits), op.expert: one,
            op.column: b.ld(op.task, 1, hint="column", lo=0, hi=op.n - 1),
            op.end: b.ld(op.task, 2, hint="end", lo=0, hi=op.n),
        }  # fmt: skip
        cx.all(op.body)


def _find(cx: Context, op: t.ShareExperts) -> None:
    """A warp looks at 32 experts at a time: the lane whose expert has the block's tile writes down which it is."""
    b, tile = cx.b, cx.bx % op.tiles
    b.st(op.task, 0, as_expr(op.experts), where=cx.lane.eq(0))  # no expert, unless one is found
    b.sync()
    before = b.alloc("before", s32, 1)
    b.st(before, 0, as_expr(0))
    with b.for_("round", 0, -(-op.experts // 32)) as turn:
        expert = b.let("e", turn * 32 + cx.lane)
        ends: list[Expr] = []
        for i, name in enumerate(("begin", "end")):
            offset = b.ld(op.offsets, expert + i, where=expert.lt(op.experts), cache="nc", hint=name)
            ends.append(b.let(name, minimum(maximum(offset, 0), op.n)))
        begin, end = ends
        tiles = b.name((maximum(end - begin, 0) + (op.cols - 1)) // op.cols, "tiles")
        lanes = b.convert(exclusive(cx, b.convert(tiles, u32)), s32)
        earlier = b.name(b.ld(before, 0) + lanes, "earlier")
        with b.if_(all_of(tile.ge(earlier), tile.lt(earlier + tiles))):
            column = b.let("column", begin + (tile - earlier) * op.cols)
            for i, value in enumerate((expert, column, end)):
                b.st(op.task, i, value)
        b.st(before, 0, b.shfl("idx", b.name(earlier + tiles, "so_far"), 31))
