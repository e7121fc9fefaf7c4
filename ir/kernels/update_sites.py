"""Sources and receivers of updates: the windows around them, made again behind a pass with what happens at sites.

A pass of several steps knows the fields between them in registers only.  So a second kernel makes the same steps of
those windows that have a site: after each step, of an adjoint before it, it adds what sources emit, and stores the
cells that receivers see; at the end it overwrites what the pass has made of the windows.  Further kernels make of cells
what receivers record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import op_update as o
from .. import tile_sites as ts
from ..expr import Value
from ..module import Module
from ..node import Op
from ..numbers.rows import newest
from ..numbers.sites import everywhere, own
from ..op_sites import Placed, signal
from ..passes.manager import register
from ..types import Buffer, s32
from .common import each
from .held import Windows
from .sites import SiteKernels
from .tiled_update import windows


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
        sites = _Windows(module, given, self)
        for group in given.receivers:
            name = group[0]
            src = Buffer("cells", sites.sums, self.levels * len(sites.seen[name][0]), "global")
            sites.recorded(group, src, _cells(name), sites.seen[name][1].reshape(-1))
        return sites.behind()


class _Windows(SiteKernels):
    """The kernels, the first of which makes windows again."""

    def __init__(self, module: Module, given: o.Update, how: UpdateSites) -> None:
        super().__init__(module, given, how.levels)
        self.groups = {name: _on_three(placed) for name, placed in self.groups.items()}
        #: The cells that each group of receivers sees, each once, and which of them a pair of a site and a cell has.
        self.seen = {
            name: np.unique(self.groups[name].cells, axis=0, return_inverse=True) for name, _, _ in given.receivers
        }
        op = o.on_axes(replace(given, symbol=self.symbol), 3)
        held = windows(op, (how.planes, how.rows, how.cols), how.warps, how.levels)
        entries = {name: everywhere(held, self.groups[name].cells) for name, _, _ in given.sources}
        entries |= {name: own(held, self.seen[name][0]) for name, _, _ in given.receivers}
        blocks = np.unique(np.concatenate([found.blocks for found in entries.values()]))
        tables = {
            f"{name}_{part}": table
            for name, found in entries.items()
            for part, table in found.listed(blocks, **self._about(name)).items()
        }
        held = replace(held, only=tuple(map(int, blocks)))
        self._again(Windows(op, held, newest(op.fields, self.levels), tables=tables, others=entries), how.min_blocks)

    def _about(self, name: str) -> dict[str, Any]:
        """What a table of a group's cells says of each: whose it is, and a source's weight."""
        if name in self.seen:
            return {"whose": np.arange(len(self.seen[name][0]), dtype=np.int32)}
        group = self.groups[name]
        return {"whose": group.sites.astype(np.int32), "weights": group.weights.astype(self.sums.numpy())}

    def _again(self, kernel: Windows, min_blocks: int) -> None:
        """The kernel that makes the windows again."""
        op, acts, given = kernel.op, list[Op](), dict[Buffer, str]()
        scalars = o.scalars(op, self.levels, (*kernel.arrays, *kernel.lists.values()))
        number = Value("number", s32, 0, self.levels - 1)
        row = self.levels - 1 - number if op.backwards else number
        regs = dict(zip(kernel.params, kernel.regs, strict=True))
        for name, field, count in (*op.sources, *op.receivers):
            about: dict[str, Any] = {part: kernel.lists[f"{name}_{part}"] for part in ("begin", "places", "whose")}
            many = len(self.seen[name][0]) if name in self.seen else count
            rows = Buffer(kernel.called[name], self.sums, self.levels * many, "global")
            about |= {"held": regs[field, 0], "step": row, "count": many}
            if name in self.seen:
                acts.append(ts.RecordCells(cells=rows, **about))
            else:
                acts.append(ts.AddSources(weights=kernel.lists[f"{name}_weights"], signals=rows, **about))
            given[rows] = _cells(name) if name in self.seen else signal(name)
        steps = kernel.steps(0, self.levels, next(iter(scalars), None))
        before, after = (tuple(acts), ()) if op.backwards else ((), tuple(acts))
        window = kernel.window(replace(steps, number=number, before=before, after=after))
        func = kernel.func(window, *given, *scalars, min_blocks=min_blocks)
        self.add(func, (*kernel.roles, *given.values(), *(o.SCALARS for _ in scalars)), kernel.constants)


def _cells(name: str) -> str:
    """What a pass calls the cells that a group of receivers sees at each of its steps."""
    return f"workspace.sites.{name}"


def _on_three(sites: Placed) -> Placed:
    """The same with cells on three axes."""
    more = np.zeros((len(sites.cells), 3 - sites.cells.shape[1]), sites.cells.dtype)
    return sites._replace(cells=np.concatenate([more, sites.cells], axis=1))
