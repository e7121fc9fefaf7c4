"""Sites of fields: sources and receivers in the registers of windows, and what receivers record."""

from __future__ import annotations

from collections.abc import Callable

from .. import tile_sites as t
from ..expr import Expr, Value
from .context import Context, rule

#: Takes an entry's number and the register of its cell, in the thread that has it.
Entry = Callable[[Value, Expr], None]


@rule(t.AddSources)
def add_sources(cx: Context, op: t.AddSources) -> None:
    b, wide = cx.b, op.weights.dtype
    first = cx.b.let("first", cx.resolve(op.step) * op.count)

    def add(entry: Value, register: Expr) -> None:
        source = b.ld(op.whose, entry, hint="source", lo=0, hi=op.count - 1)
        given = b.binary("mul", b.ld(op.weights, entry, hint="w"), b.ld(op.signals, first + source, hint="s"))
        for r in range(op.held.size):
            old = b.ld(op.held, r, hint="u")
            more = cx.convert(b.binary("add", cx.convert(old, wide), given), op.held.dtype)
            b.st(op.held, r, b.select(register.eq(r), more, old))

    _own(cx, op, add)


@rule(t.RecordCells)
def record_cells(cx: Context, op: t.RecordCells) -> None:
    b = cx.b
    first = b.let("first", cx.resolve(op.step) * op.count)

    def see(entry: Value, register: Expr) -> None:
        value = b.ld(op.held, 0, hint="u")
        for r in range(1, op.held.size):
            value = b.select(register.eq(r), b.ld(op.held, r, hint="u"), value)
        cell = b.ld(op.whose, entry, hint="cell", lo=0, hi=op.count - 1)
        b.st(op.cells, first + cell, cx.convert(value, op.cells.dtype))

    _own(cx, op, see)


def _own(cx: Context, op: t.AddSources | t.RecordCells, each: Entry) -> None:
    """Runs ``each`` for the entries of the block, in their order, in the threads that have their cells."""
    b, size, last = cx.b, op.held.size, op.places.size
    start = b.ld(op.begin, cx.bx, hint="start", lo=0, hi=last)
    stop = b.ld(op.begin, cx.bx + 1, hint="stop", lo=0, hi=last)
    with b.for_("entry", start, stop, unroll=1) as entry:
        place = b.ld(op.places, entry, hint="place", lo=0, hi=cx.func.threads * size - 1)
        with b.if_((place // size).eq(cx.tid)):
            each(entry, b.let("register", place % size))


@rule(t.AddToCells)
def add_to_cells(cx: Context, op: t.AddToCells) -> None:
    b, wide, last = cx.b, op.weights.dtype, op.whose.size
    at = b.let("at", cx.bx * cx.func.threads + cx.tid)
    with b.if_(at.lt(op.cells.size)):
        number = b.let("number", at, hi=op.cells.size - 1)
        cell = b.ld(op.cells, number, hint="cell", lo=0, hi=op.dst.size - 1)
        total = b.alloc("total", op.dst.dtype, 1)
        b.st(total, 0, b.ld(op.dst, cell, hint="u"))
        start = b.ld(op.begin, number, hint="start", lo=0, hi=last)
        stop = b.ld(op.begin, number + 1, hint="stop", lo=0, hi=last)
        with b.for_("entry", start, stop, unroll=1) as entry:
            source = b.ld(op.whose, entry, hint="source", lo=0, hi=op.signals.size - 1)
            given = b.binary("mul", b.ld(op.weights, entry, hint="w"), b.ld(op.signals, source, hint="s"))
            old = cx.convert(b.ld(total, 0, hint="u"), wide)
            b.st(total, 0, cx.convert(b.binary("add", old, given), op.dst.dtype))
        b.st(op.dst, cell, b.ld(total, 0, hint="u"))


@rule(t.Interpolate)
def interpolate(cx: Context, op: t.Interpolate) -> None:
    b = cx.b
    at = b.let("at", cx.bx * cx.func.threads + cx.tid)
    with b.if_(at.lt(op.dst.size)):
        number = b.let("number", at, hi=op.dst.size - 1)
        first, receiver = b.let("first", number // op.count * op.seen), b.let("receiver", number % op.count * op.around)
        total: Value | None = None
        for i in range(op.around):
            cell = b.ld(op.whose, receiver + i, hint="cell", lo=0, hi=op.seen - 1)
            value = cx.convert(b.ld(op.cells, first + cell, hint="u"), op.dst.dtype)
            total = cx.plus(total, b.ld(op.weights, receiver + i, hint="w"), value)
        assert total is not None  # a receiver sees a cell
        b.st(op.dst, number, total)
