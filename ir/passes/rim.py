"""``rim``: the cells that time fusion gets wrong, by exact steps in shared memory.

A strip along each border that is not periodic, as wide as the error reaches; each block takes a small tile of it, does
all the time steps on a window that shrinks by the radius at each, and stores what is right.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import op as o
from .. import tile as t
from ..expr import as_expr
from ..layout import layout, row_major
from ..module import Module
from ..node import Op
from ..types import Buffer
from .manager import register
from .tile_common import each, field, replace_kernel, tile_count, tiles, weights


@register("rim")
@dataclass(frozen=True)
class Rim:
    """Turns each rim into a kernel of tiles of ``rows`` x ``cols`` cells."""

    rows: int = 16
    cols: int = 16
    threads: int = 128

    def run(self, module: Module) -> Module:
        return each(module, o.Rim, self._kernel)

    def _kernel(self, module: Module, op: o.Rim) -> Module:
        u, out = field(op, "u"), field(op, "out")
        w, values = weights(op)
        (ry, rx), (ny, nx) = op.radius, op.shape
        halo_y, halo_x = ry * op.steps, rx * op.steps
        height, width = self.rows + 2 * halo_y, self.cols + 2 * halo_x
        window, last = row_major((height, width)), op.steps % 2 * height * width
        levels = Buffer("levels", w.dtype, 2 * height * width, "shared")

        def body(loop: t.ForTiles) -> list[Op]:
            zero, y, x = as_expr(0), loop.y - halo_y, loop.x - halo_x
            fetch = t.Copy(
                levels, u, y, x, height, width, (window,), zero, zero, (ny, nx), op.pitch[0], op.sides, loc=op.loc
            )
            steps = t.Steps(
                levels, w, y, x, height, width, op.steps, op.taps, (ry, rx), window, (ny, nx), op.sides, loc=op.loc
            )
            done = layout({"r": height, "c": width}, lambda r, c: last + window(r, c))
            put = t.Put(
                out, levels, loop.y, loop.x, self.rows, self.cols, (halo_y, halo_x), done, loop.end[-2], loop.end[-1],
                op.pitch[1], loc=op.loc,
            )  # fmt: skip
            return [fetch, steps, put]

        loop = tiles(op.boxes, (self.rows, self.cols), 0, body, op.loc)
        func = t.Func(
            op.symbol,
            (u, out, w),
            tile_count(op.boxes, (self.rows, self.cols)),
            self.threads,
            (t.Alloc(levels, window, slots=2, loc=op.loc), loop),
            loc=op.loc,
        )
        return replace_kernel(module, op, func, {"w": values})
