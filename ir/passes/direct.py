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
        acc = Buffer("acc", w.dtype, 1, "reg")
        threads, size = (self.rows, self.cols), (1,) * (len(op.shape) - 2) + (self.rows, self.cols)

        def body(loop: t.ForTiles) -> list[Op]:
            lead = loop.at[:-2]
            return [
                t.Points(acc, u, w, loop.y, loop.x, as_expr(0), op.taps, threads, 1, 1, 1, (0, 0), None, op.shape,
                         op.pitch[0], op.sides, lead, loc=op.loc),
                t.StorePoints(out, acc, u, loop.y, loop.x, threads, 1, 1, 1, op.pitch[1], op.box, op.shape,
                              keep(op), op.pitch[0], 1, lead, loc=op.loc),
            ]  # fmt: skip

        loop = tiles(whole(op), size, 0, body, op.loc)
        func = t.Func(op.symbol, (u, out, w), tile_count(whole(op), size), self.rows * self.cols, (loop,), loc=op.loc)
        return replace_kernel(module, op, func, {"w": values})
