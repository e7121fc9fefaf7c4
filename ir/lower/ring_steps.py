"""A warp's own ring of gathered rows: numbers are looked up a step ahead of the copies, these ``stages - 1`` of use."""

from __future__ import annotations

from .. import tile_ring as t
from ..expr import Expr, Value, as_expr
from ..numbers.vectors import PIECE, STEP
from ..swizzle import swizzled
from ..types import s32
from .context import Context, rule


@rule(t.WalkRing)
def walk_ring(cx: Context, op: t.WalkRing) -> None:
    b, ahead = cx.b, op.stages - 1
    begin, end = cx.resolve(op.begin), cx.resolve(op.end)
    count = b.let("count", end - begin)
    next_ = b.alloc("next", s32, 1)

    def look(step: Expr) -> Value:
        number = b.ld(op.numbers, step * STEP + cx.lane, cache="nc", hint="k", lo=0, hi=op.number.hi)
        return b.convert(number, s32, hint="k") if number.dtype is not s32 else number

    def fill(turn: Expr, number: Value) -> None:
        with cx.scope(), b.if_(turn.lt(count)):
            cx.env |= {op.at: begin + turn, op.slot: b.let("slot", turn % op.stages), op.number: number}
            cx.all(op.fill)
        b.commit()  # an empty group keeps the count of groups equal to the count of steps

    found = [look(begin + d) for d in range(ahead)]
    b.st(next_, 0, look(begin + ahead))
    b.sync()  # all lanes have read what the ring held before
    for d, number in enumerate(found):
        fill(as_expr(d), number)
    with cx.scope(), b.for_("turn", 0, count, unroll=1) as turn:
        b.wait(ahead - 1)
        b.sync()  # the step's data are there in all lanes, and the slot of the step before has been read
        later = b.let("later", turn + ahead)
        fill(later, b.ld(next_, 0, hint="k", lo=0, hi=op.number.hi))
        b.st(next_, 0, look(begin + later + 1))
        cx.env |= {op.at: begin + turn, op.slot: b.let("slot", turn % op.stages)}
        cx.all(op.body)


@rule(t.GatherStep)
def gather_step(cx: Context, op: t.GatherStep) -> None:
    b, item = cx.b, op.src.dtype.nbytes
    piece, wide = PIECE // item, op.wide // PIECE  # pieces of a row
    number, column = cx.resolve(op.number), cx.resolve(op.column)
    assert isinstance(number, Value)
    mine = b.let("mine", cx.warp * op.stages + cx.resolve(op.slot))
    each = op.words.size // (cx.func.threads // 32 * op.stages * 32)
    at = (cx.resolve(op.at) * 32 + cx.lane) * each
    b.cp_async(op.words, (mine * 32 + cx.lane) * each, op.values, at, each)
    place, first = swizzled(STEP, op.wide, op.wide, item), b.let("first", mine * (STEP * op.wide // item))
    row, across = b.let("row", cx.lane // wide), b.let("across", cx.lane % wide * piece)
    source = b.let("from", (column + across) % op.n)
    for i in range(wide):
        down = row + i * (32 // wide)
        k = b.shfl("idx", number, b.let("whose", down), hint="k")
        b.cp_async(op.x, b.let("to", first + place(down, across)), op.src, k * op.n + source, piece)


@rule(t.TakeStep)
def take_step(cx: Context, op: t.TakeStep) -> None:
    b, each = cx.b, op.words.size
    mine = b.let("mine", cx.warp * op.stages + cx.resolve(op.slot))
    wide = op.wide // PIECE
    own = cx.lane * wide + cx.lane // (128 // op.wide) % wide  # the row's first piece, where the swizzle has it
    row = b.name(mine * (STEP * wide) + own, "row")
    b.st(op.rows, 0, row)
    for i, v in enumerate(b.ldv(op.ring, (mine * 32 + cx.lane) * each, each, hint="w")):
        b.st(op.words, i, v)
