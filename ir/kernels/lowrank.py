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
from ..fragments import SHAPES
from ..fuse import dense_weights
from ..layout import Layout, layout, row_major
from ..module import Module
from ..node import Op
from ..numbers.lowrank import Blocks, slices
from ..passes.manager import choice, register
from ..separable import ROUNDING, Terms, separate
from ..spread import Strips
from ..tile_products import Sandwich
from ..types import Buffer, f64
from .common import each, field, grid, over_tiles, shifted, store, vector


@register("lowrank")
@dataclass(frozen=True)
class LowRank:
    """Tiles of ``rows`` x ``cols`` outputs; a warp makes the M rows of ``mma`` of an equal share of the columns.

    ``terms``: how many there may be; weights of a higher rank are refused.
    """

    rows: int = 64
    cols: int = 64
    mma: str = choice("f64.m16n8k4", "f64.m8n8k4")
    warps: int = 4
    terms: int = 4
    blocks: int = 0
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Stencil, self._kernel, axes=(2,), dtypes=(f64,))

    def _numbers(self, radius: tuple[int, int]) -> Blocks:
        """The tile's numbers, for weights of a radius."""
        m = SHAPES[self.mma].m
        n = Blocks(radius=radius, rows=self.rows, cols=self.cols, m=m, warps=self.warps)
        whole_blocks = n.blocks * 8 * self.warps == self.cols * n.strips
        if self.rows % m or self.warps % max(n.strips, 1) or not whole_blocks:
            raise ScheduleError(
                f"tile={self.rows}x{self.cols} does not make strips of {m} rows and whole blocks of 8 columns for "
                f"warps={self.warps}",
                hint=f"take rows in multiples of {m}, warps a multiple of rows/{m}, and columns a multiple of "
                f"8·warps·{m}/rows, as in tile=64x64 warps=4",
            )
        return n

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
        n = self._numbers((op.radius[-2], op.radius[-1]))
        terms = self._terms(op)
        u, out = field(op, "u"), field(op, "out")
        (ry, rx), base = op.radius, f"f64.m{SHAPES[self.mma].m}n8k4"
        values = fragments(terms)
        table = Buffer("wt", op.dtype, values.size, "global")
        factors = Buffer("wf", op.dtype, values.size // 32, "reg")
        to = row_major((n.height, n.width), n.pitch)
        window = layout({"r": n.height, "c": self.cols + 2 * rx}, lambda r, c: to(r, c + (n.before - rx)))
        raw = Buffer("raw", op.dtype, n.size, "shared", 128)
        spread = Strips(base, n.strips, n.blocks, self.warps)
        acc = Buffer("acc", op.dtype, spread.registers, "reg")

        def body(loop: t.ForTiles) -> list[Op]:
            copy = t.Copy(
                dst=raw, src=u, at=shifted(loop.at, -ry, -n.before), rows=n.height, cols=n.width, grid=grid(op),
                maps=(to,), vector=vector(op.pitch[0], 2), mode="async",
            )  # fmt: skip
            products = Sandwich(
                acc=acc, src=raw, factors=factors, layout=window, columns=COLUMNS, shape=self.mma, spread=spread,
                terms=terms.rank, radius=(ry, rx),
            )  # fmt: skip
            return [copy, products, store(op, loop.at, acc, spread, vector(op.pitch[1], 2))]

        before = t.Alloc(buf=raw, layout=to), t.Fragments(regs=factors, table=table)
        return over_tiles(
            module, op, (self.rows, self.cols), body, params=(u, out, table), constants={"wt": values},
            threads=32 * self.warps, before=before, stay=self.blocks, min_blocks=self.min_blocks,
        )  # fmt: skip


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
