"""``tiled``: the window of a tile in shared memory, a block of outputs in each thread's registers."""

from __future__ import annotations

from dataclasses import dataclass

from .. import op as o
from .. import tile as t
from ..errors import ScheduleError
from ..layout import row_major
from ..module import Module
from ..node import Op
from ..numbers.tiled import Tile, threads
from ..passes.manager import register
from ..spread import Threads
from ..types import Buffer
from .common import each, field, grid, over_tiles, shifted, store, vector, weights


@register("tiled")
@dataclass(frozen=True)
class Tiled:
    """Tiles of ``rows`` x ``cols`` outputs for ``warps`` warps; ``blocks`` blocks stay on the GPU (0: one a tile)."""

    rows: int = 32
    cols: int = 64
    warps: int = 8
    blocks: int = 0
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Stencil, self._kernel, axes=(2,))

    def _threads(self, nbytes: int) -> tuple[int, int, int]:
        """(thread rows, thread columns, adjacent outputs a thread)."""
        if shape := threads(self.rows, self.cols, self.warps, nbytes):
            return shape
        raise ScheduleError(
            f"tile={self.rows}x{self.cols} cannot be shared out among warps={self.warps}",
            hint="take columns in multiples of 32 and rows in multiples of the warps",
        )

    def _kernel(self, module: Module, op: o.Stencil) -> Module:
        u, out = field(op, "u"), field(op, "out")
        w, values = weights(op)
        (ry, rx), size = op.radius, op.dtype.nbytes
        ty, tx, per_x = self._threads(size)
        n = Tile(radius=(ry, rx), nbytes=size, rows=self.rows, cols=self.cols)
        piece = vector(op.pitch[0], 16 // size)
        layout = row_major((n.height, n.width))
        raw = Buffer("raw", op.dtype, n.height * n.width, "shared", 128)
        spread = Threads((ty, tx), self.rows // ty, per_x)
        acc = Buffer("acc", w.dtype, spread.registers, "reg")

        def body(loop: t.ForTiles) -> list[Op]:
            copy = t.Copy(
                dst=raw, src=u, at=shifted(loop.at, -ry, -n.before), rows=n.height, cols=n.width, grid=grid(op),
                maps=(layout,), vector=piece,
                mode="async" if piece * size >= 4 else "plain",  # cp.async moves four bytes at least
            )  # fmt: skip
            points = t.Points(
                new=acc, acc=acc, src=raw, weights=w, at=loop.at, taps=op.taps, spread=spread, grid=grid(op),
                layout=layout, before=(ry, n.before),
            )  # fmt: skip
            return [copy, points, store(op, loop.at, acc, spread, vector(op.pitch[1], per_x))]

        return over_tiles(
            module, op, (self.rows, self.cols), body, params=(u, out, w), constants={"w": values},
            threads=32 * self.warps, before=(t.Alloc(buf=raw, layout=layout),), stay=self.blocks,
            min_blocks=self.min_blocks,
        )  # fmt: skip
