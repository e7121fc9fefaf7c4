"""What kernels for sources and receivers share: what is known of their cells, their launches, and what is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import op_update as o
from .. import tile as t
from .. import tile_sites as ts
from ..module import Launch, Module
from ..node import Op, located
from ..op_sites import placed, record, without
from ..types import Buffer, s32, sum_type

#: Threads of a block that has one cell, or one number of a record, a thread.
THREADS = 128
#: Steps of records that threads make side by side, where it is not known how many there are.
AT_ONCE = 64


class SiteKernels:
    """Kernels for the sites of an update, to run behind a pass of ``levels`` steps, with their launches and tables."""

    def __init__(self, module: Module, given: o.Update, levels: int) -> None:
        self.module, self.given, self.levels = module, given, levels
        self.symbol, self.sums = f"{given.symbol}_sites", sum_type(given.dtype)
        every = (*given.sources, *given.receivers)
        self.groups = {name: placed(module, given.symbol, name) for name, _, _ in every}
        self.kernels: list[tuple[t.Func, tuple[str, ...]]] = []
        self.constants: dict[str, npt.NDArray[Any]] = {}

    def add(self, func: t.Func, roles: Sequence[str], constants: Mapping[str, npt.NDArray[Any]]) -> None:
        """One kernel more, with the roles of its launch and its tables by role."""
        self.kernels.append((func, tuple(roles)))
        self.constants |= constants

    def each(self, symbol: str, count: int, body: Op, params: Mapping[Buffer, str], tables: Mapping[str, Any]) -> None:
        """A kernel that has ``count`` threads; ``params`` with their roles, ``tables`` by parameter."""
        func = t.Func(
            symbol=symbol, params=tuple(params), blocks=-(-count // THREADS), threads=THREADS, body=(body,)
        )  # fmt: skip
        self.add(func, tuple(params.values()), {f"{symbol}.{name}": table for name, table in tables.items()})

    def recorded(self, group: o.Sites, src: Buffer, role: str, cells: npt.NDArray[Any], *, open: bool = False) -> None:
        """A kernel that makes of cells what receivers record; ``cells``: which of those in ``src``, which has as many
        for each step, each pair of a receiver and a cell has.  ``open``: how many steps there are is said at the
        launch."""
        (name, _, count), pairs = group, self.groups[group[0]]
        order = np.argsort(pairs.sites, kind="stable")
        turn = np.zeros(len(order), np.int64)  # which of its receiver's pairs a pair is
        turn[order] = np.arange(len(order)) - np.searchsorted(pairs.sites[order], pairs.sites[order])
        around = int(turn.max()) + 1
        whose, weights = np.zeros((count, around), np.int32), np.zeros((count, around), self.sums.numpy())
        whose[pairs.sites, turn], weights[pairs.sites, turn] = cells, pairs.weights
        whose = np.where(weights == 0, whose[:, :1], whose)  # a cell that is not a number comes in by its weight alone
        symbol, total = f"{self.symbol}_{name}", self.levels * count
        dst = Buffer("recorded", self.sums, total, "global")
        table, factors = (
            Buffer("whose", s32, whose.size, "global"),
            Buffer("weights", self.sums, weights.size, "global"),
        )
        steps = Buffer("steps", s32, 1, "param") if open else None
        body = ts.Interpolate(
            dst=dst, cells=src, whose=table, weights=factors, count=count, around=around, seen=src.size // self.levels,
            steps=steps,
        )  # fmt: skip
        params = {dst: record(name), src: role, table: f"{symbol}.whose", factors: f"{symbol}.weights"}
        if steps is not None:
            params[steps] = f"{self.given.symbol}.steps"
        threads = total if steps is None else count * AT_ONCE
        self.each(symbol, threads, body, params, {"whose": whose, "weights": weights})

    def behind(self) -> Module:
        """The module with the kernels behind its update, which has no sites any more."""
        module, given = self.module, self.given
        at = module.funcs.index(given)
        funcs = tuple(located(func, given.loc) for func, _ in self.kernels)
        launches = (Launch(func.symbol, roles) for func, roles in self.kernels)
        constants = dict(module.constants)
        for name in self.groups:
            constants = without(constants, given.symbol, name)
        alone = replace(given, sources=(), receivers=(), backwards=False)
        return Module(
            module.name, (*module.funcs[:at], alone, *funcs, *module.funcs[at + 1 :]), (*launches, *module.launches),
            {**constants, **self.constants},
        )  # fmt: skip
