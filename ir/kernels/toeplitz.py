"""``toeplitz``: one row as a product with a banded Toeplitz matrix, many time steps fused in its weights.

Eight adjacent outputs are a window of 8 + 2 R columns times a band of weights (R is the fused radius); ConvStencil's
stencil2row in one dimension (PPoPP'24, section 3.5) is the same product with windows of k columns.  The rows of a
fragment are *runs* of adjacent windows, so that operand A slides along them: an element is read once from the one raw
copy in shared memory and serves all the windows it lies in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import op as o
from .. import tile as t
from ..boundary_map import any_cell
from ..errors import ScheduleError
from ..expr import Value
from ..fragments import SHAPES
from ..layout import layout
from ..module import Module
from ..node import Op
from ..numbers.toeplitz import PAD, Runs
from ..passes.manager import choice, register
from ..spread import Products
from ..tile_products import Slide
from ..types import Buffer, s32
from .common import each, field, grid, over_tiles, shifted, store, vector


@register("toeplitz")
@dataclass(frozen=True)
class Toeplitz:
    """Tiles of ``warps`` x M runs of 8 * ``products`` outputs; ``mma`` names the shape, M rows and at most 8 columns.

    ``blocks`` stay and take one tile after the other (the pipeline pass follows); 0: one tile a block.
    """

    mma: str = choice("f64.m16n8k8", "f64.m16n8k4", "f64.m8n8k4")
    products: int = 8
    warps: int = 1
    blocks: int = 0
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Stencil, self._kernel, axes=(2,))

    def _kernel(self, module: Module, op: o.Stencil) -> Module:
        shape = SHAPES[self.mma]
        if any(op.radius[:-1]) or shape.k > 8 or shape.a.dtype is not op.dtype:
            raise ScheduleError(
                f"toeplitz with {self.mma} of a {op.dtype} stencil of radius {op.radius}",
                hint="it takes stencils along the last axis, in the type that the mma multiplies, and mma of K <= 8",
            )
        n = Runs(radius=op.radius[-1], m=shape.m, products=self.products, warps=self.warps)
        u, out = field(op, "u"), field(op, "out")
        place = layout({"r": 1, "c": n.width}, lambda r, c: c + c // n.run * PAD)
        runs = layout({"m": n.count, "c": n.reach}, lambda m, c: m * (n.run + PAD) + c + c // n.run * PAD)
        raw = Buffer("raw", op.dtype, n.slot, "shared", 128)
        values = fragments(band(op, n.lead, n.bands))
        table = Buffer("wt", op.dtype, values.size, "global")
        weights = Buffer("wf", op.dtype, values.size // 32, "reg")
        regs = len(shape.c.elements)
        acc = Buffer("acc", op.dtype, (n.bands + 1) * regs, "reg")
        i = Value("product", s32, 0, self.products - 1)
        # cells outside are read only where their value does not matter (the rim's part), or wrapped
        cells = replace(grid(op), sides=any_cell(op.sides))
        wide_in, wide_out = (2 if op.shape[0] == 1 else vector(pitch, 2) for pitch in op.pitch)

        def body(loop: t.ForTiles) -> list[Op]:
            fetch = t.Copy(
                dst=raw, src=u, at=shifted(loop.at, -n.lead), rows=1, cols=n.width, maps=(place,), grid=cells,
                vector=wide_in, mode="async",
            )  # fmt: skip
            spread = Products(self.mma, self.warps, rows=1, blocks=1, group=n.run, warps=self.warps)
            done = store(op, (loop.at[0], loop.at[1] + i * 8), acc, spread, wide_out, keeps=((0, 0), (0, 0)))
            slide = Slide(
                acc=acc, product=i, src=raw, weights=weights, layout=runs, shape=self.mma, products=self.products,
                bands=n.bands, body=(done,),
            )  # fmt: skip
            return [fetch, slide]

        before = t.Alloc(buf=raw, layout=place), t.Fragments(regs=weights, table=table)
        return over_tiles(
            module, op, (1, n.cols), body, params=(u, out, table), constants={"wt": values}, threads=32 * self.warps,
            before=before, stay=self.blocks, min_blocks=self.min_blocks,
        )  # fmt: skip


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
