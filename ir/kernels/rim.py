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
from ..passes.manager import register
from ..types import Buffer
from .common import each, field, over_tiles, weights


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
                dst=levels, src=u, y=y, x=x, rows=height, cols=width, maps=(window,), slot=zero, src_slot=zero,
                extent=(ny, nx), pitch=op.pitch[0], sides=op.sides, loc=op.loc,
            )  # fmt: skip
            steps = t.Steps(
                levels=levels, weights=w, y=y, x=x, rows=height, cols=width, steps=op.steps, taps=op.taps,
                radius=(ry, rx), layout=window, extent=(ny, nx), sides=op.sides, loc=op.loc,
            )  # fmt: skip
            done = layout({"r": height, "c": width}, lambda r, c: last + window(r, c))
            put = t.Put(
                dst=out, src=levels, y=loop.y, x=loop.x, rows=self.rows, cols=self.cols, margin=(halo_y, halo_x),
                layout=done, y_end=loop.end[-2], x_end=loop.end[-1], pitch=op.pitch[1], loc=op.loc,
            )  # fmt: skip
            return [fetch, steps, put]

        return over_tiles(
            module, op, (self.rows, self.cols), body, params=(u, out, w), constants={"w": values},
            threads=self.threads, before=(t.Alloc(buf=levels, layout=window, slots=2, loc=op.loc),),
        )  # fmt: skip
