"""``tiled`` for general updates: a block makes several time steps of a window in registers, then stores what is good.

Each launch makes ``levels`` steps.  Windows overlap by what these steps spoil: nothing goes from block to block.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import op_update as o
from ..errors import ScheduleError
from ..module import Module
from ..numbers.held import overlapping
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
        share, (nz, ny, nx) = (self.planes, self.rows, self.cols), op.shape
        held = overlapping((nz, ny, nx), share, self.warps, self.levels, reads_of(op.code), wrapping(op.sides))
        if held is None:
            raise ScheduleError(
                f"windows of {self.planes} planes, {self.warps * self.rows} rows and {32 * self.cols} columns do not "
                f"fit the field, or {self.levels} steps leave nothing of them",
                hint="take other rows, cols or warps, or fewer levels; direct takes any field",
            )
        if (why := held.legal()) is not None:
            raise ScheduleError(why, hint="take more rows or cols, or direct")
        made = [(name, level) for name, level in o.parameters(op.fields, ()) if level < self.levels]
        kernel = Windows(op, held, made)
        scalars = o.scalars(op, self.levels, (*kernel.arrays, *kernel.lists.values()))
        steps = kernel.steps(0, self.levels, next(iter(scalars), None))
        func = kernel.func(kernel.window(steps), *scalars, min_blocks=self.min_blocks)
        return replace_kernel(module, given, func, [*kernel.roles, *(o.SCALARS for _ in scalars)], kernel.constants)
