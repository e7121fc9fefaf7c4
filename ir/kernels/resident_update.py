"""``resident`` for general updates: fields stay in the registers of all blocks for all time steps of a call.

One launch loads every field, makes its steps round by round, and stores the newest levels.  Between two rounds blocks
exchange the cells around their own, each with a tag that says of which round it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .. import formula as f
from .. import op_update as o
from .. import tile as t
from .. import tile_held as th
from ..errors import ScheduleError
from ..expr import Value
from ..grid import Grid
from ..layout import walk_degree
from ..module import Module
from ..node import Op
from ..numbers.held import Held, Table
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
    """``tiles`` (rows, columns) of blocks of ``warps`` warps, each with ``rows`` rows of ``cols`` columns a lane;
    ``every`` time steps between exchanges, ``steps`` in all.

    Roles of its launch: ``in.NAME.LEVEL`` for what it reads, ``out.NAME.LEVEL`` for what it writes, every level of each
    field (``out.NAME`` for the newest); ``workspace.kept.*`` begins as zeros and stays as a launch leaves it; constant
    ``steps``.
    """

    tiles: tuple[int, int] = (2, 2)
    rows: int = 4
    cols: int = 1
    warps: int = 8
    every: int = 1
    steps: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Update, self._kernel, axes=(2,))

    def _kernel(self, module: Module, op: o.Update) -> Module:
        code, results = f.contract(op.code, op.results)
        held = self.numbers(op)
        if (why := held.legal()) is not None:
            raise ScheduleError(why, hint="take other tiles, rows, cols or warps, or fewer steps between exchanges")
        params, made = o.parameters(op.fields, op.coefs), o.parameters(op.fields, ())
        grids, threads = [Grid(op.shape, pitch) for pitch in op.pitch], 32 * self.warps
        titles = [*map(_title, params), *(f"{_title(array)}_new" for array in made)]
        others = ["facts", "given", "taken", "cells", "epoch", "counter", "steps", "edges", "image"]
        unique = names([*titles, *others, *(f"held_{title}" for title in titles[: len(params)])])
        name = dict(zip(others, unique[len(titles) :], strict=False))
        arrays = [Buffer(title, op.dtype, grid.size, "global") for title, grid in zip(unique, grids, strict=False)]
        regs = tuple(
            Buffer(title, op.dtype, self.rows * self.cols, "reg") for title in unique[len(titles) + len(others) :]
        )
        first, own, low, high = (
            tuple(Value(f"{what}_{axis}", s32, 0, top) for axis, top in zip("yx", tops, strict=True))
            for what, tops in (("first", op.shape), ("own", op.shape), ("low", held.window), ("high", held.window))
        )
        every = self.every if held.taken.size else MOST_STEPS  # with no halo there is one round
        number, left, tag = Value("round", s32, 0, MOST_STEPS // every), Value("left", s32, 1, every), Value("tag", u32)
        far = max((abs(offset[0]) for _, _, offset in f.reads(code)), default=0)
        passed = {(field, level) for field, level, offset in f.reads(code) if offset[0]}
        edge = max(1, 4 * len(passed) * far * self.cols * threads)
        shared = [Buffer(name["edges"], op.dtype, edge, "shared", 128)]
        steps = th.HeldSteps(
            held=regs, edges=shared[0], left=left, first=first, low=low, high=high, fields=op.fields, coefs=op.coefs,
            code=code, results=results, rows=self.rows, reach=held.reach, keep=(op.radius[0], op.radius[1]),
            extent=held.shape, sides=(*op.sides, op.coef_sides),
        )  # fmt: skip
        tables = {"facts": held.facts}
        kept = {
            "epoch": Buffer(name["epoch"], u32, 1, "global"), "counter": Buffer(name["counter"], u32, 1, "global"),
        }  # fmt: skip
        body: tuple[Op, ...] = (steps,)
        if held.taken.size:
            tables |= {"given": held.given, "taken": held.taken}
            word = u64 if op.dtype.bits == 64 else u32
            kept["cells"] = Buffer(name["cells"], word, 4 * len(params) * held.cells, "global", 2 * word.nbytes)
            shared.append(Buffer(name["image"], op.dtype, len(params) * threads * regs[0].size, "shared", 128))
        lists = {table: Buffer(name[table], s32, values.size, "global") for table, values in tables.items()}
        if held.taken.size:
            exchange = th.Exchange(
                held=regs, image=shared[1], cells=kept["cells"], given=lists["given"], taken=lists["taken"],
                round=number, tag=tag, low=low, high=high, rows=self.rows, extent=held.cells,
                degree=max(_degree(table, op.dtype.nbytes) for table in (held.given, held.taken)),
            )  # fmt: skip
            body = (exchange, steps)
        count = Buffer(name["steps"], s32, 1, "param")
        rounds = th.Rounds(
            round=number, left=left, tag=tag, steps=count, epoch=kept["epoch"], counter=kept["counter"], every=every,
            body=body,
        )  # fmt: skip
        loads = [
            th.LoadHeld(held=to, src=src, first=first, rows=self.rows, grid=grid)
            for to, src, grid in zip(regs, arrays, grids, strict=False)
        ]
        stores = [
            th.StoreHeld(dst=dst, held=of, own=own, low=low, high=high, rows=self.rows, grid=grid)
            for dst, of, grid in zip(arrays[len(params) :], regs, grids[len(params) :], strict=False)
        ]
        window = th.Window(
            first=first, own=own, low=low, high=high, facts=lists["facts"], body=(*loads, rounds, *stores)
        )
        func = t.Func(
            symbol=op.symbol, params=(*arrays, *lists.values(), *kept.values(), count), blocks=held.blocks,
            threads=threads, body=(*(t.Alloc(buf=buf) for buf in (*shared, *regs)), window), together=True,
        )  # fmt: skip
        constants = {f"{op.symbol}.{table}": values for table, values in tables.items()}
        constants[f"{op.symbol}.steps"] = np.array([self.steps], np.int32)
        roles = [
            *(f"in.{field}.{level}" for field, level in params), *(o.written(*array) for array in made),
            *(f"{op.symbol}.{table}" for table in tables),
            *(COUNTER if what == "counter" else f"{KEPT}{what}" for what in kept), f"{op.symbol}.steps",
        ]  # fmt: skip
        return replace_kernel(module, op, func, roles, constants)

    def numbers(self, op: o.Update) -> Held:
        """Which cells a block has, and which it gets."""
        return held_of(
            op.code, op.sides, (op.shape[0], op.shape[1]), tiles=self.tiles, rows=self.rows, cols=self.cols,
            warps=self.warps, every=self.every,
        )  # fmt: skip


def held_of(
    code: f.Code, sides: Iterable[Sides], shape: tuple[int, int], *, tiles: tuple[int, int], rows: int, cols: int,
    warps: int, every: int,
) -> Held:  # fmt: skip
    """The numbers of an update's fields on two axes; ScheduleError for an axis that wraps for one field only."""
    offsets = [offset for _, _, offset in f.reads(code)]
    wraps = [{pair[0][0] == "periodic" for pair in pairs} for pairs in zip(*sides, strict=True)]
    if any(len(kinds) > 1 for kinds in wraps):
        raise ScheduleError(
            "an axis wraps for one field and not for another: a cell outside is then two",
            hint="direct does any boundary",
        )
    reach = [max((abs(offset[axis]) for offset in offsets), default=0) for axis in (0, 1)]
    return Held(
        shape, tiles, rows, cols, warps, every, (reach[0], reach[1]), (True in wraps[0], True in wraps[1])
    )  # fmt: skip


def _title(array: tuple[str, int]) -> str:
    name, level = array
    return f"{name}_{level}" if level else name


def _degree(lists: Table, nbytes: int) -> int:
    """The bank-conflict degree of what blocks walk over, cell by cell."""
    return max(walk_degree(places.astype(np.int64), nbytes) for places in lists[:, :, 1])
