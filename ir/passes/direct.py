"""``direct``: one thread an output, neighbours through the caches.  The simplest schedule, and the yardstick."""

from __future__ import annotations

from dataclasses import dataclass

from .. import op as o
from .. import tile as t
from ..expr import as_expr
from ..module import Module
from ..node import Op
from ..types import Buffer
from .manager import register
from .tile_common import each, field, keep, replace_kernel, tile_count, tiles, weights, whole


@register("direct")
@dataclass(frozen=True)
class Direct:
    """Turns each stencil into a kernel of blocks of ``rows`` x ``cols`` threads."""

    rows: int = 8
    cols: int = 32

    def run(self, module: Module) -> Module:
        return each(module, o.Stencil, self._kernel)

    def _kernel(self, module: Module, op: o.Stencil) -> Module:
        u, out = field(op, "u"), field(op, "out")
        w, values = weights(op)
        acc = Buffer("acc", op.dtype, 1, "reg")
        threads, (ny, nx) = (self.rows, self.cols), op.shape

        def body(loop: t.ForTiles) -> list[Op]:
            return [
                t.Points(acc, u, w, loop.y, loop.x, as_expr(0), op.taps, threads, 1, 1, 1, (0, 0), None, (ny, nx),
                         op.pitch[0], op.sides, loc=op.loc),
                t.StorePoints(out, acc, u, loop.y, loop.x, threads, 1, 1, 1, op.pitch[1], op.box, (ny, nx),
                              keep(op), op.pitch[0], 1, loc=op.loc),
            ]  # fmt: skip

        loop = tiles(whole(op), (self.rows, self.cols), 0, body, op.loc)
        blocks = tile_count(whole(op), (self.rows, self.cols))
        func = t.Func(op.symbol, (u, out, w), blocks, self.rows * self.cols, (loop,), loc=op.loc)
        return replace_kernel(module, op, func, {"w": values})
