"""``lowrank``: weights factored into a few terms, each two products on the tensor cores (LoRAStencil, SC'24).

The window X of a block of outputs is multiplied from the left by a banded matrix of a term's column factor and from the
right by one of its row factor.  2 R + 8 columns cost a slice of K each four, instead of the (2 R + 1)^2 of a patch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import op as o
from .. import tile as t
from ..errors import ScheduleError
from ..expr import as_expr
from ..fragments import SHAPES
from ..layout import Layout, layout, row_major
from ..module import Module
from ..node import Op
from ..separable import ROUNDING, Terms, separate
from ..tile_lowrank import Sandwich, StoreBlocks, slices
from ..types import Buffer
from .fuse_time import dense_weights
from .manager import register
from .stencil2row_matrices import conflict_free
from .tile_common import align_left, each, field, keep, replace_kernel, tile_count, tiles, vector, whole


@register("lowrank")
@dataclass(frozen=True)
class LowRank:
    """Tiles of ``rows`` x ``cols`` outputs; a warp makes the M rows of ``mma`` of an equal share of the columns.

    ``terms``: how many there may be; weights of a higher rank are refused.
    """

    rows: int = 64
    cols: int = 64
    mma: str = "f64.m16n8k4"
    warps: int = 4
    terms: int = 4
    blocks: int = 0
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Stencil, self._kernel)

    def _shares(self) -> tuple[int, int]:
        """(strips of a tile, column blocks of a warp)."""
        m = SHAPES[self.mma].m
        strips, rest = divmod(self.rows, m)
        blocks = self.cols // 8 * strips // self.warps
        if rest or self.warps % max(strips, 1) or blocks * 8 * self.warps != self.cols * strips:
            raise ScheduleError(
                f"tile={self.rows}x{self.cols} does not make strips of {m} rows and whole blocks of 8 columns for "
                f"warps={self.warps}",
                hint=f"take rows in multiples of {m}, warps a multiple of rows/{m}, and columns a multiple of "
                f"8·warps·{m}/rows, as in tile=64x64 warps=4",
            )
        return strips, blocks

    def _terms(self, op: o.Stencil) -> Terms:
        w = dense_weights(op)
        terms = separate(w, self.terms)
        if terms.residual > ROUNDING:
            raise ScheduleError(
                f"the weights{f' of {op.steps} fused steps' if op.steps > 1 else ''} have rank {separate(w).rank}: "
                f"{terms.rank} terms leave a residual of {terms.residual:.1e}",
                loc=op.loc,
                hint="use another schedule (lowrank is for products of 1-D stencils and little more), or fuse fewer "
                "steps",
            )
        return terms

    def _kernel(self, module: Module, op: o.Stencil) -> Module:
        strips, blocks = self._shares()
        terms = self._terms(op)
        u, out = field(op, "u"), field(op, "out")
        (ry, rx), (ny, nx), base = op.radius, op.shape, f"f64.m{SHAPES[self.mma].m}n8k4"
        values = fragments(terms)
        table = Buffer("wt", op.dtype, values.size, "global")
        factors = Buffer("wf", op.dtype, values.size // 32, "reg")
        before = align_left(rx, SECTOR)
        height, width = self.rows + 2 * ry, -(-(before + self.cols + rx) // 2) * 2
        to = row_major((height, width), conflict_free(width))
        window = layout({"r": height, "c": self.cols + 2 * rx}, lambda r, c: to(r, c + (before - rx)))
        raw = Buffer("raw", op.dtype, height * conflict_free(width), "shared", 128)
        acc = Buffer("acc", op.dtype, blocks * len(SHAPES[base].c.elements), "reg")

        def body(loop: t.ForTiles) -> list[Op]:
            zero = as_expr(0)
            return [
                t.Copy(
                    raw, u, loop.y - ry, loop.x - before, height, width, (to,), zero, zero, (ny, nx), op.pitch[0],
                    op.sides, vector(op.pitch[0], 2), "async", loc=op.loc,
                ),
                Sandwich(
                    acc, raw, factors, window, COLUMNS, self.mma, base, terms.rank, (ry, rx), strips, blocks,
                    self.warps, zero, loc=op.loc,
                ),
                StoreBlocks(
                    out, acc, u, loop.y, loop.x, base, strips, blocks, self.warps, op.pitch[1], op.box, (ny, nx),
                    keep(op), op.pitch[0], vector(op.pitch[1], 2), loc=op.loc,
                ),
            ]  # fmt: skip

        count = tile_count(whole(op), (self.rows, self.cols))
        resident = min(self.blocks, count) or count
        loop = tiles(whole(op), (self.rows, self.cols), resident if self.blocks else 0, body, op.loc)
        func = t.Func(
            op.symbol, (u, out, table), resident, 32 * self.warps,
            (t.Alloc(raw, to, loc=op.loc), t.Fragments(factors, table, loc=op.loc), loop), self.min_blocks, loc=op.loc,
        )  # fmt: skip
        return replace_kernel(module, op, func, {"wt": values})


#: Elements of a memory sector, 32 bytes: windows that start in the middle of one are copied slower.
SECTOR = 4
#: The window's column that column n of the first product's accumulator is: a lane's first element of a row is one of
#: columns 0 ... 3 and its second one of 4 ... 7, so that each is a slice of K of the second product.  Of these orders,
#: in this one four lanes next to each other read columns that differ modulo 4: no bank conflicts with rows 4 mod 8
#: elements apart.
COLUMNS: Layout = layout({"n": 8}, lambda n: n // 2 ^ n % 2 * 6)


def fragments(terms: Terms) -> Any:
    """The factors in fragment order (see ``tile.sandwich``), [registers, 32 lanes], flat."""
    g, q = np.arange(32) // 4, np.arange(32) % 4
    order = COLUMNS.inverse_table()  # the place of a window's column in the accumulator
    place = np.empty(8, dtype=np.int64)  # the accumulator's columns 2 t make slice 0, 2 t + 1 slice 1
    place[order % 2 * 4 + order // 2] = np.arange(8)

    def banded(band: Any, columns: Any) -> Any:
        count = slices(len(band) - 1)
        at = np.stack([columns[4 * s % 8 + q] + 8 * (s // 2) - g for s in range(count)])
        return np.where((at >= 0) & (at < len(band)), band[np.clip(at, 0, len(band) - 1)], 0.0)

    rows = [x for a, b in zip(terms.a, terms.b, strict=True) for x in (banded(a, np.arange(8)), banded(b, place))]
    return np.concatenate(rows).ravel()
