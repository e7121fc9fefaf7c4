"""``tile.walk``: data of later turns on their way while this one is used.  The software pipeline of warps that walk."""

from __future__ import annotations

from collections.abc import Callable

from .. import tile_walk as t
from .. import warp as w
from ..expr import FALSE, TRUE, Expr, as_expr
from ..node import Op
from .context import Context, rule


@rule(t.Walk)
def walk(cx: Context, op: t.Walk) -> None:
    b, grouped = cx.b, op.via == "cp.async"
    turns = as_expr(op.turns) if op.count is None else cx.resolve(op.count)
    for regs in op.held:
        cx.alloc(regs)
    fills, reads = [cx.phase(inner) for inner in op.fill], [cx.phase(inner) for inner in op.read]

    def turn_of(turn: Expr, phases: list[Callable[[], None]]) -> None:
        cx.env[op.turn] = turn
        for phase in phases:
            phase()

    def fetch(turn: Expr) -> None:
        cx.guard(turn.lt(turns), lambda: turn_of(turn, fills))
        if grouped:
            b.commit()

    if op.bars is not None:
        with b.if_(cx.tid.eq(0)):
            for slot in range(op.stages):
                b.emit(w.MbarInit(op.bars, as_expr(slot), 1))
            b.fence("mbar_init")
        b.barrier()
    for i in range(op.stages - 1):
        fetch(as_expr(i))
    cx.all(op.once)

    def loop(first: Expr, end: Expr, unroll: int, body: tuple[Op, ...]) -> None:
        with cx.scope(), b.for_("turn", first, end, unroll=unroll) as turn:
            if grouped:
                b.wait(op.stages - 2)
            if op.scope != "lane":
                (b.sync if op.scope == "warp" else b.barrier)()
            if op.bars is None:
                turn_of(turn, reads)
            else:  # loads of the slot's last turn come before the copies that overwrite it
                b.fence("async")
            later = turn + (op.stages - 1)
            cx.guard(cx.warp.lt(op.late) if op.late else TRUE, lambda: fetch(later))
            if op.bars is not None:
                b.mbar_wait(op.bars, turn % op.stages, turn // op.stages % 2)
                turn_of(turn, reads)
            cx.env[op.turn] = turn
            if op.here is not None:
                cx.env[op.here] = b.let("here", turn % op.stages * op.slot)
            cx.all(body)
            cx.guard(cx.warp.ge(op.late) if op.late else FALSE, lambda: fetch(later))

    if not op.inner:
        loop(as_expr(0), turns, op.unroll, op.body)
        return
    first, end = (b.let("calm", cx.resolve(turn)) for turn in op.calm)
    for part in ((as_expr(0), first, 1, op.body), (first, end, op.unroll, op.inner), (end, turns, 1, op.body)):
        loop(*part)
