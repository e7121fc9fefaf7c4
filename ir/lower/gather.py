"""Rows of x that lists name, gathered for warpgroups."""

from __future__ import annotations

from .. import tile_gather as t
from .. import warp as w
from ..expr import as_expr
from ..numbers.groups import COPIERS, PIECE, STEP, row_bytes, rows_each
from ..swizzle import swizzled
from .context import Context, rule
from .groups import share


@rule(t.CopyList)
def copy_list(cx: Context, op: t.CopyList) -> None:
    b, words, which = cx.b, op.steps * STEP // 2, cx.resolve(op.list)
    bar = b.let("bar", which + (op.bars.size - 2))
    with b.if_(cx.tid.eq(cx.func.threads - COPIERS)):
        b.emit(w.MbarArrive(op.bars, bar, as_expr(words * op.src.dtype.nbytes)))
        b.emit(w.BulkCopy(op.dst, which * words, op.src, cx.resolve(op.tile) * words, as_expr(words), op.bars, bar))


@rule(t.ListRows)
def list_rows(cx: Context, op: t.ListRows) -> None:
    b, size = cx.b, op.rows.size
    first, _ = share(cx, op.cols)
    at = b.let("at", (cx.resolve(op.list) * op.steps + cx.resolve(op.step)) * (STEP // 2) + first // 2)
    wide = min(size, 4)
    for e in range(0, size, wide):
        for i, v in enumerate(b.ldv(op.lists, at + e, wide, hint="k")):
            b.st(op.rows, e + i, v)


@rule(t.GatherRows)
def gather_rows(cx: Context, op: t.GatherRows) -> None:
    b, width = cx.b, row_bytes(op.cols) // 2
    first, piece = share(cx, op.cols)
    column = b.let("column", (cx.resolve(op.column) + piece * PIECE) % op.n)  # lanes' pieces stay side by side
    place = swizzled(STEP, 2 * width, 2 * width)
    begin = b.let("begin", cx.resolve(op.slot) * (STEP * op.cols) + piece // (width // PIECE) * (STEP * width))
    inner = b.let("inner", piece % (width // PIECE) * PIECE)
    for i in range(rows_each(op.cols)):
        half = i % 2 if rows_each(op.cols) > 1 else first % 2
        row = b.let("k", (b.ld(op.rows, i // 2, hint="pair") >> half * 16) & 0xFFFF, hi=op.k - 1)
        to = begin + place(b.let("row", first + i), inner)
        b.cp_async(op.dst, to, op.src, row * op.n + column, PIECE)
    b.emit(w.CpArrive(op.bars, cx.resolve(op.slot)))
