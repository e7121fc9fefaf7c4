"""``tiled``: the window of a tile in shared memory, a block of outputs in each thread's registers."""

from __future__ import annotations

from dataclasses import dataclass

from .. import op as o
from .. import tile as t
from ..errors import ScheduleError
from ..expr import as_expr
from ..layout import row_major
from ..module import Module
from ..node import Op
from ..types import Buffer
from .manager import register
from .tile_common import align_left, each, field, keep, replace_kernel, tile_count, tiles, vector, weights, whole


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
        return each(module, o.Stencil, self._kernel)

    def _threads(self, nbytes: int) -> tuple[int, int, int]:
        """(thread rows, thread columns, adjacent outputs a thread): the widest pieces, of four outputs and 16 bytes at
        most, that the tile's shape allows."""
        for per_x in (n for n in (4, 2, 1) if n * nbytes <= 16):
            strips, rest = divmod(self.cols, 32 * per_x)
            if not rest and self.warps % strips == 0 and self.rows % (self.warps // strips) == 0:
                return self.warps // strips, 32 * strips, per_x
        raise ScheduleError(
            f"tile={self.rows}x{self.cols} cannot be shared out among warps={self.warps}",
            hint="take columns in multiples of 32 and rows in multiples of the warps",
        )

    def _kernel(self, module: Module, op: o.Stencil) -> Module:
        u, out = field(op, "u"), field(op, "out")
        w, values = weights(op)
        (ry, rx), (ny, nx), size = op.radius, op.shape, op.dtype.nbytes
        ty, tx, per_x = self._threads(size)
        per_y = self.rows // ty
        before = align_left(rx, (32 if rx > 1 else 16) // size)  # the window starts where a piece does; wide: a sector
        width = -(-(before + self.cols + rx) * size // 16) * 16 // size
        piece = vector(op.pitch[0], 16 // size)
        height = self.rows + 2 * ry
        layout = row_major((height, width))
        raw = Buffer("raw", op.dtype, height * width, "shared", 128)
        acc = Buffer("acc", w.dtype, per_y * per_x, "reg")

        def body(loop: t.ForTiles) -> list[Op]:
            zero = as_expr(0)
            return [
                t.Copy(
                    raw,
                    u,
                    loop.y - ry,
                    loop.x - before,
                    height,
                    width,
                    (layout,),
                    zero,
                    zero,
                    (ny, nx),
                    op.pitch[0],
                    op.sides,
                    piece,
                    "async" if piece * size >= 4 else "plain",  # cp.async moves four bytes at least
                    loc=op.loc,
                ),
                t.Points(
                    acc,
                    raw,
                    w,
                    loop.y,
                    loop.x,
                    zero,
                    op.taps,
                    (ty, tx),
                    per_y,
                    per_x,
                    1,
                    (ry, before),
                    layout,
                    (ny, nx),
                    op.pitch[0],
                    op.sides,
                    loc=op.loc,
                ),
                t.StorePoints(
                    out,
                    acc,
                    u,
                    loop.y,
                    loop.x,
                    (ty, tx),
                    per_y,
                    per_x,
                    1,
                    op.pitch[1],
                    op.box,
                    (ny, nx),
                    keep(op),
                    op.pitch[0],
                    vector(op.pitch[1], per_x),
                    loc=op.loc,
                ),
            ]

        count = tile_count(whole(op), (self.rows, self.cols))
        blocks = min(self.blocks, count) or count
        loop = tiles(whole(op), (self.rows, self.cols), blocks if self.blocks else 0, body, op.loc)
        func = t.Func(
            op.symbol,
            (u, out, w),
            blocks,
            32 * self.warps,
            (t.Alloc(raw, layout, loc=op.loc), loop),
            self.min_blocks,
            loc=op.loc,
        )
        return replace_kernel(module, op, func, {"w": values})
