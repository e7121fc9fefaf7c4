"""``direct``: one thread an output, neighbours through the caches.  The simplest schedule, and the yardstick."""

from __future__ import annotations

from dataclasses import dataclass

from .. import op as o
from .. import tile as t
from ..module import Module
from ..node import Op
from ..passes.manager import register
from ..spread import Threads
from ..types import Buffer
from .common import each, field, grid, over_tiles, store, weights


@register("direct")
@dataclass(frozen=True)
class Direct:
    """Turns each stencil into a kernel of blocks of ``rows`` x ``cols`` threads."""

    rows: int = 8
    cols: int = 32

    def run(self, module: Module) -> Module:
        return each(module, o.Stencil, self._kernel, axes=(2, 3))

    def _kernel(self, module: Module, op: o.Stencil) -> Module:
        u, out = field(op, "u"), field(op, "out")
        w, values = weights(op)
        acc, spread = Buffer("acc", w.dtype, 1, "reg"), Threads((self.rows, self.cols))
        size = (1,) * (len(op.shape) - 2) + spread.size

        def body(loop: t.ForTiles) -> list[Op]:
            points = t.Points(
                new=acc, acc=acc, src=u, weights=w, at=loop.at, taps=op.taps, spread=spread, grid=grid(op)
            )
            return [points, store(op, loop.at, acc, spread, 1)]

        return over_tiles(
            module, op, size, body, params=(u, out, w), constants={"w": values}, threads=spread.threads
        )  # fmt: skip
