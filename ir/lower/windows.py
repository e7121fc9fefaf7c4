"""N:M patterns whose lanes have a window each: groups of rows, x by offsets, chunks of entries, sums over lanes."""

from __future__ import annotations

from math import gcd

from .. import tile_windows as t
from ..expr import Expr, Value, all_of, minimum, select
from ..numbers.nm import LANES, chunks, x_words
from ..types import f32
from .context import Context, rule
from .nm import UNROLL, offset_of, value_of, words_of


@rule(t.ShareGroups)
def share_groups(cx: Context, op: t.ShareGroups) -> None:
    b, count = cx.b, -(-op.rows // op.high)
    group = b.let("group", cx.bx // op.tiles * op.warps + cx.me())
    row = select(cx.lane.lt(op.high), minimum(group * op.high + cx.lane, op.rows), op.rows)
    with cx.scope():
        cx.env |= {
            op.group: b.let("there", minimum(group, count - 1)), op.row: b.let("row", row),
            op.column: b.let("column", cx.bx % op.tiles * op.cols),
        }  # fmt: skip
        cx.all(op.body)


@rule(t.StageOffsets)
def stage_offsets(cx: Context, op: t.StageOffsets) -> None:
    """Neighbouring threads take neighbouring windows, so their words lie side by side, and adjacent rows in each."""
    b, words, column = cx.b, x_words(op.cols, op.src.dtype.nbytes), cx.resolve(op.column)
    rows = gcd(op.vec, op.m) if op.order == "column" else 1
    with b.for_("piece", cx.tid, op.pitch * (op.m // rows), cx.func.threads, unroll=UNROLL) as piece:
        window, offset = b.let("window", piece % op.pitch), b.let("offset", piece // op.pitch * rows)
        k = b.let("k", window * op.m + offset)
        there = [k.lt(op.k)] * (op.pitch * op.m != op.k)

        def load(col: Expr, wide: int, k: Expr = k, there: list[Expr] = there) -> tuple[Value, ...]:
            """Adjacent rows of a column, or adjacent columns of a row."""
            where = [*there, *[col.lt(op.n)] * (op.n % op.cols != 0)]
            at = col * op.k + k if op.order == "column" else k * op.n + col
            return b.ldv(op.src, at, wide, where=all_of(*where) if where else None, cache="nc", hint="x")

        if op.order == "column":
            found = [load(b.let("col", column + e), rows) for e in range(op.cols)]
        else:
            wide = gcd(op.vec, op.cols)
            found = [(v,) for e in range(0, op.cols, wide) for v in load(b.let("col", column + e), wide)]
        per = op.cols // words
        for which in range(words):
            (made,) = words_of(cx, op.src.dtype, op.cols, found[which * per : (which + 1) * per])
            for i, word in enumerate(made):
                b.st(op.dst, ((offset + i) * words + which) * op.pitch + window, word)
    b.barrier()


@rule(t.MultiplyWindows)
def multiply_windows(cx: Context, op: t.MultiplyWindows) -> None:
    b, c = cx.b, chunks(op.n, op.m, op.dtype.nbytes)
    words, by_offsets = x_words(op.cols, op.dtype.nbytes), op.layout == "offsets"
    window = b.let("window", cx.resolve(op.chunk) // c.parts * LANES + cx.lane, hi=op.pitch - 1)
    for f in range(c.entries):
        offset = b.let("offset", offset_of(cx, op, f, c.bits), hi=op.m - 1)
        value, row = value_of(cx, op, f), f // op.n if c.parts == 1 else 0
        for word in range(words):
            at = (offset * words + word) * op.pitch + window if by_offsets else (window * words + word) * op.m + offset
            x = b.ld(op.x, at, hint="x", degree=1 if by_offsets else most_met(op.m * words, op.m))
            for e, v in enumerate([b.bitcast(x, f32)] if words == op.cols else cx.halves(x, op.dtype)):
                to = row * op.cols + word * (op.cols // words) + e
                b.st(op.acc, to, b.fma(value, v, b.ld(op.acc, to, hint="c")))


def most_met(pitch: int, m: int) -> int:
    """The most lanes whose words, ``m`` each and ``pitch`` apart, may meet in a bank."""
    return max(sum((bank - lane * pitch) % 32 < m for lane in range(LANES)) for bank in range(32))


@rule(t.SumLanes)
def sum_lanes(cx: Context, op: t.SumLanes) -> None:
    b = cx.b
    cx.alloc(op.total)
    for e in range(op.cols):
        total: Value | None = None
        for row in range(op.acc.size // op.cols):
            v = b.ld(op.acc, row * op.cols + e, hint="c")
            for far in (16, 8, 4, 2, 1):
                v = b.binary("add", v, b.shfl("xor", v, far))
            total = v if total is None else b.select(cx.lane.eq(row), v, total)
        assert total is not None
        b.st(op.total, 0, total)
        with cx.scope():
            cx.env[op.column] = b.let("col", cx.resolve(op.first) + e)
            cx.all(op.body)
