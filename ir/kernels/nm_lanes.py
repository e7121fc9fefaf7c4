"""``nm_lanes``: a product with an N:M pattern on CUDA cores; a lane has a row of W, x is read by broadcast.

For few columns of x, where W's bytes are what a product takes.  x waits in shared memory, window by window, so that all
lanes read one window's words at a time; 32 entries of a row, values and offsets, are loaded a turn ahead.  nmSPARSE
(MLSys'23, section 4: SpMM) has the same broadcast with a column a thread.  The lanes' places lie within m words, so
ceil(m / 32) of them at most share a bank: no conflict for m up to 32, two wavefronts for one up to 64.  The paper's
other layout, offsets outside and windows inside, has none for any m, and a family of its own: ``nm_windows``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .. import op_spmm as o
from .. import tile as t
from .. import tile_nm as tn
from .. import tile_ragged as r
from ..expr import Value
from ..module import Module
from ..numbers.nm import LANES, chunks, shared_words, staged
from ..passes.manager import register
from ..types import Buffer, f32, s32, u32
from .chunks import walk_chunks
from .common import each
from .product import epilogue, launched, parameters

#: Columns of x up to which W's first chunks are asked for before x.  With more of them x, which then comes behind W's
#: chunks, is what a block waits for: 8 columns of 8192^2 took 26.4 us so, and 24.3 else, on an H200 with cold L2.
FEW: Final = 2


@register("nm_lanes")
@dataclass(frozen=True)
class NmLanes:
    """Blocks of ``row_warps`` tiles of 32 rows, ``parts`` warps each, and ``cols`` columns of x.

    ``overlap``: launches overlap (Hopper); a block asks for ``least_shared`` bytes, see :class:`.groups.Groups`.
    Roles of the launch: ``in``, ``out``, W's packed arrays (``values`` and ``offsets``, in words), the epilogue's.
    """

    row_warps: int = 1
    parts: int = 16
    cols: int = 1
    min_blocks: int = 1
    overlap: bool = False
    least_shared: int = 0

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=("nm",))

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        n, m = op.pattern[:2]
        c = chunks(n, m, op.dtype.nbytes)
        tiles, count = -(-op.m // LANES), c.count(op.k, m)
        per = tiles * count * LANES
        arrays = {"values": (u32, per * c.stored * op.dtype.nbytes // 4), "offsets": (u32, per * c.words)}
        params = parameters(op, arrays, 0, 0)
        across = -(-op.n // self.cols)
        blocks = -(-tiles // self.row_warps) * across
        body = self._share(op, params, tiles, across)
        return launched(
            module, op, params, body, blocks, self.row_warps * self.parts, self.min_blocks, overlap=self.overlap,
            least_shared=self.least_shared,
        )  # fmt: skip

    def _share(self, op: o.Spmm, params: dict[str, Buffer], tiles: int, across: int) -> tn.ShareRows:
        """What a block does."""
        n, m = op.pattern[:2]
        item = op.dtype.nbytes
        c = chunks(n, m, item)
        held, warps = staged(op.k, m, c), self.row_warps * self.parts
        tile, part = Value("tile", s32, 0, tiles - 1), Value("part", s32, 0, self.parts - 1)
        row, column = Value("row", s32, 0, (tiles + self.row_warps) * LANES - 1), Value("column", s32, 0, op.n - 1)
        mine = Value("mine", s32, 0, op.n + self.cols - 1)
        xs = Buffer("xs", u32, shared_words(op.k, m, c, self.cols, item, warps), "shared", 16)
        acc, total = Buffer("acc", f32, self.cols, "reg"), Buffer("total", f32, 1, "reg")
        order = "column" if op.n == 1 else op.x_order
        stage = tn.StageColumns(
            dst=xs, src=params["in"], column=column, cols=self.cols, m=m, held=held, k=op.k, n=op.n, order=order,
            vec=min(op.vec, 16 // item) if order == op.x_order else 1,
        )  # fmt: skip
        store = r.StoreRow(acc=total, row=row, column=mine, across=1, parts=1, vec=1, blocks=1, **epilogue(op, params))
        add = tn.SumParts(total=total, column=mine, acc=acc, sums=xs, first=column, parts=self.parts, body=(store,))
        regs, first, turns = walk_chunks(
            op, params, tile, tiles, c.count(op.k, m), (part, self.parts),
            lambda values, offsets, chunk: tn.MultiplyChunk(
                acc=acc, values=values, offsets=offsets, x=xs, chunk=chunk, n=n, m=m, dtype=op.dtype
            ),
        )  # fmt: skip
        begin = (*((t.Overlap(launch="last"),) if self.overlap else ()), stage)
        begin = (first, *begin) if self.cols <= FEW else (*begin, first)
        return tn.ShareRows(
            tile=tile, part=part, row=row, column=column, rows=op.m, row_warps=self.row_warps, parts=self.parts,
            tiles=across, cols=self.cols,
            body=(t.Alloc(buf=xs), t.Alloc(buf=acc, zeroed=True), *regs, *begin, turns, add),
        )  # fmt: skip
