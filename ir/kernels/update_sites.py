"""Sources and receivers of updates: the windows around them, made again behind a pass with what happens at sites.

A pass of several steps knows the fields between them in registers only.  So a second kernel makes the same steps of
those windows that have a site: after each step it adds what sources emit, and stores the cells that receivers see; at
the end it overwrites what the pass has made of the windows.  A third kernel makes of cells what receivers record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import op_update as o
from .. import tile as t
from .. import tile_sites as ts
from ..expr import Value
from ..module import Launch, Module
from ..node import Op, located
from ..numbers.held import Held
from ..numbers.rows import newest
from ..numbers.sites import Entries, everywhere, own
from ..op_sites import Placed, placed, record, signal, without
from ..passes.manager import register
from ..types import Buffer, s32, sum_type
from .common import each
from .held import Windows
from .tiled_update import windows

#: Threads of the kernel that makes of cells what receivers record.
_THREADS = 128


@register("update-sites")
@dataclass(frozen=True)
class UpdateSites:
    """Puts kernels for the sites of each update behind it: windows of ``warps`` warps with ``rows`` rows of ``cols``
    columns a lane, of ``planes`` planes, ``levels`` time steps a pass.  The update has no sites afterwards.

    Roles of their launches, besides those of ``tiled-update``: ``in.steps.NAME`` for the signals of a group of sources,
    ``out.steps.NAME`` for what one of receivers records, both with a row for each step of the pass.
    """

    planes: int = 1
    rows: int = 4
    cols: int = 1
    warps: int = 8
    levels: int = 1
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Update, self._kernels)

    def _kernels(self, module: Module, given: o.Update) -> Module:
        if not (given.sources or given.receivers):
            return module
        at = module.funcs.index(given)
        sites = _Sites(module, given, self)
        funcs = tuple(located(func, given.loc) for func, _ in sites.kernels)
        launches = (Launch(func.symbol, roles) for func, roles in sites.kernels)
        tables = module
        for name, _, _ in (*given.sources, *given.receivers):
            tables = replace(tables, constants=without(tables, given.symbol, name))
        alone = replace(given, sources=(), receivers=())
        return Module(
            module.name, (*module.funcs[:at], alone, *funcs, *module.funcs[at + 1 :]),
            (*launches, *module.launches), {**tables.constants, **sites.constants},
        )  # fmt: skip


class _Sites:
    """The kernels of an update's sites, each with the roles of its launch, and their tables."""

    def __init__(self, module: Module, given: o.Update, how: UpdateSites) -> None:
        self.op = o.on_axes(replace(given, symbol=f"{given.symbol}_sites"), 3)
        self.levels, self.sums = how.levels, sum_type(given.dtype)
        held = windows(self.op, (how.planes, how.rows, how.cols), how.warps, how.levels)
        self.groups = {
            name: _on_three(placed(module, given.symbol, name)) for name, _, _ in (*given.sources, *given.receivers)
        }
        #: The cells that each group of receivers sees, each once, and which of them a pair of a site and a cell has.
        self.seen = {
            name: np.unique(self.groups[name].cells, axis=0, return_inverse=True) for name, _, _ in given.receivers
        }
        entries = {name: everywhere(held, self.groups[name].cells) for name, _, _ in given.sources}
        entries |= {name: own(held, self.seen[name][0]) for name, _, _ in given.receivers}
        blocks = np.unique(np.concatenate([found.blocks for found in entries.values()]))
        self.held = replace(held, only=tuple(map(int, blocks)))
        self.kernels: list[tuple[t.Func, tuple[str, ...]]] = []
        self.constants: dict[str, Any] = {}
        self._steps(self.held, entries, blocks, how.min_blocks)
        for group in given.receivers:
            self._recorded(group)

    def _steps(self, held: Held, entries: dict[str, Entries], blocks: Any, min_blocks: int) -> None:
        """The kernel that makes the windows again."""
        op, tables = self.op, dict[str, Any]()
        for name, found in entries.items():
            group = self.groups[name]
            if name in self.seen:
                about = {"whose": np.arange(len(self.seen[name][0]), dtype=np.int32)}
            else:
                about = {"whose": group.sites.astype(np.int32), "weights": group.weights.astype(self.sums.numpy())}
            tables |= {f"{name}_{part}": table for part, table in found.listed(blocks, **about).items()}
        kernel = Windows(op, held, newest(op.fields, self.levels), tables=tables, others=entries)
        scalars = o.scalars(op, self.levels, (*kernel.arrays, *kernel.lists.values()))
        number = Value("number", s32, 0, self.levels - 1)
        after, given, roles = list[Op](), list[Buffer](), list[str]()
        regs = dict(zip(kernel.params, kernel.regs, strict=True))
        for name, field, count in (*op.sources, *op.receivers):
            source = name not in self.seen
            parts = {part: kernel.lists[f"{name}_{part}"] for part in ("begin", "places", "whose")}
            seen = count if source else len(self.seen[name][0])
            rows = Buffer(kernel.called[name], self.sums, self.levels * seen, "global")
            how: dict[str, Any] = {"held": regs[field, 0], **parts, "step": number, "count": seen}
            if source:
                after.append(ts.AddSources(weights=kernel.lists[f"{name}_weights"], signals=rows, **how))
            else:
                after.append(ts.RecordCells(cells=rows, **how))
            given.append(rows)
            roles.append(signal(name) if source else _cells(name))
        steps = kernel.steps(0, self.levels, next(iter(scalars), None))
        window = kernel.window(replace(steps, number=number, after=tuple(after)))
        func = kernel.func(window, *given, *scalars, min_blocks=min_blocks)
        self.kernels.append((func, (*kernel.roles, *roles, *(o.SCALARS for _ in scalars))))
        self.constants |= kernel.constants

    def _recorded(self, group: o.Sites) -> None:
        """The kernel that makes of cells what receivers record: of each the cells around it, as many as of any."""
        name, _, count = group
        (cells, number), placed = self.seen[name], self.groups[name]
        turn = np.zeros(len(placed.sites), np.int64)  # which of its site's pairs a pair is
        order = np.argsort(placed.sites, kind="stable")
        first = np.searchsorted(placed.sites[order], np.arange(count))
        turn[order] = np.arange(len(order)) - first[placed.sites[order]]
        around = int(turn.max()) + 1
        whose, weights = np.zeros((count, around), np.int32), np.zeros((count, around), self.sums.numpy())
        whose[placed.sites, turn] = number.reshape(-1)
        weights[placed.sites, turn] = placed.weights
        whose = np.where(weights == 0, whose[:, :1], whose)  # a cell that is not a number comes in by its weight alone
        symbol, total = f"{self.op.symbol}_{name}", self.levels * count
        params = (
            Buffer("recorded", self.sums, total, "global"),
            Buffer("cells", self.sums, self.levels * len(cells), "global"),
            Buffer("whose", s32, whose.size, "global"), Buffer("weights", self.sums, weights.size, "global"),
        )  # fmt: skip
        dst, src, table, factors = params
        body = ts.Interpolate(
            dst=dst, cells=src, whose=table, weights=factors, count=count, around=around, seen=len(cells)
        )
        func = t.Func(symbol=symbol, params=params, blocks=-(-total // _THREADS), threads=_THREADS, body=(body,))
        self.kernels.append((func, (record(name), _cells(name), f"{symbol}.whose", f"{symbol}.weights")))
        self.constants |= {f"{symbol}.whose": whose, f"{symbol}.weights": weights}


def _cells(name: str) -> str:
    """What a pass calls the cells that a group of receivers sees at each of its steps."""
    return f"workspace.sites.{name}"


def _on_three(sites: Placed) -> Placed:
    """The same with cells on three axes."""
    more = np.zeros((len(sites.cells), 3 - sites.cells.shape[1]), sites.cells.dtype)
    return sites._replace(cells=np.concatenate([more, sites.cells], axis=1))
