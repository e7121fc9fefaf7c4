"""Tasks: each warp reads its records, which are the same in all its lanes, and runs the body."""

from __future__ import annotations

from .. import tile_tasks as t
from .. import warp as w
from ..expr import Expr, Value, as_expr, minimum
from ..types import Buffer, s32
from .context import Context, rule


@rule(t.EachTask)
def each_task(cx: Context, op: t.EachTask) -> None:
    b, warps = cx.b, cx.func.threads // 32
    warp = cx.me()
    begin = b.let("mine", cx.resolve(op.list) * (op.length * warps) + warp)
    tops = {"row": op.rows, "begin": op.steps, "end": op.steps, "word": op.word.hi}

    def record(task: Expr) -> tuple[Value, ...]:
        found = tuple(b.fresh(name, s32, 0, top) for name, top in tops.items())
        b.emit(w.Ld(found, op.tasks, (begin + task * warps) * t.RECORD, None, 0.0, "nc"))
        return found

    held = b.alloc("held", s32, t.RECORD) if op.after is not None else None

    def hold(found: tuple[Value, ...], held: Buffer) -> None:
        for i, v in enumerate(found):
            b.st(held, i, v)

    if held is not None and op.after is not None:
        found = record(as_expr(0))
        hold(found, held)
        with cx.scope():
            cx.env |= {op.row: found[0], op.begin: found[1]}
            cx.all(op.ahead)
    with cx.scope(), b.for_("task", 0, op.length, unroll=1) as task:
        if held is None or op.after is None:
            found = record(task)
        else:
            found = tuple(b.ld(held, i, hint=name, lo=0, hi=top) for i, (name, top) in enumerate(tops.items()))
            later = record(b.let("later", minimum(task + 1, op.length - 1)))
            hold(later, held)
            cx.env[op.after] = later[1]
            if op.after_row is not None:
                cx.env[op.after_row] = later[0]
        row, first, end, word = (b.shfl("idx", v, 0, hint="own") for v in found)
        with b.if_(row.lt(op.rows)):
            cx.env |= {op.row: row, op.begin: first, op.end: end, op.word: word}
            cx.all(op.body)
