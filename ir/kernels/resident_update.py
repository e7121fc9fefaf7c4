"""``resident`` for general updates: fields stay in the registers of all blocks for all time steps of a call.

One launch loads every field, makes its steps round by round, and stores the newest levels.  Between two rounds blocks
exchange the cells around their own, each with a tag that says of which round it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import formula as f
from .. import op_update as o
from .. import tile as t
from .. import tile_held as th
from ..errors import ScheduleError
from ..expr import Expr, Value
from ..grid import Grid
from ..layout import walk_degree
from ..module import Module
from ..numbers.held import Cells, Held, Table, spread
from ..op import Sides
from ..passes.manager import register
from ..types import Buffer, s32, u32, u64
from .common import each, replace_kernel
from .pointwise import names

#: How roles of arrays begin that stay as a launch leaves them, and that of what counts blocks.
KEPT, COUNTER = "workspace.kept.", "workspace.counter"
#: Time steps of a launch at most.
MOST_STEPS = 1 << 24


@register("resident-update")
@dataclass(frozen=True)
class ResidentUpdate:
    """``tiles`` blocks along each axis, of ``warps`` warps with ``rows`` rows of ``cols`` columns a lane, of ``planes``
    planes; ``every`` time steps between exchanges, ``steps`` in all.  A field of fewer axes is one of three.

    Roles of its launch: ``in.NAME.LEVEL`` for what it reads, ``out.NAME.LEVEL`` for what it writes, every level of each
    field (``out.NAME`` for the newest); ``workspace.kept.*`` begins as zeros and stays as a launch leaves it; constant
    ``steps``.
    """

    tiles: tuple[int, ...] = (2, 2)
    planes: int = 1
    rows: int = 4
    cols: int = 1
    warps: int = 8
    every: int = 1
    steps: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Update, self._kernel)

    def _kernel(self, module: Module, given: o.Update) -> Module:
        op = o.on_axes(given, 3)
        held = held_of(
            op.code, op.sides, op.shape, tiles=self.tiles, share=(self.planes, self.rows, self.cols), warps=self.warps,
            every=self.every,
        )  # fmt: skip
        if (why := held.legal()) is not None:
            raise ScheduleError(why, hint="take other tiles, rows, cols or warps, or fewer steps between exchanges")
        kernel = _Kernel(op, held)
        constants: dict[str, Any] = {f"{op.symbol}.{table}": values for table, values in kernel.tables.items()}
        constants[f"{op.symbol}.steps"] = np.array([self.steps], np.int32)
        roles = [
            *(f"in.{field}.{level}" for field, level in kernel.params), *(o.written(*array) for array in kernel.made),
            *(f"{op.symbol}.{table}" for table in kernel.tables),
            *(COUNTER if what == "counter" else f"{KEPT}{what}" for what in kernel.kept), f"{op.symbol}.steps",
        ]  # fmt: skip
        return replace_kernel(module, given, kernel.func(), roles, constants)


def held_of(
    code: f.Code, sides: Iterable[Sides], shape: tuple[int, ...], *, tiles: tuple[int, ...], share: Cells, warps: int,
    every: int,
) -> Held:  # fmt: skip
    """The numbers of an update's fields on three axes; ``tiles`` of the last ones, the others have one.

    ScheduleError for an axis that wraps for one field only.
    """
    wraps = [{pair[0][0] == "periodic" for pair in pairs} for pairs in zip(*sides, strict=True)]
    if any(len(kinds) > 1 for kinds in wraps):
        raise ScheduleError(
            "an axis wraps for one field and not for another: a cell outside is then two",
            hint="direct does any boundary",
        )
    wrap_z, wrap_y, wrap_x = (True in kinds for kinds in wraps)
    count_z, count_y, count_x = (1, 1, *tiles)[-3:]
    return Held(
        (shape[0], shape[1], shape[2]), (count_z, count_y, count_x), share, warps, every,
        spread(offset for _, _, offset in f.reads(code)), (wrap_z, wrap_y, wrap_x),
    )  # fmt: skip


class _Kernel:
    """The buffers of a kernel, and its ops."""

    def __init__(self, op: o.Update, held: Held) -> None:
        self.op, self.held, self.threads = op, held, 32 * held.warps
        self.params, self.made = o.parameters(op.fields, op.coefs), o.parameters(op.fields, ())
        self.grids = [Grid(op.shape, pitch) for pitch in op.pitch]
        #: Tables of constants, by name: what is whose, and what blocks exchange if they do.
        self.tables: dict[str, npt.NDArray[Any]] = {"facts": held.facts}
        #: Whether cells come from other blocks.
        self.swaps = held.taken_cells > 0
        if held.by_lines:
            self.tables |= {"lines": held.lines}
        elif self.swaps:
            self.tables |= {"given": held.given, "taken": held.taken}
        size, word, count = prod(held.share), u64 if op.dtype.bits == 64 else u32, len(self.params)
        titles = [*map(_title, self.params), *(f"{_title(array)}_new" for array in self.made)]
        others = [*self.tables, "cells", "epoch", "counter", "steps", "edges", "image"]
        unique = iter(names([*titles, *others, *(f"held_{title}" for title in titles[:count])]))
        self.arrays = [Buffer(next(unique), op.dtype, grid.size, "global") for grid in self.grids]
        self.lists = {
            table: Buffer(next(unique), u32 if table == "lines" else s32, a.size, "global")
            for table, a in self.tables.items()
        }
        cells = Buffer(next(unique), word, 4 * count * held.cells, "global", 2 * word.nbytes)
        #: What stays from launch to launch.
        self.kept = {what: Buffer(next(unique), u32, 1, "global") for what in ("epoch", "counter")}
        self.kept |= {"cells": cells} if self.swaps else {}
        self.steps = Buffer(next(unique), s32, 1, "param")
        edges = max(1, th.edge_elements(op.code, held.share, self.threads))
        self.edges = Buffer(next(unique), op.dtype, edges, "shared", 128)
        self.image = Buffer(next(unique), op.dtype, count * self.threads * size, "shared", 128)
        self.regs = tuple(Buffer(name, op.dtype, size, "reg") for name in unique)
        self.first, self.own, self.low, self.high = (
            tuple(Value(f"{what}_{axis}", s32, 0, top) for axis, top in zip("zyx", tops, strict=True))
            for what, tops in (("first", op.shape), ("own", op.shape), ("low", held.window), ("high", held.window))
        )

    def func(self) -> t.Func:
        """It loads the fields, makes all rounds of steps, and stores the newest levels."""
        count = len(self.params)
        loads = [
            th.LoadHeld(held=to, src=src, first=self.first, share=self.held.share, grid=grid)
            for to, src, grid in zip(self.regs, self.arrays, self.grids, strict=False)
        ]
        stores = [
            th.StoreHeld(dst=dst, held=of, own=self.own, low=self.low, high=self.high, share=self.held.share, grid=grid)
            for dst, of, grid in zip(self.arrays[count:], self.regs, self.grids[count:], strict=False)
        ]
        window = th.Window(
            first=self.first, own=self.own, low=self.low, high=self.high, facts=self.lists["facts"],
            body=(*loads, self._rounds(), *stores),
        )  # fmt: skip
        shared = (self.edges, self.image) if self.swaps and not self.held.by_lines else (self.edges,)
        return t.Func(
            symbol=self.op.symbol, params=(*self.arrays, *self.lists.values(), *self.kept.values(), self.steps),
            blocks=self.held.blocks, threads=self.threads,
            body=(*(t.Alloc(buf=buf) for buf in (*shared, *self.regs)), window), together=True,
        )  # fmt: skip

    def _rounds(self) -> th.Rounds:
        every = self.held.every if self.swaps else MOST_STEPS  # with no halo there is one round
        number, left, tag = Value("round", s32, 0, MOST_STEPS // every), Value("left", s32, 1, every), Value("tag", u32)
        exchange = (self._exchange(number, tag),) if self.swaps else ()
        return th.Rounds(
            round=number, left=left, tag=tag, steps=self.steps, epoch=self.kept["epoch"],
            counter=self.kept["counter"], every=every, body=(*exchange, self._steps(number * every, left)),
        )  # fmt: skip

    def _exchange(self, number: Value, tag: Value) -> th.Exchange | th.ExchangeLines:
        if self.held.by_lines:
            return th.ExchangeLines(
                held=self.regs, cells=self.kept["cells"], lines=self.lists["lines"], round=number, tag=tag,
                first=self.first, share=self.held.share, extent=self.held.shape,
                at_once=self.held.lines_at_once(len(self.params), self.op.dtype.nbytes),
            )  # fmt: skip
        nbytes = self.op.dtype.nbytes
        return th.Exchange(
            held=self.regs, image=self.image, cells=self.kept["cells"], given=self.lists["given"],
            taken=self.lists["taken"], round=number, tag=tag, low=self.low, high=self.high, share=self.held.share,
            extent=self.held.cells, turn=self.held.turn,
            degree=max(_degree(table, nbytes) for table in (self.held.given, self.held.taken)),
        )  # fmt: skip

    def _steps(self, done: Expr, left: Value) -> th.HeldSteps:
        op = self.op
        code, results = f.contract(op.code, op.results)
        return th.HeldSteps(
            held=self.regs, edges=self.edges, done=done, left=left, first=self.first, low=self.low, high=self.high,
            fields=op.fields, coefs=op.coefs, code=code, results=results, share=self.held.share,
            reach=self.held.reach, keep=(op.radius[0], op.radius[1], op.radius[2]), closed=self.held.closed,
            extent=self.held.shape, sides=(*op.sides, op.coef_sides),
        )  # fmt: skip


def _title(array: tuple[str, int]) -> str:
    name, level = array
    return f"{name}_{level}" if level else name


def _degree(lists: Table, nbytes: int) -> int:
    """The bank-conflict degree of what blocks walk over, cell by cell."""
    return max(walk_degree(places.astype(np.int64), nbytes) for places in lists[:, :, 1])
