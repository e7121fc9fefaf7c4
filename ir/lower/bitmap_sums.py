"""The end of a product with bitmap tiles: sums over warps and splits, the epilogue, the stores."""

from __future__ import annotations

from collections.abc import Callable

from .. import tile_bitmap as t
from ..expr import Expr, Value, as_expr
from ..op_spmm import STRIP, strips
from ..types import Buffer, f32, u32
from .bitmap import part
from .context import Context, rule
from .epilogue import finish, of_row

#: Gives the sums of an item, or none if they are not to be stored yet.
Sums = Callable[[Context, t.SumWarps, Expr], list[Value]]


@rule(t.SumWarps)
def sum_warps(cx: Context, op: t.SumWarps) -> None:
    b = cx.b
    b.barrier()  # every warp has left its ring
    _leave(cx, op)
    b.barrier()
    cx.alloc(op.total)
    if op.slots is None or op.counter is None or op.turn is None:
        _items(cx, op, _of_warps)
        return
    slots, counter, words, turn = op.slots, op.counter, op.items * op.words, op.turn
    split = cx.resolve(op.split)
    first = b.let("run", cx.bx - split * op.tiles, lo=0)  # the block of the same strips and columns that has split 0

    def put(cx: Context, op: t.SumWarps, item: Expr) -> list[Value]:
        b.st(slots, cx.bx * words + item * op.words, *_of_warps(cx, op, item))
        return []

    def of_splits(cx: Context, op: t.SumWarps, item: Expr) -> list[Value]:
        for e in range(op.words):
            b.st(op.total, e, b.const(f32, 0.0))
        with b.for_("other", 0, op.splits) as other:
            more = b.ldv(slots, (first + other * op.tiles) * words + item * op.words, op.words, cache="cg", hint="part")
            for e, v in enumerate(more):
                b.st(op.total, e, b.binary("add", b.ld(op.total, e), v))
        return [b.ld(op.total, e) for e in range(op.words)]

    _items(cx, op, put)
    which = first // (op.splits * op.tiles) * op.tiles + first % op.tiles
    with b.if_(arrived(cx, counter, which, op.splits, turn)):
        _items(cx, op, of_splits)


def arrived(cx: Context, counter: Buffer, which: Expr, splits: int, turn: Buffer) -> Expr:
    """Whether the block is the last of ``splits`` that have left their sums, by element ``which`` of the counter."""
    b = cx.b
    b.barrier()
    with b.if_(cx.tid.eq(0)):
        b.fence("gpu")
        count = b.let("which", which, hi=counter.size - 1)
        before = b.atom("inc", counter, count, splits - 1)  # 0 again after the last
        b.fence("gpu")
        b.st(turn, 0, before)
    b.barrier()
    return b.ld(turn, 0).eq(splits - 1)


def _leave(cx: Context, op: t.SumWarps) -> None:
    """Each warp puts its accumulators into shared memory: item by item, those of each slab warp after one another."""
    b, one = cx.b, op.shape == "none"
    per = 8 if one else 32 * op.blocks
    first = b.let("mine0", cx.warp * (op.rows * per))  # warp = slab warp * row_warps + row warp
    for strip in range(op.rows):
        for n in range(op.blocks):
            at = (strip * op.blocks + n) * op.words
            sums = [b.ld(op.acc, at + e, hint="o") for e in range(op.words)]
            lane: Expr = cx.lane
            if one:  # four lanes have parts of a row
                for far in (1, 2):
                    sums = [b.binary("add", v, b.shfl("xor", v, far)) for v in sums]
                lane = cx.lane // 4
            item = first + (strip * per + n * 32) + lane
            bits = [b.bitcast(v, u32) for v in sums]
            b.st(op.sums, item * op.words, *bits, where=(cx.lane % 4).eq(0) if one else None)


def _of_warps(cx: Context, op: t.SumWarps, item: Expr) -> list[Value]:
    """The sums of an item, over the slab warps in order."""
    b = cx.b
    totals: list[Value] = []
    for warp in range(op.slab_warps):
        words = b.ldv(op.sums, (item + warp * op.items) * op.words, op.words, hint="part")
        parts = [b.bitcast(v, f32) for v in words]
        totals = [b.binary("add", x, y) for x, y in zip(totals, parts, strict=True)] if totals else parts
    return totals


def _items(cx: Context, op: t.SumWarps, sums: Sums) -> None:
    """Runs ``sums`` for the items of the thread that exist, and the body on what it gives."""
    b = cx.b
    per = 8 if op.shape == "none" else 32 * op.blocks
    first, count = cx.resolve(op.first), cx.resolve(op.count)
    with cx.scope(), b.for_("item", cx.tid, op.items, cx.func.threads) as item:
        inner = b.let("inner", item % per)
        warp, strip = b.let("rows", item // (op.rows * per)), b.let("strip", item // per % op.rows)
        before = b.let("before", part(warp, op.row_warps, count))

        def run() -> None:
            totals = sums(cx, op, item)
            if not totals:
                return
            for e, v in enumerate(totals):
                b.st(op.total, e, v)
            lane = inner if op.shape == "none" else b.let("at", inner % 32)
            cx.env[op.row] = b.let("row", (first + before + strip) * 16 + (lane if op.shape == "none" else lane // 4))
            cx.env[op.col] = (
                as_expr(0) if op.shape == "none" else b.let("col", lane % 4 * (2 * op.blocks) + inner // 32)
            )
            cx.all(op.body)

        cx.guard(b.let("real", strip.lt(part(warp + 1, op.row_warps, count) - before)), run)


@rule(t.StoreProduct)
def store_product(cx: Context, op: t.StoreProduct) -> None:
    b, one = cx.b, op.shape == "none"
    gate = (op.scale, op.bias) if op.gated else (None, None)
    row, col, column = (cx.resolve(e) for e in (op.row, op.col, op.column))
    columns = 1 if one else 2
    end, own = as_expr(op.n), as_expr(0)  # where the columns end, and where the expert's elements of vectors begin
    if op.end is not None and op.expert is not None:
        end, expert = cx.resolve(op.end), cx.resolve(op.expert)
        rows = strips(op.m, op.gated) * STRIP
        row = b.let("inside", row - expert * rows, lo=0, hi=rows - 1)
        own = expert * (op.m * (1 + op.gated))
    for half in (0,) if op.gated else (0, 1):
        here = b.let("row", row // 16 * 8 + row % 8 if op.gated else row + 8 * half)

        def store(half: int = half, here: Expr = here) -> None:
            scale, bias = (of_row(cx, buf, own + here) for buf in (op.scale, op.bias))
            other_scale, other_bias = (of_row(cx, buf, own + here + op.m) for buf in gate)
            for e in range(columns):
                at_col = b.let("n", column + col + e * op.blocks)

                def cell(e: int = e, at_col: Expr = at_col) -> None:
                    v = b.ld(op.total, half * columns + e, hint="sum")
                    v = finish(cx, v, scale, bias, op.activation)
                    if op.gated:
                        other = b.ld(op.total, columns + e, hint="sum")
                        v = b.binary("mul", v, finish(cx, other, other_scale, other_bias, "none"))
                    at = here * op.n + at_col if op.order == "row" else at_col * op.m + here
                    if op.residual is not None:
                        v = b.binary("add", v, b.convert(b.ld(op.residual, at), f32))
                    b.st(op.out, at, b.convert(v, op.out.dtype))

                cx.guard(at_col.lt(end), cell)

        cx.guard(here.lt(op.m), store)
