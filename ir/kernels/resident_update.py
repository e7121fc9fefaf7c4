"""``resident`` for general updates: fields stay in the registers of all blocks for all time steps of a call.

One launch loads every field, makes its steps round by round, and stores the newest levels.  Between two rounds blocks
exchange the cells around their own, each with a tag that says of which round it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .. import op_update as o
from .. import tile as t
from .. import tile_held as th
from ..errors import ScheduleError
from ..expr import Value
from ..layout import walk_degree
from ..module import Module
from ..numbers.arithmetic import up
from ..numbers.held import Held, Table
from ..numbers.records import RECORD
from ..op_sites import between
from ..passes.manager import register
from ..types import Buffer, s32, u32, u64
from .common import each, replace_kernel
from .held import Windows, reads_of, wrapping
from .held_sites import Acts, HeldSites

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
    ``steps``; ``steps.scalars`` is a table of the formula's scalars, a row for each step.  With sites those of
    :class:`.UpdateSites` too, and ``workspace.steps.NAME`` for the cells that receivers see: arrays with a row for each
    step.  The update has no sites afterwards.
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
        (nz, ny, nx), (tz, ty, tx) = op.shape, (1, 1, *self.tiles)[-3:]
        share = self.planes, self.rows, self.cols
        held = Held(
            (nz, ny, nx), (tz, ty, tx), share, self.warps, self.every, reads_of(op.code), wrapping(op.sides)
        )  # fmt: skip
        if (why := held.legal()) is not None:
            raise ScheduleError(why, hint="take other tiles, rows, cols or warps, or fewer steps between exchanges")
        sites = HeldSites(module, given, self.steps, between) if given.sources or given.receivers else None
        kernel, at = _Kernel(op, held, self.steps, sites), module.funcs.index(given)
        if sites is not None:
            sites.records(open=True)
            module = sites.behind()
        constants = kernel.constants | {f"{op.symbol}.steps": np.array([self.steps], np.int32)}
        kept = (COUNTER if what == "counter" else f"{KEPT}{what}" for what in kernel.kept)
        roles = [
            *kernel.roles, *kept, f"{op.symbol}.steps", *kernel.acts.rows.values(),
            *(o.ALL_SCALARS for _ in kernel.scalars),
        ]  # fmt: skip
        return replace_kernel(module, module.funcs[at], kernel.launched(), roles, constants)


class _Kernel(Windows):
    """The buffers of a kernel, and its ops."""

    def __init__(self, op: o.Update, held: Held, steps: int, sites: HeldSites | None) -> None:
        #: How many arrays change, so that halos have to come anew: all but the coefficients.
        self.swapped = len(o.parameters(op.fields, ()))
        #: How cells come from other blocks; empty where they do not.
        self.by = held.by(self.swapped, op.dtype.nbytes)
        tables: dict[str, Any] = {}
        if self.by == "images":
            tables = {"given": held.given, "taken": held.taken}
        elif self.by:
            tables = {"bits": held.line_bits if self.by == "lines" else held.cell_bits}
        others = ["cells", "epoch", "counter", "steps", "image"]
        if sites is not None:
            tables |= sites.tables(held, every=True)[1]
            others += sites.others
        super().__init__(op, held, o.parameters(op.fields, ()), tables=tables, others=others)
        count, cells = self.swapped, self._cells()
        #: What stays from launch to launch.
        self.kept = {what: Buffer(self.called[what], u32, 1, "global") for what in ("epoch", "counter")}
        self.kept |= {"cells": cells} if self.by else {}
        self.number = Buffer(self.called["steps"], s32, 1, "param")
        #: How many steps there are, and what happens at sites around each.
        self.total, self.acts = None, Acts()
        if sites is not None:
            most = min(MOST_STEPS, s32.range[1] // sites.most)  # indices of rows have 32 bits
            self.total = Value("total", s32, 1, most)
            self.acts = sites.acts(self, Value("number", s32, 0, most - 1), self.total, open=True)
        #: The scalars of every step, if the formula has any.
        taken = (*self.arrays, *self.lists.values(), *self.kept.values(), self.number, *self.acts.rows)
        self.scalars = o.scalars(op, steps, taken, "global")
        size = count * self.threads * prod(held.share)
        self.image = Buffer(self.called["image"], op.dtype, size, "shared", 128)

    def _cells(self) -> Buffer:
        """What cells travel through, for two rounds: records of lines, or a value and its tag of each cell."""
        held, called, dtype = self.held, self.called["cells"], self.op.dtype
        lines = 2 * held.shape[0] * held.shape[1]
        if self.by == "lines":
            each = held.records(self.swapped, dtype.nbytes).size
            return Buffer(called, u32, lines * each * RECORD, "global", u32.nbytes * RECORD)
        word = u64 if dtype.bits == 64 else u32
        line = up(held.shape[2], held.share[2]) if self.by == "cells" else held.shape[2]
        return Buffer(called, word, 2 * lines * self.swapped * line, "global", 2 * word.nbytes)

    def launched(self) -> t.Func:
        """It loads the fields, makes all rounds of steps, and stores the newest levels."""
        room = (*((self.image,) if self.by == "images" else ()), *self.acts.regs)
        given = (*self.kept.values(), self.number, *self.acts.rows, *self.scalars)
        return self.func(self.window(*self.acts.once, self._rounds()), *given, room=room, together=True)

    def _rounds(self) -> th.Rounds:
        every = self.held.every if self.by else MOST_STEPS  # with no halo there is one round
        number, left, tag = Value("round", s32, 0, MOST_STEPS // every), Value("left", s32, 1, every), Value("tag", u32)
        exchange = (self._exchange(number, tag),) if self.by else ()
        steps = self.steps(number * every, left, next(iter(self.scalars), None))
        return th.Rounds(
            round=number, left=left, tag=tag, total=self.total, steps=self.number, epoch=self.kept["epoch"],
            counter=self.kept["counter"], every=every, swap=exchange, body=(self.acts.around(steps),),
            ahead=self.acts.ahead,
        )  # fmt: skip

    def _exchange(self, number: Value, tag: Value) -> th.Swap:
        held = self.regs[: self.swapped]
        if self.by != "images":
            direct: dict[str, Any] = {
                "held": held, "cells": self.kept["cells"], "bits": self.lists["bits"], "round": number, "tag": tag,
                "first": self.first, "share": self.held.share, "extent": self.held.shape,
            }  # fmt: skip
            if self.by == "lines":
                given, taken = self.held.swapped_lines
                return th.ExchangeLines(**direct, given=given, taken=taken)
            return th.ExchangeCells(**direct, at_once=self.held.at_once(self.op.dtype.nbytes))
        nbytes = self.op.dtype.nbytes
        return th.Exchange(
            held=held, image=self.image, cells=self.kept["cells"], given=self.lists["given"],
            taken=self.lists["taken"], round=number, tag=tag, low=self.low, high=self.high, share=self.held.share,
            extent=self.held.cells, turn=self.held.turn,
            degree=max(_degree(table, nbytes) for table in (self.held.given, self.held.taken)),
        )  # fmt: skip


def _degree(lists: Table, nbytes: int) -> int:
    """The bank-conflict degree of what blocks walk over, cell by cell."""
    return max(walk_degree(places.astype(np.int64), nbytes) for places in lists[:, :, 1])
