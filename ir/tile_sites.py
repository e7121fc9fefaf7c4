"""Tile ops at sites of fields: numbers that sources add and cells that receivers see, between the steps of windows.

A thread has the entries of the sources' cells that lie in its share of the window, with the register of each, and
bits that say which of its registers receivers see.  Who has none is done with one comparison.  No other family uses
these ops: their kernels stand behind the passes of every one, but for ``resident``, whose steps are all of one launch.
"""

from __future__ import annotations

from typing import Any

from .checks import Context, check
from .expr import Expr
from .node import Op, attr, buffer, define, operand
from .tile_rules import registers, same_type
from .types import Buffer, DType, s32, sum_type, u32


@define("tile.own_entries", kw_only=True)
class OwnEntries(Op):
    """Where a thread's entries of a table begin, and where they end: ``begin`` has that for every thread of every
    block, one behind the other, and the end of the last.  They are those of all steps of a launch."""

    span: Buffer = buffer(writes=True, reads=False)
    begin: Buffer = buffer()


@define("tile.seen_cells", kw_only=True)
class SeenCells(Op):
    """Which of a thread's registers receivers see, a bit for each, the first one lowest; and the number of the first
    cell of them.  ``bits`` and ``begin`` have that for every thread of every block, one behind the other."""

    seen: Buffer = buffer(writes=True, reads=False)
    first: Buffer = buffer(writes=True, reads=False)
    bits: Buffer = buffer()
    begin: Buffer = buffer()


@define("tile.fetch_signal", kw_only=True)
class FetchSignal(Op):
    """Asks for what the first entry of a thread adds in a step: it is on its way while that step is made, or where
    sources come before a step the one before it.

    Fields are those of :class:`AddSources`, which takes it.
    """

    ahead: Buffer = buffer(writes=True, reads=False)
    span: Buffer = buffer()
    whose: Buffer = buffer()
    weights: Buffer = buffer()
    signals: Buffer = buffer()
    step: Expr = operand()
    count: int = attr()
    open: bool = attr(default=False)


@define("tile.add_sources", kw_only=True)
class AddSources(Op):
    """Adds ``weights`` times the signals of a step to the cells of sources: entry i those of source ``whose[i]``, in
    the thread's register ``places[i]``.

    ``signals`` [steps, count]: the numbers of each source at each step of the pass; ``step``: which of them; ``open``:
    how many steps there are is said at the launch.  ``ahead`` has what the first entry adds, then what each next one
    does.  Sums are made in their type, and rounded to the field's.
    """

    held: Buffer = buffer(writes=True)
    ahead: Buffer = buffer(writes=True)
    span: Buffer = buffer()
    places: Buffer = buffer()
    whose: Buffer = buffer()
    weights: Buffer = buffer()
    signals: Buffer = buffer()
    step: Expr = operand()
    count: int = attr()
    open: bool = attr(default=False)


@define("tile.record_cells", kw_only=True)
class RecordCells(Op):
    """Stores the cells that receivers see, of the ``count`` ``cells`` of ``step`` those from the thread's ``first`` on,
    in the order of its registers: those whose bit of ``seen`` is set.  ``open`` as in :class:`AddSources`."""

    held: Buffer = buffer()
    seen: Buffer = buffer()
    first: Buffer = buffer()
    cells: Buffer = buffer(writes=True, reads=False)
    step: Expr = operand()
    count: int = attr()
    open: bool = attr(default=False)


@define("tile.add_to_cells", kw_only=True)
class AddToCells(Op):
    """Adds ``weights`` times ``signals`` to cells of a field in memory, a thread for each of ``cells``.

    ``cells`` are elements of ``dst``; ``begin`` [cells + 1] says where each one's entries begin in ``whose`` and
    ``weights``.  Sums are made in their type, one after the other, each rounded to the field's.
    """

    dst: Buffer = buffer(writes=True)
    cells: Buffer = buffer()
    begin: Buffer = buffer()
    whose: Buffer = buffer()
    weights: Buffer = buffer()
    signals: Buffer = buffer()


@define("tile.interpolate", kw_only=True)
class Interpolate(Op):
    """What each of ``count`` receivers records at each step: the sum of its ``around`` cells times their ``weights``.

    ``whose`` [count, around] says which of the ``seen`` cells of a step they are; cells of 16 bits are summed in f32.
    A thread makes one number; where ``steps`` says how many steps there are, those of as many as it takes.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    cells: Buffer = buffer()
    whose: Buffer = buffer()
    weights: Buffer = buffer()
    count: int = attr()
    around: int = attr()
    seen: int = attr()
    steps: Buffer | None = buffer(default=None)


@check(OwnEntries)
def _own_entries(op: OwnEntries, ctx: Context) -> None:
    _integers(ctx, op.span, 2)
    _of_threads(ctx, op.begin, s32, 1, 1)


@check(SeenCells)
def _seen_cells(op: SeenCells, ctx: Context) -> None:
    _bits(ctx, op.seen)
    _integers(ctx, op.first, 1)
    _of_threads(ctx, op.bits, u32, op.seen.size)
    _of_threads(ctx, op.begin, s32, 1)


@check(FetchSignal)
def _fetch_signal(op: FetchSignal, ctx: Context) -> None:
    _signals(op, ctx)


@check(AddSources)
def _add_sources(op: AddSources, ctx: Context) -> None:
    registers(ctx, op.held, 1)
    _signals(op, ctx)
    _sums(ctx, op.signals, op.held)
    ctx.need(op.places.dtype is s32, f"@{op.places.name} lists registers, it cannot be {op.places.dtype}")
    ctx.need(op.places.size == op.whose.size, f"{op.places.size} places of {op.whose.size} entries")


@check(RecordCells)
def _record_cells(op: RecordCells, ctx: Context) -> None:
    registers(ctx, op.held, 1)
    _bits(ctx, op.seen)
    _integers(ctx, op.first, 1)
    ctx.need(32 * op.seen.size >= op.held.size, f"{op.held.size} registers have {32 * op.seen.size} bits")
    _sums(ctx, op.cells, op.held)
    _rows(ctx, op, op.cells, "cells")


def _integers(ctx: Context, buf: Buffer, count: int) -> None:
    registers(ctx, buf, count, exactly=True)
    ctx.need(buf.dtype is s32, f"@{buf.name} counts, it cannot be {buf.dtype}")


def _bits(ctx: Context, buf: Buffer) -> None:
    registers(ctx, buf, 1)
    ctx.need(buf.dtype is u32, f"@{buf.name} has bits, it cannot be {buf.dtype}")


def _of_threads(ctx: Context, table: Buffer, dtype: DType, each: int, more: int = 0) -> None:
    """A table has so many numbers of every thread of every block, and so many more."""
    blocks: Any = getattr(ctx.func, "blocks", 1)
    count = blocks * ctx.threads
    ctx.need(table.dtype is dtype, f"@{table.name} is {table.dtype}, not {dtype}")
    ctx.need(table.size == each * count + more, f"{each} of each of {count} threads{', and one' * more}: "
             f"@{table.name} has {table.size}")  # fmt: skip


def _signals(op: FetchSignal | AddSources, ctx: Context) -> None:
    _integers(ctx, op.span, 2)
    registers(ctx, op.ahead, 1, exactly=True)
    same_type(ctx, op.signals, op.weights, op.ahead)
    ctx.need(op.whose.dtype is s32, f"@{op.whose.name} lists sources, it cannot be {op.whose.dtype}")
    ctx.need(op.weights.size == op.whose.size, f"{op.weights.size} weights of {op.whose.size} entries")
    _rows(ctx, op, op.signals, "signals")


def _sums(ctx: Context, rows: Buffer, held: Buffer) -> None:
    ctx.need(rows.dtype is sum_type(held.dtype), f"@{rows.name} is {rows.dtype}, sums of {held.dtype} are not")


def _rows(ctx: Context, op: FetchSignal | AddSources | RecordCells, rows: Buffer, what: str) -> None:
    """An array has a row for each step; those that are fetched need not be all."""
    steps = 1 if op.open else op.step.hi + 1
    more = op.open or isinstance(op, FetchSignal)
    fits = rows.size >= steps * op.count and rows.size % op.count == 0 if more else rows.size == steps * op.count
    ctx.need(fits, f"{op.count} {what} of {steps} steps, @{rows.name} has {rows.size}")


@check(AddToCells)
def _add_to_cells(op: AddToCells, ctx: Context) -> None:
    same_type(ctx, op.weights, op.signals)
    ctx.need(op.weights.dtype is sum_type(op.dst.dtype), f"@{op.weights.name} is {op.weights.dtype}, sums of "
             f"{op.dst.dtype} are not")  # fmt: skip
    for table in (op.cells, op.begin, op.whose):
        ctx.need(table.dtype is s32, f"@{table.name} lists entries, it cannot be {table.dtype}")
    ctx.need(op.begin.size == op.cells.size + 1, f"the entries of {op.cells.size} cells begin at {op.begin.size} "
             "places, not at one more")  # fmt: skip
    ctx.need(op.weights.size == op.whose.size, f"{op.weights.size} weights of {op.whose.size} entries")


@check(Interpolate)
def _interpolate(op: Interpolate, ctx: Context) -> None:
    same_type(ctx, op.dst, op.weights)
    ctx.need(op.dst.dtype is sum_type(op.cells.dtype), f"@{op.dst.name} is {op.dst.dtype}, sums of {op.cells.dtype} "
             "are not")  # fmt: skip
    ctx.need(min(op.count, op.around, op.seen) >= 1, f"{op.count} receivers of {op.around} of {op.seen} cells")
    ctx.need(op.dst.size % op.count == 0, f"@{op.dst.name} has no rows of {op.count}")
    number = op.steps is None or (op.steps.dtype is s32 and op.steps.space == "param")
    ctx.need(number, f"@{op.steps and op.steps.name} is no number of steps")
    steps = op.dst.size // op.count
    ctx.need(
        op.cells.size == steps * op.seen, f"{op.seen} cells of {steps} steps, @{op.cells.name} has {op.cells.size}"
    )
    for table in (op.whose, op.weights):
        ctx.need(table.size == op.count * op.around, f"{op.around} cells of {op.count} receivers, @{table.name} has "
                 f"{table.size}")  # fmt: skip
