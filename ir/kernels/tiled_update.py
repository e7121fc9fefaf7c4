"""``tiled`` for general updates: a block makes several time steps of a window in registers, then stores what is good.

Each launch makes ``levels`` steps.  Windows overlap by what these steps spoil: nothing goes from block to block.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import op_update as o
from ..errors import ScheduleError
from ..module import Module
from ..numbers.held import Cells, Held, overlapping
from ..numbers.rows import newest
from ..passes.manager import register
from .common import each, replace_kernel
from .held import Windows, reads_of, wrapping


@register("tiled-update")
@dataclass(frozen=True)
class TiledUpdate:
    """Blocks of ``warps`` warps with ``rows`` rows of ``cols`` columns a lane, of ``planes`` planes; ``levels`` time
    steps a launch.  A field of fewer axes is one of three.

    Roles of its launch: ``in.NAME.LEVEL`` for what it reads, and for the newest levels, as many as there are steps,
    ``out.NAME.LEVEL`` (``out.NAME`` for the newest).
    """

    planes: int = 1
    rows: int = 4
    cols: int = 1
    warps: int = 8
    levels: int = 1
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Update, self._kernel)

    def _kernel(self, module: Module, given: o.Update) -> Module:
        op = o.on_axes(given, 3)
        held = windows(op, (self.planes, self.rows, self.cols), self.warps, self.levels)
        kernel = Windows(op, held, newest(op.fields, self.levels))
        scalars = o.scalars(op, self.levels, (*kernel.arrays, *kernel.lists.values()))
        steps = kernel.steps(0, self.levels, next(iter(scalars), None))
        func = kernel.func(kernel.window(steps), *scalars, min_blocks=self.min_blocks)
        return replace_kernel(module, given, func, [*kernel.roles, *(o.SCALARS for _ in scalars)], kernel.constants)


def windows(op: o.Update, share: Cells, warps: int, levels: int) -> Held:
    """Windows of an update on three axes for so many steps a launch; ScheduleError where there are none."""
    nz, ny, nx = op.shape
    held = overlapping((nz, ny, nx), share, warps, levels, reads_of(op.code), wrapping(op.sides))
    if held is None:
        planes, rows, cols = share
        raise ScheduleError(
            f"windows of {planes} planes, {warps * rows} rows and {32 * cols} columns do not fit the field, or "
            f"{levels} steps leave nothing of them",
            hint="take other rows, cols or warps, or fewer levels; direct takes any field",
        )
    if (why := held.legal()) is not None:
        raise ScheduleError(why, hint="take more rows or cols, or direct")
    return held
