"""What kernels share whose blocks keep windows of all arrays in registers: buffers, loads, steps, stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy.typing as npt

from .. import formula as f
from .. import op_update as o
from .. import tile as t
from .. import tile_held as th
from ..errors import ScheduleError
from ..expr import ExprLike, Value, as_expr
from ..grid import Grid
from ..node import Op
from ..numbers.held import Held, spread
from ..op import Sides
from ..types import Buffer, f32, f64, s32, u32
from .pointwise import names

#: The types of tables.
_TYPES: Final = {"int32": s32, "uint32": u32, "float32": f32, "float64": f64}


class Windows:
    """The windows of an update's arrays on three axes, and the ops on them.

    ``made``: the fields and levels that are stored.  ``others`` are names that a kernel needs for buffers of its own,
    and ``tables`` its constants, by name, besides the ``facts`` of its blocks.
    """

    def __init__(
        self, op: o.Update, held: Held, made: Sequence[tuple[str, int]], *,
        tables: Mapping[str, npt.NDArray[Any]] | None = None, others: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self.op, self.held, self.threads, self.made = op, held, 32 * held.warps, tuple(made)
        self.params = o.parameters(op.fields, op.coefs)
        #: Tables of constants, by name: what is whose, and what else a kernel has.
        self.tables: dict[str, npt.NDArray[Any]] = {"facts": held.facts, **(tables or {})}
        every = o.parameters(op.fields, ())  # pitches are of all levels that may be written
        pitches = [*op.pitch[: len(self.params)], *(op.pitch[len(self.params) + every.index(at)] for at in self.made)]
        self.grids = [Grid(op.shape, pitch) for pitch in pitches]
        titles = [*map(_title, self.params), *(f"{_title(array)}_new" for array in self.made)]
        own = [*self.tables, *others, "edges"]
        unique = names([*titles, *own, *(f"held_{title}" for title in titles[: len(self.params)])])
        called = dict(zip((*titles, *own), unique, strict=False))
        #: The names of a kernel's own buffers.
        self.called = {name: called[name] for name in others}
        arrays = zip(unique, self.grids, strict=False)
        self.arrays = [Buffer(name, op.dtype, grid.size, "global") for name, grid in arrays]
        self.lists = {
            table: Buffer(called[table], _TYPES[a.dtype.name], a.size, "global") for table, a in self.tables.items()
        }
        shown = th.edge_elements(op.code, held.share, self.threads)
        #: Rows that warps show one another, if they do.
        self.edges = Buffer(called["edges"], op.dtype, shown, "shared", 128) if shown else None
        self.regs = tuple(Buffer(n, op.dtype, prod(held.share), "reg") for n in unique[len(titles) + len(own) :])
        self.first, self.own, self.low, self.high = (
            tuple(Value(f"{what}_{axis}", s32, 0, top) for axis, top in zip("zyx", tops, strict=True))
            for what, tops in (("first", op.shape), ("own", op.shape), ("low", held.window), ("high", held.window))
        )

    @property
    def roles(self) -> list[str]:
        """Of the arrays and the tables, in the order of parameters: ``in.NAME.LEVEL``, what is written, constants."""
        return [
            *(f"in.{field}.{level}" for field, level in self.params), *(o.written(*array) for array in self.made),
            *(f"{self.op.symbol}.{table}" for table in self.tables),
        ]  # fmt: skip

    @property
    def constants(self) -> dict[str, Any]:
        """The tables, by role."""
        return {f"{self.op.symbol}.{table}": values for table, values in self.tables.items()}

    def window(self, *body: Op) -> th.Window:
        """A block's work: it loads its windows, does ``body``, and stores its own cells of what is made."""
        count = len(self.params)
        loads = [
            th.LoadHeld(held=to, src=src, first=self.first, share=self.held.share, grid=grid)
            for to, src, grid in zip(self.regs, self.arrays, self.grids, strict=False)
        ]
        held = dict(zip(self.params, self.regs, strict=True))
        stores = [
            th.StoreHeld(
                dst=dst, held=held[array], own=self.own, low=self.low, high=self.high, share=self.held.share, grid=grid
            )
            for dst, array, grid in zip(self.arrays[count:], self.made, self.grids[count:], strict=True)
        ]
        return th.Window(
            first=self.first, own=self.own, low=self.low, high=self.high, facts=self.lists["facts"],
            body=(*loads, *body, *stores),
        )  # fmt: skip

    def steps(self, done: ExprLike, left: ExprLike, scalars: Buffer | None = None) -> th.HeldSteps:
        """``left`` time steps, before which ``done`` have been made; ``scalars`` has those of all."""
        op = self.op
        code, results = f.contract(op.code, op.results)
        return th.HeldSteps(
            held=self.regs, edges=self.edges, done=as_expr(done), left=as_expr(left), first=self.first, low=self.low,
            high=self.high, fields=op.fields, coefs=op.coefs, code=code, results=results, share=self.held.share,
            reach=self.held.reach, made=self.held.made, keep=(op.radius[0], op.radius[1], op.radius[2]),
            closed=self.held.closed, extent=self.held.shape, sides=(*op.sides, op.coef_sides), scalars=scalars,
        )  # fmt: skip

    def func(self, body: th.Window, *more: Buffer, room: Sequence[Buffer] = (), **how: Any) -> t.Func:
        """The kernel; ``more`` are parameters behind arrays and tables, ``room`` it has besides edges and windows."""
        edges = () if self.edges is None else (self.edges,)
        return t.Func(
            symbol=self.op.symbol, params=(*self.arrays, *self.lists.values(), *more), blocks=self.held.blocks,
            threads=self.threads, body=(*(t.Alloc(buf=buf) for buf in (*edges, *room, *self.regs)), body), **how,
        )  # fmt: skip


def wrapping(sides: Iterable[Sides]) -> tuple[bool, bool, bool]:
    """Of each axis of three, whether fields wrap; ScheduleError for one that wraps for one field only."""
    wraps = [{pair[0][0] == "periodic" for pair in pairs} for pairs in zip(*sides, strict=True)]
    if any(len(kinds) > 1 for kinds in wraps):
        raise ScheduleError(
            "an axis wraps for one field and not for another: a cell outside is then two",
            hint="direct does any boundary",
        )
    planes, rows, columns = (True in kinds for kinds in wraps)
    return planes, rows, columns


def reads_of(code: f.Code) -> frozenset[tuple[int, int, int]]:
    """How far a formula's reads lie on three axes, to either side."""
    return spread(offset for _, _, offset in f.reads(code))


def _title(array: tuple[str, int]) -> str:
    name, level = array
    return f"{name}_{level}" if level else name
