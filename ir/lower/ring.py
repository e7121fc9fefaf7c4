"""``tile.walk``: data of later turns on their way while this one is used.  The software pipeline of warps that walk."""

from __future__ import annotations

from collections.abc import Callable

from .. import tile_walk as t
from ..expr import FALSE, TRUE, Expr, as_expr
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

    for i in range(op.stages - 1):
        fetch(as_expr(i))
    cx.all(op.once)
    with b.for_("turn", 0, turns, unroll=op.unroll) as turn:
        if grouped:
            b.wait(op.stages - 2)
        if op.scope != "lane":
            (b.sync if op.scope == "warp" else b.barrier)()
        turn_of(turn, reads)
        later = turn + (op.stages - 1)
        cx.guard(cx.warp.lt(op.late) if op.late else TRUE, lambda: fetch(later))
        cx.env[op.turn] = turn
        if op.here is not None:
            cx.env[op.here] = b.let("here", turn % op.stages * op.slot)
        cx.all(op.body)
        cx.guard(cx.warp.ge(op.late) if op.late else FALSE, lambda: fetch(later))
