"""Sites of fields: sources and receivers in the registers of windows, and what receivers record."""

from __future__ import annotations

from .. import tile_sites as t
from ..expr import Expr, Value, any_of, select
from ..numbers.sites import TESTED
from ..types import Buffer, s32
from .context import Context, rule


@rule(t.OwnEntries)
def own_entries(cx: Context, op: t.OwnEntries) -> None:
    b, me = cx.b, _me(cx)
    for end in range(2):
        b.st(op.span, end, b.ld(op.begin, me + end, cache="nc", hint="ends"))


@rule(t.SeenCells)
def seen_cells(cx: Context, op: t.SeenCells) -> None:
    b, me, words = cx.b, _me(cx), op.seen.size
    for word in range(words):
        b.st(op.seen, word, b.ld(op.bits, me * words + word, cache="nc", hint="bits"))
    b.st(op.first, 0, b.ld(op.begin, me, cache="nc", hint="begin"))


def _me(cx: Context) -> Expr:
    """The number of the thread among those of all blocks."""
    return cx.b.let("me", cx.bx * cx.func.threads + cx.tid)


@rule(t.FetchSignal)
def fetch_signal(cx: Context, op: t.FetchSignal) -> None:
    start, stop = _span(cx, op.span, op.whose.size)
    with cx.b.if_(start.lt(stop)):
        _fetch(cx, op, start)


@rule(t.AddSources)
def add_sources(cx: Context, op: t.AddSources) -> None:
    b, wide = cx.b, op.weights.dtype
    start, stop = _span(cx, op.span, op.whose.size)
    with b.for_("entry", start, stop, unroll=1) as entry:
        given = b.ld(op.ahead, 0, hint="given")
        register = b.ld(op.places, entry, cache="nc", hint="register", lo=0, hi=op.held.size - 1)
        for r in range(op.held.size):
            old = b.ld(op.held, r, hint="u")
            more = cx.convert(b.binary("add", cx.convert(old, wide), given), op.held.dtype)
            b.st(op.held, r, b.select(register.eq(r), more, old))
        following = b.let("following", entry + 1)
        with b.if_(following.lt(stop)):
            _fetch(cx, op, following)


@rule(t.RecordCells)
def record_cells(cx: Context, op: t.RecordCells) -> None:
    b = cx.b
    bits = [b.ld(op.seen, word, hint="bits") for word in range(op.seen.size)]
    with b.if_(any_of(*(word.ne(0) for word in bits))):
        place = b.alloc("place", s32, 1)
        first = b.ld(op.first, 0, hint="first", lo=0, hi=op.count - 1)
        b.st(place, 0, b.name(cx.resolve(op.step) * op.count + first, "at"))
        for start in range(0, op.held.size, TESTED):
            last, shift = min(op.held.size, start + TESTED), start % 32
            some = b.binary("and", bits[start // 32], (1 << last - start + shift) - (1 << shift), hint="some")
            with b.if_(some.ne(0)):
                _recorded(cx, op, bits[start // 32], range(start, last), place)


def _recorded(cx: Context, op: t.RecordCells, bits: Value, some: range, place: Buffer) -> None:
    """Stores those of a few registers that are seen, from ``place`` on."""
    b = cx.b
    at: Expr = b.ld(place, 0, hint="at", lo=0)
    for r in some:
        seen = b.let("seen", b.binary("and", bits, 1 << r % 32, hint="bit").ne(0))
        b.st(op.cells, at, cx.convert(b.ld(op.held, r, hint="u"), op.cells.dtype), where=seen)
        at = b.let("at", select(seen, at + 1, at))
    b.st(place, 0, b.name(at, "at"))


def _span(cx: Context, span: Buffer, last: int) -> tuple[Value, Value]:
    """The first of a thread's entries, and the first past them."""
    start, stop = (cx.b.ld(span, end, hint=hint, lo=0, hi=last) for end, hint in enumerate(("start", "stop")))
    return start, stop


def _fetch(cx: Context, op: t.FetchSignal | t.AddSources, entry: Expr) -> None:
    """What an entry adds goes to where the next one to add is."""
    b = cx.b
    source = b.ld(op.whose, entry, cache="nc", hint="source", lo=0, hi=op.count - 1)
    weight = b.ld(op.weights, entry, cache="nc", hint="w")
    at = b.let("at", cx.resolve(op.step) * op.count + source)
    b.st(op.ahead, 0, b.binary("mul", weight, b.ld(op.signals, at, cache="nc", hint="s")))


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
    if op.steps is None:
        with b.if_(at.lt(op.dst.size)):
            _interpolated(cx, op, b.let("number", at, hi=op.dst.size - 1))
        return
    steps = b.ld(op.steps, 0, hint="steps", lo=1, hi=s32.range[1] // op.count)
    with b.for_("number", at, steps * op.count, cx.func.blocks * cx.func.threads, unroll=1) as number:
        _interpolated(cx, op, number)


def _interpolated(cx: Context, op: t.Interpolate, number: Expr) -> None:
    """One number of a record."""
    b = cx.b
    first, receiver = b.let("first", number // op.count * op.seen), b.let("receiver", number % op.count * op.around)
    total: Value | None = None
    for i in range(op.around):
        cell = b.ld(op.whose, receiver + i, hint="cell", lo=0, hi=op.seen - 1)
        value = cx.convert(b.ld(op.cells, first + cell, hint="u"), op.dst.dtype)
        total = cx.plus(total, b.ld(op.weights, receiver + i, hint="w"), value)
    assert total is not None  # a receiver sees a cell
    b.st(op.dst, number, total)
