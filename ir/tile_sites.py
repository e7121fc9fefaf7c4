"""Tile ops at sites of fields: numbers that sources add and cells that receivers see, between the steps of windows.

A block has those entries of a table that lie in its window: ``begin`` says where its own begin, and where the next
block's do.  The place of an entry is a thread and a register of its share of the window, as one number:
thread * registers + register.  No other family uses these ops: their kernels stand behind the passes of every one.
"""

from __future__ import annotations

from typing import Any

from .checks import Context, check
from .expr import Expr
from .node import Op, attr, buffer, define, operand
from .tile_rules import registers, same_type
from .types import Buffer, s32, sum_type


@define("tile.add_sources", kw_only=True)
class AddSources(Op):
    """Adds ``weights`` times the signals of a step to the cells of sources: entry i those of source ``whose[i]``.

    ``signals`` [steps, count]: the numbers of each source at each step of the pass; ``step``: which of them.  Sums are
    made in their type, and rounded to the field's.
    """

    held: Buffer = buffer(writes=True)
    begin: Buffer = buffer()
    places: Buffer = buffer()
    whose: Buffer = buffer()
    weights: Buffer = buffer()
    signals: Buffer = buffer()
    step: Expr = operand()
    count: int = attr()


@define("tile.record_cells", kw_only=True)
class RecordCells(Op):
    """Stores the cells that receivers see: entry i is number ``whose[i]`` of the ``count`` ``cells`` of ``step``."""

    held: Buffer = buffer()
    begin: Buffer = buffer()
    places: Buffer = buffer()
    whose: Buffer = buffer()
    cells: Buffer = buffer(writes=True, reads=False)
    step: Expr = operand()
    count: int = attr()


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

    A thread makes one number.  ``whose`` [count, around] says which of the ``seen`` cells of a step they are; cells of
    16 bits are summed in f32.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    cells: Buffer = buffer()
    whose: Buffer = buffer()
    weights: Buffer = buffer()
    count: int = attr()
    around: int = attr()
    seen: int = attr()


@check(AddSources, RecordCells)
def _entries(op: AddSources | RecordCells, ctx: Context) -> None:
    registers(ctx, op.held, 1)
    blocks: Any = getattr(ctx.func, "blocks", 1)
    for table in (op.begin, op.places, op.whose):
        ctx.need(table.dtype is s32, f"@{table.name} lists entries, it cannot be {table.dtype}")
    ctx.need(op.begin.size == blocks + 1, f"the entries of {blocks} blocks begin at {op.begin.size} places, not at one "
             "more")  # fmt: skip
    ctx.need(op.places.size == op.whose.size, f"{op.places.size} places of {op.whose.size} entries")
    last = op.step.hi + 1
    rows, what = (op.signals, "signals") if isinstance(op, AddSources) else (op.cells, "cells")
    ctx.need(rows.size == last * op.count, f"{op.count} {what} of {last} steps, @{rows.name} has {rows.size}")
    ctx.need(rows.dtype is sum_type(op.held.dtype), f"@{rows.name} is {rows.dtype}, sums of {op.held.dtype} are not")
    if isinstance(op, AddSources):
        same_type(ctx, op.signals, op.weights)
        ctx.need(op.weights.size == op.places.size, f"{op.weights.size} weights of {op.places.size} entries")


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
