"""What windows in registers do at the sites of an update: whose cells are where, and ops before and after each step.

Every window that has a source's cell, in its halo too, adds to it, so that windows go on agreeing; the one whose own
cell a receiver sees stores it.  Further kernels make of such cells what receivers record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import op_update as o
from .. import tile_held as th
from .. import tile_sites as ts
from ..expr import ExprLike, Value, as_expr, maximum
from ..module import Module
from ..node import Op
from ..numbers.held import Held
from ..numbers.sites import everywhere, own
from ..op_sites import Placed, signal
from ..types import Buffer, DType, s32, u32
from .held import Windows
from .sites import SiteKernels


class Acts(NamedTuple):
    """What happens at sites around step ``number``: ops before and after it, ``once`` what all steps have in common and
    ``ahead`` what comes before the first, registers for that, and arrays with a row for each step, by role."""

    number: Value | None = None
    once: tuple[Op, ...] = ()
    ahead: tuple[Op, ...] = ()
    before: tuple[Op, ...] = ()
    after: tuple[Op, ...] = ()
    regs: tuple[Buffer, ...] = ()
    rows: Mapping[Buffer, str] = MappingProxyType({})

    def around(self, steps: th.HeldSteps) -> th.HeldSteps:
        """Steps with it."""
        return replace(steps, number=self.number, before=self.before, after=self.after)


class HeldSites(SiteKernels):
    """The sites of an update whose windows make ``levels`` steps; ``cells`` gives the role of what a group sees."""

    def __init__(self, module: Module, given: o.Update, levels: int, cells: Callable[[str], str]) -> None:
        super().__init__(module, given, levels)
        self.role = cells
        self.groups = {name: _on_three(placed) for name, placed in self.groups.items()}
        #: The cells that each group of receivers sees, each once, and which of them a pair of a site and a cell has.
        self.seen = {
            name: np.unique(self.groups[name].cells, axis=0, return_inverse=True) for name, _, _ in given.receivers
        }
        #: The number of each of these cells in a step's row.
        self.numbers: dict[str, npt.NDArray[Any]] = {}

    @property
    def most(self) -> int:
        """Numbers of a step's longest row."""
        counts = {name: count for name, _, count in (*self.given.sources, *self.given.receivers)}
        return max(*counts.values(), *(len(cells) for cells, _ in self.seen.values()), 1)

    @property
    def others(self) -> list[str]:
        """Names of the buffers that :meth:`acts` needs, besides tables."""
        parts = [(self.given.sources, ("rows", "span", "ahead")), (self.given.receivers, ("rows", "seen", "first"))]
        return [f"{name}_{what}" for groups, buffers in parts for name, _, _ in groups for what in buffers]

    def tables(self, held: Held, *, every: bool) -> tuple[Held, dict[str, npt.NDArray[Any]]]:
        """The windows, unless ``every`` one is there only those that have a site; and tables of their cells."""
        added = {name: everywhere(held, self.groups[name].cells) for name, _, _ in self.given.sources}
        seen = {name: own(held, self.seen[name][0]) for name, _, _ in self.given.receivers}
        found = np.unique(np.concatenate([entries.blocks for entries in (*added.values(), *seen.values())]))
        blocks, threads, tables = np.arange(held.blocks) if every else found, 32 * held.warps, dict[str, Any]()
        for name, entries in added.items():
            group = self.groups[name]
            about = {"whose": group.sites.astype(np.int32), "weights": group.weights.astype(self.sums.numpy())}
            tables |= {f"{name}_{part}": a for part, a in entries.listed(blocks, threads, **about).items()}
        for name, entries in seen.items():
            bits, begin, self.numbers[name] = entries.seen(blocks, threads, prod(held.share))
            tables |= {f"{name}_bits": bits, f"{name}_begin": begin}
        return held if every else replace(held, only=tuple(map(int, blocks))), tables

    def acts(self, kernel: Windows, number: Value, total: ExprLike, *, open: bool = False) -> Acts:
        """What happens at sites around step ``number`` of ``total``; ``open``: the total is said at the launch."""
        op = kernel.op
        last = as_expr(total) - 1
        about: dict[str, Any] = {"step": last - number if op.backwards else number, "open": open}
        held = dict(zip(kernel.params, kernel.regs, strict=True))
        once, acts, regs, rows = list[Op](), list[Op](), list[Buffer](), dict[Buffer, str]()
        fetched = list[ts.FetchSignal]()

        def part(name: str, what: str, dtype: DType, size: int) -> Buffer:
            regs.append(Buffer(kernel.called[f"{name}_{what}"], dtype, size, "reg"))
            return regs[-1]

        def row(name: str, count: int, role: str) -> Buffer:
            array = Buffer(kernel.called[f"{name}_rows"], self.sums, self.levels * count, "global")
            rows[array] = role
            return array

        for name, field, count in op.sources:
            begin, places, whose, weights = (
                kernel.lists[f"{name}_{what}"] for what in ("begin", "places", "whose", "weights")
            )
            how: dict[str, Any] = {"span": part(name, "span", s32, 2), "ahead": part(name, "ahead", self.sums, 1)}
            how |= {"whose": whose, "weights": weights, "signals": row(name, count, signal(name)), "count": count}
            once.append(ts.OwnEntries(span=how["span"], begin=begin))
            fetched.append(ts.FetchSignal(**how, **about))
            acts.append(ts.AddSources(held=held[field, 0], places=places, **how, **about))
        for name, field, _ in op.receivers:
            count, bits = len(self.seen[name][0]), kernel.lists[f"{name}_bits"]
            seen, first = part(name, "seen", u32, -(-held[field, 0].size // 32)), part(name, "first", s32, 1)
            cells = row(name, count, self.role(name))
            once.append(ts.SeenCells(seen=seen, first=first, bits=bits, begin=kernel.lists[f"{name}_begin"]))
            acts.append(ts.RecordCells(held=held[field, 0], seen=seen, first=first, cells=cells, count=count, **about))
        if not op.backwards:
            return Acts(number, tuple(once), (), tuple(fetched), tuple(acts), tuple(regs), rows)
        # what comes before a step is asked for during the one before it
        ahead = tuple(replace(fetch, step=last) for fetch in fetched)
        following = tuple(replace(fetch, step=maximum(fetch.step - 1, 0)) for fetch in fetched)
        return Acts(number, tuple(once), ahead, (*acts, *following), (), tuple(regs), rows)

    def records(self, *, open: bool = False) -> None:
        """The kernels that make records of the cells that receivers see; ``open`` as in :meth:`acts`."""
        for group in self.given.receivers:
            name = group[0]
            src = Buffer("cells", self.sums, self.levels * len(self.seen[name][0]), "global")
            whose = self.numbers[name][self.seen[name][1].reshape(-1)]
            self.recorded(group, src, self.role(name), whose, open=open)


def _on_three(sites: Placed) -> Placed:
    """The same with cells on three axes."""
    more = np.zeros((len(sites.cells), 3 - sites.cells.shape[1]), sites.cells.dtype)
    return sites._replace(cells=np.concatenate([more, sites.cells], axis=1))
