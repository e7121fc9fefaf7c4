"""What windows in registers do at the sites of an update: whose cells are where, and ops before and after each step.

Every window that has a source's cell, in its halo too, adds to it, so that windows go on agreeing; the one whose own
cell a receiver sees stores it.  Further kernels make of such cells what receivers record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import op_update as o
from .. import tile_held as th
from .. import tile_sites as ts
from ..expr import ExprLike, Value, as_expr
from ..module import Module
from ..node import Op
from ..numbers.held import Held
from ..numbers.sites import everywhere, own
from ..op_sites import Placed, signal
from ..types import Buffer, s32
from .held import Windows
from .sites import SiteKernels


class Acts(NamedTuple):
    """What happens at sites around step ``number``: ops before and after it, ``once`` what all steps have in common,
    registers for that, and arrays with a row for each step, by role."""

    number: Value | None = None
    once: tuple[Op, ...] = ()
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

    @property
    def most(self) -> int:
        """Numbers of a step's longest row."""
        counts = {name: count for name, _, count in (*self.given.sources, *self.given.receivers)}
        return max(*counts.values(), *(len(cells) for cells, _ in self.seen.values()), 1)

    @property
    def others(self) -> list[str]:
        """Names of the buffers that :meth:`acts` needs, besides tables."""
        every = [f"{name}_{what}" for name in self.groups for what in ("rows", "span")]
        return [*every, *(f"{name}_ahead" for name, _, _ in self.given.sources)]

    def tables(self, held: Held, every: bool) -> tuple[Held, dict[str, npt.NDArray[Any]]]:
        """The windows, unless ``every`` one is there only those that have a site; and tables of their entries."""
        entries = {name: everywhere(held, self.groups[name].cells) for name, _, _ in self.given.sources}
        entries |= {name: own(held, self.seen[name][0]) for name, _, _ in self.given.receivers}
        blocks = np.unique(np.concatenate([found.blocks for found in entries.values()]))
        if every:
            blocks = np.arange(held.blocks)
        tables = {
            f"{name}_{part}": table
            for name, found in entries.items()
            for part, table in found.listed(blocks, 32 * held.warps, **self._about(name)).items()
        }
        return held if every else replace(held, only=tuple(map(int, blocks))), tables

    def _about(self, name: str) -> dict[str, Any]:
        """What a table of a group's cells says of each: whose it is, and a source's weight."""
        if name in self.seen:
            return {"whose": np.arange(len(self.seen[name][0]), dtype=np.int32)}
        group = self.groups[name]
        return {"whose": group.sites.astype(np.int32), "weights": group.weights.astype(self.sums.numpy())}

    def acts(self, kernel: Windows, number: Value, total: ExprLike, *, open: bool = False) -> Acts:
        """What happens at sites around step ``number`` of ``total``; ``open``: the total is said at the launch."""
        op, once, fetched, acts = kernel.op, list[Op](), list[Op](), list[Op]()
        regs, rows = list[Buffer](), dict[Buffer, str]()
        row = as_expr(total) - 1 - number if op.backwards else number
        held = dict(zip(kernel.params, kernel.regs, strict=True))
        for name, field, count in (*op.sources, *op.receivers):
            span = Buffer(kernel.called[f"{name}_span"], s32, 2, "reg")
            many = len(self.seen[name][0]) if name in self.seen else count
            array = Buffer(kernel.called[f"{name}_rows"], self.sums, self.levels * many, "global")
            about: dict[str, Any] = {"span": span, "whose": kernel.lists[f"{name}_whose"]}
            about |= {"step": row, "count": many, "open": open}
            cells = {"held": held[field, 0], "places": kernel.lists[f"{name}_places"]}
            once.append(ts.OwnEntries(span=span, begin=kernel.lists[f"{name}_begin"]))
            regs.append(span)
            rows[array] = self.role(name) if name in self.seen else signal(name)
            if name in self.seen:
                acts.append(ts.RecordCells(cells=array, **cells, **about))
                continue
            ahead = Buffer(kernel.called[f"{name}_ahead"], self.sums, 1, "reg")
            about |= {"ahead": ahead, "weights": kernel.lists[f"{name}_weights"], "signals": array}
            fetched.append(ts.FetchSignal(**about))
            acts.append(ts.AddSources(**cells, **about))
            regs.append(ahead)
        before, after = ((*fetched, *acts), ()) if op.backwards else (tuple(fetched), tuple(acts))
        return Acts(number, tuple(once), before, after, tuple(regs), rows)

    def records(self, *, open: bool = False) -> None:
        """The kernels that make records of the cells that receivers see; ``open`` as in :meth:`acts`."""
        for group in self.given.receivers:
            name = group[0]
            src = Buffer("cells", self.sums, self.levels * len(self.seen[name][0]), "global")
            self.recorded(group, src, self.role(name), self.seen[name][1].reshape(-1), open=open)


def _on_three(sites: Placed) -> Placed:
    """The same with cells on three axes."""
    more = np.zeros((len(sites.cells), 3 - sites.cells.shape[1]), sites.cells.dtype)
    return sites._replace(cells=np.concatenate([more, sites.cells], axis=1))
