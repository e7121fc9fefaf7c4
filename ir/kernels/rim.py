"""``rim``: the cells that time fusion gets wrong, by exact steps in shared memory.

A strip along each border that is not periodic, as wide as the error reaches; each block takes a small tile of it, does
all the time steps on a window that shrinks by the radius at each, and stores what is right.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import op as o
from .. import tile as t
from ..layout import layout, row_major
from ..module import Module
from ..node import Op
from ..passes.manager import register
from ..types import Buffer
from .common import each, field, grid, over_tiles, shifted, weights


@register("rim")
@dataclass(frozen=True)
class Rim:
    """Turns each rim into a kernel of tiles of ``rows`` x ``cols`` cells."""

    rows: int = 16
    cols: int = 16
    threads: int = 128

    def run(self, module: Module) -> Module:
        return each(module, o.Rim, self._kernel, axes=(2,))

    def _kernel(self, module: Module, op: o.Rim) -> Module:
        u, out = field(op, "u"), field(op, "out")
        w, values = weights(op)
        ry, rx = op.radius
        halo_y, halo_x = ry * op.steps, rx * op.steps
        height, width = self.rows + 2 * halo_y, self.cols + 2 * halo_x
        window, last = row_major((height, width)), op.steps % 2 * height * width
        levels = Buffer("levels", w.dtype, 2 * height * width, "shared")

        def body(loop: t.ForTiles) -> list[Op]:
            at = shifted(loop.at, -halo_y, -halo_x)
            fetch = t.Copy(dst=levels, src=u, at=at, rows=height, cols=width, grid=grid(op), maps=(window,))
            steps = t.Steps(
                levels=levels, weights=w, at=at, rows=height, cols=width, steps=op.steps, taps=op.taps,
                radius=(ry, rx), layout=window, grid=grid(op),
            )  # fmt: skip
            done = t.Copy(
                dst=out, src=levels, at=loop.at, rows=self.rows, cols=self.cols, grid=grid(op, "out"), end=loop.end,
                src_map=layout({"r": self.rows, "c": self.cols}, lambda r, c: last + window(r + halo_y, c + halo_x)),
            )  # fmt: skip
            return [fetch, steps, done]

        return over_tiles(
            module, op, (self.rows, self.cols), body, params=(u, out, w), constants={"w": values},
            threads=self.threads, before=(t.Alloc(buf=levels, layout=window, slots=2),),
        )  # fmt: skip
