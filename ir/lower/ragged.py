"""Ragged work on CUDA cores: segments of rows, their entries, the rows that entries name, and sums over teams."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from .. import tile_ragged as t
from ..expr import Expr, Value, all_of, as_expr, minimum, select
from ..types import Buffer, s32, u32, widths
from .context import Context, rule
from .epilogue import finish, of_row
from .panels import placed


@rule(t.ShareSegments)
def share_segments(cx: Context, op: t.ShareSegments) -> None:
    b = cx.b
    number = b.let("number", first_number(cx, op.team, op.count) + cx.lane // op.team)
    top = max(op.rows, op.entries, t.RANK * t.RANK - 1)
    row, begin, end, rank = b.ldv(op.segments, number * t.RECORD, t.RECORD, cache="nc", hint="record", lo=0, hi=top)
    before = b.let("before", rank % t.RANK)
    with cx.scope():
        cx.env |= {
            op.number: number, op.row: row, op.begin: begin, op.end: end,
            op.first_piece: b.let("first_piece", number - before, lo=0),
            op.pieces: b.let("pieces", before + rank // t.RANK + 1, hi=op.count),
            op.column: b.let("column", cx.bx // (op.count * op.team // cx.func.threads) * op.cols),
        }  # fmt: skip
        cx.all(op.body)


def first_number(cx: Context, team: int, count: int) -> Expr:
    """The number of the segment that the warp's first team has; the same in all its lanes."""
    teams = cx.func.threads // team
    return cx.bx % (count // teams) * teams + cx.warp * (32 // team)


@rule(t.WalkSegment)
def walk_segment(cx: Context, op: t.WalkSegment) -> None:
    b = cx.b
    begin, end = cx.resolve(op.begin), cx.resolve(op.end)
    group = b.let("group", cx.lane // op.across % op.parts)
    start = b.let("start", begin // op.align * op.align + group * op.by)
    with cx.scope():
        cx.env[op.coming] = start
        cx.all(op.ahead)
        with b.for_("at", start, end, op.parts * op.by, unroll=1) as at:
            cx.env |= {op.at: at, op.coming: b.let("coming", at + op.parts * op.by)}
            cx.all(op.body)


@rule(t.WalkRows)
def walk_rows(cx: Context, op: t.WalkRows) -> None:
    b, team = cx.b, op.across * op.parts
    teams = cx.func.threads // team
    first = b.let("mine", cx.resolve(op.first) + cx.tid // team)
    count, ahead = op.rows // teams, b.let("group", cx.lane // op.across % op.parts * op.by)
    tops = {"row": op.m, "begin": op.entries, "end": op.entries}
    held, coming = (b.alloc(name, s32, len(tops)) for name in ("held", "coming"))

    def look(number: Expr, into: Buffer) -> None:
        found = b.ldv(op.records, (first + number * teams) * t.RECORD, t.RECORD, cache="nc", hint="record")
        for e in range(len(tops)):
            b.st(into, e, found[e])

    def said(by: Buffer) -> tuple[Expr, ...]:
        row, begin, end = (b.ld(by, e, hint=name, lo=0, hi=top) for e, (name, top) in enumerate(tops.items()))
        return row, b.let("start", begin + ahead), end

    look(as_expr(0), held)
    look(as_expr(min(1, count - 1)), coming)
    with cx.scope():
        cx.env |= dict(zip((op.row, op.start, op.end), said(held), strict=True))
        cx.all(op.ahead)
    with cx.scope(), b.for_("i", 0, count, unroll=1) as i:
        own, (_, then, rest) = said(held), said(coming)
        following = b.let("rest", select(i.lt(count - 1), rest, 0))  # no row comes after the last one
        for e in range(len(tops)):
            b.st(held, e, b.ld(coming, e, hint="next"))
        look(b.let("later", minimum(i + 2, count - 1)), coming)
        cx.env |= dict(zip((op.row, op.start, op.end, op.then, op.rest), (*own, then, following), strict=True))
        cx.all(op.body)


@rule(t.WalkOn)
def walk_on(cx: Context, op: t.WalkOn) -> None:
    b = cx.b
    start, end, then, rest = (cx.resolve(e) for e in (op.start, op.end, op.then, op.rest))
    with cx.scope(), b.if_(start.ge(end)):
        cx.env |= {op.coming: then, op.until: rest}
        cx.all(op.load)
    with cx.scope(), b.for_("at", start, end, op.step, unroll=1) as at:
        after = b.let("after", at + op.step)
        more = b.name(after.lt(end), "more")
        cx.env |= {
            op.coming: b.let("coming", select(more, after, then)), op.until: b.let("until", select(more, end, rest))
        }  # fmt: skip
        cx.all(op.body)


@rule(t.LoadEntries)
def load_entries(cx: Context, op: t.LoadEntries) -> None:
    b, at, left = cx.b, cx.resolve(op.at), _left(cx, op.at, op.end)
    for first in range(0, op.rows.size, op.align):
        with b.if_(left.gt(first)):
            rows = b.ldv(op.row_table, at + first, op.align, cache="nc", hint="k", lo=0, hi=op.top)
            once = min(op.align, widths(op.values.dtype)[-1])
            values = [
                v for i in range(0, op.align, once)
                for v in b.ldv(op.value_table, at + (first + i), once, cache="nc", hint="w")
            ]  # fmt: skip
            for i in range(op.align):
                b.st(op.rows, first + i, rows[i])
                b.st(op.values, first + i, values[i])


def _left(cx: Context, at: Expr, end: Expr) -> Expr:
    """How many entries are left from ``at`` on; less than one if none is."""
    return cx.b.let("left", cx.resolve(end) - cx.resolve(at))


def columns(cx: Context, column: Expr, across: int, vec: int, blocks: int) -> Iterator[tuple[int, Expr]]:
    """For each vector of the lane's columns: the number of its first register, and its first column."""
    lane = cx.b.let("mine", cx.lane % across * vec)
    for block in range(blocks):
        yield block * vec, cx.b.let("col", column + lane + block * across * vec)


@rule(t.Gather)
def gather(cx: Context, op: t.Gather) -> None:
    b, left = cx.b, _left(cx, op.at, op.end)
    there = Buffer(op.rows.name.replace("rows", "there"), u32, op.rows.size, "reg")  # a kernel may have two walks
    skip = b.let("skip", cx.resolve(op.begin) - cx.resolve(op.at), hi=op.align - 1)
    cx.alloc(there)
    for i in range(op.rows.size):
        b.st(there, i, b.convert(b.name(all_of(left.gt(i), skip.le(i)), "mine"), u32))

    def is_there(i: int) -> Expr:
        return b.let("there", b.ld(there, i, hint="flag", lo=0, hi=1).ne(0))

    places = [
        (first, col, placed(cx, col, op.k, op.n, op.panel, op.order))
        for first, col in columns(cx, cx.resolve(op.column), op.across, op.vec, op.blocks)
    ]
    for i in range(op.rows.size):
        row, mine = b.ld(op.rows, i, hint="k", lo=0, hi=op.k - 1), is_there(i)
        for first, col, place in places:
            here = b.let("here", all_of(mine, col.lt(op.n)))
            found = b.ldv(op.src, place(row), op.vec, where=here, cache="nc", hint="x")
            for e, v in enumerate(found):
                b.st(op.dst, i * op.blocks * op.vec + first + e, v)
    zero = b.const(op.weights.dtype, 0.0, hint="zero")
    for i in range(op.rows.size):
        wide = cx.convert(b.ld(op.values, i), op.weights.dtype)
        b.st(op.weights, i, b.select(is_there(i), wide, zero))


@rule(t.MultiplyRows)
def multiply_rows(cx: Context, op: t.MultiplyRows) -> None:
    b, size = cx.b, op.acc.size
    for i in range(op.weights.size):
        weight = b.ld(op.weights, i, hint="w")
        for e in range(size):
            x = cx.convert(b.ld(op.rows, i * size + e, hint="x"), op.acc.dtype)
            b.st(op.acc, e, b.fma(weight, x, b.ld(op.acc, e, hint="c"), hint="c"))


@rule(t.SumSegments)
def sum_segments(cx: Context, op: t.SumSegments) -> None:
    b, far = cx.b, op.across
    while far < op.across * op.parts:
        for e in range(op.acc.size):
            v = b.ld(op.acc, e, hint="c")
            b.st(op.acc, e, b.binary("add", v, b.shfl("xor", v, far)))
        far *= 2
    if op.slots is None or op.counter is None:
        cx.all(op.body)
        return
    whole = b.alloc("whole", u32, 1)  # whether the lane has the sums of a whole row
    b.st(whole, 0, as_expr(1))
    with b.if_(first_number(cx, op.across * op.parts, op.count).lt(op.cuts)):
        _meet(cx, op, op.slots, op.counter, whole)
    with b.if_(b.ld(whole, 0).ne(0)):
        cx.all(op.body)


def _meet(cx: Context, op: t.SumSegments, slots: Buffer, counter: Buffer, whole: Buffer) -> None:
    """Leaves the team's sums in the workspace; the last team of a row takes those of all, in order."""
    b, size = cx.b, op.acc.size
    number, first, pieces = (cx.resolve(e) for e in (op.number, op.first_piece, op.pieces))
    team = op.across * op.parts
    lane = b.let("at", cx.lane % team)
    tile = b.let("tile", cx.bx // (op.count * team // cx.func.threads))
    vec = max(v for v in widths(slots.dtype) if size % v == 0)

    def place(piece: Expr, e: int) -> Expr:
        """Where a lane's sums from the e-th on are: vectors of the lanes lie side by side."""
        return ((tile * op.cuts + piece) * size + e) * op.across + cx.lane % op.across * vec

    for e in range(0, size, vec):
        b.st(slots, place(number, e), *(b.ld(op.acc, e + i) for i in range(vec)), where=lane.lt(op.across), cache="cg")
    if op.across > 1:  # the leader publishes what the others have left
        b.sync()
    with b.if_(lane.eq(0)):
        b.fence("gpu")
        before = b.atom("inc", counter, b.let("count", tile * op.cuts + first, hi=counter.size - 1), pieces - 1)
        b.fence("gpu")
        b.st(whole, 0, before)
    b.sync()
    arrived = b.shfl("idx", b.ld(whole, 0), b.let("leader", cx.lane - lane, lo=0), hint="arrived")
    last = b.name(arrived.eq(pieces - 1), "last")
    b.st(whole, 0, b.convert(last, u32))
    with b.if_(last):
        for e in range(size):
            b.st(op.acc, e, b.const(op.acc.dtype, 0.0))
        # unrolled further, the few rows that are cut would take the registers that decide how many warps are resident
        with b.for_("piece", first, first + pieces, unroll=2) as piece:
            for e in range(0, size, vec):
                more = b.ldv(slots, place(piece, e), vec, cache="cg", hint="part")
                for i, v in enumerate(more):
                    b.st(op.acc, e + i, b.binary("add", b.ld(op.acc, e + i), v))


@rule(t.StoreRow)
def store_row(cx: Context, op: t.StoreRow) -> None:
    b = cx.b
    row, column = cx.resolve(op.row), cx.resolve(op.column)
    group = cx.lane // op.across % op.parts
    with b.if_(all_of(group.eq(0), row.lt(op.m))):
        scale, bias = (of_row(cx, buf, row, op.acc.dtype) for buf in (op.scale, op.bias))
        for first, col in columns(cx, column, op.across, op.vec, op.blocks):
            own = (b.ld(op.acc, first + e, hint="sum") for e in range(op.vec))
            totals = own if op.onto is None else _onto(cx, op, op.onto, list(own), row * op.n + col, col)
            sums = [finish(cx, total, scale, bias, op.activation) for total in totals]
            once = op.once or op.vec
            for e in range(0, op.vec, once):
                here = b.let("here", (col + e).lt(op.n))
                cx.guard(here, partial(_store, cx, op, sums[e : e + once], row, col + e))


def _onto(cx: Context, op: t.StoreRow, begun: Buffer, totals: list[Value], at: Expr, col: Expr) -> Iterator[Value]:
    """Sums of adjacent columns on top of those that are from ``at`` on."""
    b, once = cx.b, min(op.once or op.vec, widths(begun.dtype)[-1])
    for e in range(0, op.vec, once):
        found = b.ldv(begun, at + e, once, where=b.let("here", (col + e).lt(op.n)), cache="nc", hint="begun")
        for v, total in zip(found, totals[e : e + once], strict=True):
            yield b.binary("add", v, total)


def _store(cx: Context, op: t.StoreRow, sums: list[Value], row: Expr, col: Expr) -> None:
    """Adds the residual to adjacent columns of a row, and stores them."""
    b, wide = cx.b, len(sums) if op.order == "row" else 1
    for first in range(0, len(sums), wide):
        at = placed(cx, col + first, op.m, op.n, op.panel, op.order)(row)
        vals = sums[first : first + wide]
        if op.residual is not None:
            more = b.ldv(op.residual, at, wide, hint="r")
            vals = [b.binary("add", v, cx.convert(r, op.acc.dtype)) for v, r in zip(vals, more, strict=True)]
        b.st(op.out, at, *(cx.convert(v, op.out.dtype) for v in vals))
