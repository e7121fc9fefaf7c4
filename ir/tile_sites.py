"""Tile ops at sites of fields: numbers that sources add and cells that receivers see, between the steps of windows.

A thread has those entries of a table that lie in its share of the window, and the register of each.  Who has none is
done with one comparison.  No other family uses these ops: their kernels stand behind the passes of every one, but for
``resident``, whose steps are all of one launch.
"""

from __future__ import annotations

from typing import Any

from .checks import Context, check
from .expr import Expr
from .node import Op, attr, buffer, define, operand
from .tile_rules import registers, same_type
from .types import Buffer, s32, sum_type


@define("tile.own_entries", kw_only=True)
class OwnEntries(Op):
    """Where a thread's entries of a table begin, and where they end: ``begin`` has that for every thread of every
    block, one behind the other, and the end of the last.  They are those of all steps of a launch."""

    span: Buffer = buffer(writes=True, reads=False)
    begin: Buffer = buffer()


@define("tile.fetch_signal", kw_only=True)
class FetchSignal(Op):
    """Asks for what the first entry of a thread adds in a step: it is on its way while the step is made.

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
    """Stores the cells that receivers see: entry i, in the thread's register ``places[i]``, is number ``whose[i]`` of
    the ``count`` ``cells`` of ``step``; ``open`` as in :class:`AddSources`."""

    held: Buffer = buffer()
    span: Buffer = buffer()
    places: Buffer = buffer()
    whose: Buffer = buffer()
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
    _span(ctx, op.span)
    blocks: Any = getattr(ctx.func, "blocks", 1)
    count = blocks * ctx.threads
    ctx.need(op.begin.dtype is s32, f"@{op.begin.name} lists entries, it cannot be {op.begin.dtype}")
    ctx.need(op.begin.size == count + 1, f"the entries of {count} threads begin at {op.begin.size} places, not at one "
             "more")  # fmt: skip


@check(FetchSignal)
def _fetch_signal(op: FetchSignal, ctx: Context) -> None:
    _signals(op, ctx)


@check(AddSources)
def _add_sources(op: AddSources, ctx: Context) -> None:
    _entries(op, ctx)
    _signals(op, ctx)
    ctx.need(op.signals.dtype is sum_type(op.held.dtype), f"@{op.signals.name} is {op.signals.dtype}, sums of "
             f"{op.held.dtype} are not")  # fmt: skip


@check(RecordCells)
def _record_cells(op: RecordCells, ctx: Context) -> None:
    _entries(op, ctx)
    _rows(ctx, op, op.cells, "cells")
    ctx.need(op.cells.dtype is sum_type(op.held.dtype), f"@{op.cells.name} is {op.cells.dtype}, sums of "
             f"{op.held.dtype} are not")  # fmt: skip


def _span(ctx: Context, span: Buffer) -> None:
    registers(ctx, span, 2, exactly=True)
    ctx.need(span.dtype is s32, f"@{span.name} counts entries, it cannot be {span.dtype}")


def _entries(op: AddSources | RecordCells, ctx: Context) -> None:
    registers(ctx, op.held, 1)
    _span(ctx, op.span)
    for table in (op.places, op.whose):
        ctx.need(table.dtype is s32, f"@{table.name} lists entries, it cannot be {table.dtype}")
    ctx.need(op.places.size == op.whose.size, f"{op.places.size} places of {op.whose.size} entries")


def _signals(op: FetchSignal | AddSources, ctx: Context) -> None:
    _span(ctx, op.span)
    registers(ctx, op.ahead, 1, exactly=True)
    same_type(ctx, op.signals, op.weights, op.ahead)
    ctx.need(op.weights.size == op.whose.size, f"{op.weights.size} weights of {op.whose.size} entries")
    _rows(ctx, op, op.signals, "signals")


def _rows(ctx: Context, op: FetchSignal | AddSources | RecordCells, rows: Buffer, what: str) -> None:
    """An array has a row for each step."""
    last = rows.size // op.count if op.open else op.step.hi + 1
    steps = f"{last} steps" if last else "any step"
    ctx.need(rows.size == max(1, last) * op.count, f"{op.count} {what} of {steps}, @{rows.name} has {rows.size}")


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
    steps = op.dst.size // op.count
    ctx.need(
        op.cells.size == steps * op.seen, f"{op.seen} cells of {steps} steps, @{op.cells.name} has {op.cells.size}"
    )
    for table in (op.whose, op.weights):
        ctx.need(table.size == op.count * op.around, f"{op.around} cells of {op.count} receivers, @{table.name} has "
                 f"{table.size}")  # fmt: skip
