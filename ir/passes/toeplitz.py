"""``toeplitz``: one row as a product with a banded Toeplitz matrix, many time steps fused in its weights.

Eight adjacent outputs are a window of 8 + 2 R columns times a band of weights (R is the fused radius); ConvStencil's
stencil2row in one dimension (PPoPP'24, section 3.5) is the same product with windows of k columns.  The rows of a
fragment are *runs* of adjacent windows, so that operand A slides along them: an element is read once from the one raw
copy in shared memory and serves all the windows it lies in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import op as o
from .. import tile as t
from .. import tile_toeplitz as tt
from ..boundary_map import any_cell
from ..errors import ScheduleError
from ..expr import Value, as_expr
from ..fragments import SHAPES
from ..layout import layout
from ..module import Module
from ..node import Op
from ..types import Buffer, s32
from .manager import register
from .tile_common import align_left, each, field, replace_kernel, tile_count, tiles, vector, whole

#: Elements left out after each run: runs are then 4 or 12 mod 16 doubles apart, and 8 x 4 fragments meet no conflict.
PAD = 4


@register("toeplitz")
@dataclass(frozen=True)
class Toeplitz:
    """Tiles of ``warps`` x M runs of 8 * ``products`` outputs; ``mma`` names the shape, M rows and at most 8 columns.

    ``blocks`` stay and take one tile after the other (the pipeline pass follows); 0: one tile a block.
    """

    mma: str = "f64.m16n8k8"
    products: int = 8
    warps: int = 1
    blocks: int = 0
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Stencil, self._kernel)

    def _kernel(self, module: Module, op: o.Stencil) -> Module:
        shape = SHAPES[self.mma]
        if any(op.radius[:-1]) or shape.k > 8 or shape.a.dtype is not op.dtype:
            raise ScheduleError(
                f"toeplitz with {self.mma} of a {op.dtype} stencil of radius {op.radius}",
                hint="it takes stencils along the last axis, in the type that the mma multiplies, and mma of K <= 8",
            )
        (ny, nx), halo, run = op.shape, op.radius[-1], 8 * self.products
        lead = align_left(halo, 2)
        bands = -(-(lead + 8 + halo) // 8)
        cols = self.warps * shape.m * run
        width = cols + 8 * (bands - 1)
        u, out = field(op, "u"), field(op, "out")
        place = layout({"r": 1, "c": width}, lambda r, c: c + c // run * PAD)
        runs = layout(
            {"m": self.warps * shape.m, "c": run + 8 * (bands - 1)}, lambda m, c: m * (run + PAD) + c + c // run * PAD
        )
        raw = Buffer("raw", op.dtype, place.size() + place.size() % 2, "shared", 128)
        values = fragments(band(op, lead, bands))
        table = Buffer("wt", op.dtype, values.size, "global")
        weights = Buffer("wf", op.dtype, values.size // 32, "reg")
        regs = len(shape.c.elements)
        acc = Buffer("acc", op.dtype, (bands + 1) * regs, "reg")
        i = Value("product", s32, 0, self.products - 1)
        # cells outside are read only where their value does not matter (the rim's part), or wrapped
        sides = any_cell(op.sides)
        wide_in, wide_out = (2 if ny == 1 else vector(pitch, 2) for pitch in op.pitch)

        def body(loop: t.ForTiles) -> list[Op]:
            zero = as_expr(0)
            fetch = t.Copy(
                raw, u, loop.y, loop.x - lead, 1, width, (place,), zero, zero, (ny, nx), op.pitch[0], sides, wide_in,
                "async", loc=op.loc,
            )  # fmt: skip
            store = t.StoreFragments(
                out, acc, u, loop.y, loop.x + i * 8, self.mma, self.warps, 1, 1, run, self.warps, op.pitch[1], op.box,
                (ny, nx), ((0, 0), (0, 0)), op.pitch[0], wide_out, loc=op.loc,
            )  # fmt: skip
            return [
                fetch,
                tt.Slide(acc, i, raw, weights, zero, runs, self.mma, self.products, bands, (store,), loc=op.loc),
            ]

        count = tile_count(whole(op), (1, cols))
        blocks = min(self.blocks, count) or count
        loop = tiles(whole(op), (1, cols), blocks if self.blocks else 0, body, op.loc)
        func = t.Func(
            op.symbol, (u, out, table), blocks, 32 * self.warps,
            (t.Alloc(raw, place, loc=op.loc), t.Fragments(weights, table, loc=op.loc), loop), self.min_blocks,
            loc=op.loc,
        )  # fmt: skip
        return replace_kernel(module, op, func, {"wt": values})


def band(op: o.Stencil, lead: int, bands: int) -> Any:
    """The Toeplitz matrix, [8 * bands, 8]: column n holds the weights from row n on (windows start ``lead`` early)."""
    out = np.zeros((8 * bands, 8))
    for offset, weight in op.taps:
        for n in range(8):
            out[n + lead + offset[-1], n] = weight
    return out


def fragments(matrix: Any) -> Any:
    """A [4 s, 8] matrix in the order of operand B: register s of lane l is row 4 s + l % 4, column l // 4."""
    lane = np.arange(32)
    return matrix.reshape(-1, 4, 8)[:, lane % 4, lane // 4].ravel()
