"""Sources and receivers of updates: the windows around them, made again behind a pass with what happens at sites.

A pass of several steps knows the fields between them in registers only.  So a second kernel makes the same steps of
those windows that have a site: after each step, of an adjoint before it, it adds what sources emit, and stores the
cells that receivers see; at the end it overwrites what the pass has made of the windows.  Further kernels make of cells
what receivers record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import op_update as o
from ..expr import Value
from ..module import Module
from ..numbers.rows import newest
from ..passes.manager import register
from ..types import s32
from .common import each
from .held import Windows
from .held_sites import HeldSites
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
        sites = HeldSites(module, given, self.levels, _cells)
        op = o.on_axes(replace(given, symbol=sites.symbol), 3)
        every = windows(op, (self.planes, self.rows, self.cols), self.warps, self.levels)
        held, tables = sites.tables(every, every=False)
        kernel = Windows(op, held, newest(op.fields, self.levels), tables=tables, others=sites.others)
        scalars = o.scalars(op, self.levels, (*kernel.arrays, *kernel.lists.values()))
        acts = sites.acts(kernel, Value("number", s32, 0, self.levels - 1), self.levels)
        steps = kernel.steps(0, self.levels, next(iter(scalars), None))
        window = kernel.window(*acts.once, *acts.ahead, acts.around(steps))
        func = kernel.func(window, *acts.rows, *scalars, room=acts.regs, min_blocks=self.min_blocks)
        sites.add(func, (*kernel.roles, *acts.rows.values(), *(o.SCALARS for _ in scalars)), kernel.constants)
        sites.records()
        return sites.behind()


def _cells(name: str) -> str:
    """What a pass calls the cells that a group of receivers sees at each of its steps."""
    return f"workspace.sites.{name}"
