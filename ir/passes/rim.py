"""``rim``: the cells that time fusion gets wrong, by exact steps in shared memory.

A strip along each border that is not periodic, as wide as the error reaches; each block takes a small tile of it, does
all the time steps on a window that shrinks by the radius at each, and stores what is right.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import op as o
from .. import tile as t
from ..expr import as_expr
from ..layout import row_major
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
        layout = row_major((height, width))
        levels = [Buffer(name, op.dtype, height * width, "shared") for name in ("even", "odd")]

        def body(loop: t.ForTiles) -> list[Op]:
            zero, y, x = as_expr(0), loop.y - halo_y, loop.x - halo_x
            ops: list[Op] = [
                t.Copy(
                    levels[0],
                    u,
                    y,
                    x,
                    height,
                    width,
                    (layout,),
                    zero,
                    zero,
                    (ny, nx),
                    op.pitch[0],
                    op.sides,
                    loc=op.loc,
                )
            ]
            for s in range(1, op.steps + 1):
                src, dst = levels[(s - 1) % 2], levels[s % 2]
                ops.append(
                    t.Step(
                        dst,
                        src,
                        w,
                        y,
                        x,
                        height,
                        width,
                        (ry * s, rx * s),
                        op.taps,
                        (ry, rx),
                        layout,
                        (ny, nx),
                        op.sides,
                        loc=op.loc,
                    )
                )
            ops.append(
                t.Put(
                    out,
                    levels[op.steps % 2],
                    loop.y,
                    loop.x,
                    self.rows,
                    self.cols,
                    (halo_y, halo_x),
                    layout,
                    loop.end[-2],
                    loop.end[-1],
                    op.pitch[1],
                    loc=op.loc,
                )
            )
            return ops

        loop = tiles(op.boxes, (self.rows, self.cols), 0, body, op.loc)
        allocs = tuple(t.Alloc(b, layout, loc=op.loc) for b in levels)
        func = t.Func(
            op.symbol,
            (u, out, w),
            tile_count(op.boxes, (self.rows, self.cols)),
            self.threads,
            (*allocs, loop),
            loc=op.loc,
        )
        return replace_kernel(module, op, func, {"w": values})
