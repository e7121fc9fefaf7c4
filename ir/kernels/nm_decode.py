"""``nm_decode``: a product with any N:M pattern on tensor cores, in one launch; W's tiles are decoded in shared memory.

For many columns of x where rows do not share their columns (nmSPARSE's element-wise and block-wise patterns): what is
kept comes packed, warps that copy spread it among zeros into swizzled tiles, and warpgroups multiply all columns of W.
So bytes are saved, products are not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .. import op_spmm as o
from .. import tile_decode as td
from .. import tile_groups as tw
from ..errors import IRError
from ..expr import Value
from ..module import Module
from ..numbers.decode import WARPS, Entries, entries
from ..numbers.groups import ALIGN, ROWS, STEP, threads
from ..numbers.groups import bars as barriers
from ..passes.manager import register
from ..types import Buffer, f32, s32, u32, u64
from .common import each
from .groups import FEW, Pieces, by_pieces, together
from .product import epilogue, launched, parameters


@register("nm_decode")
@dataclass(frozen=True)
class NmDecode:
    """``blocks`` blocks of ``groups`` warpgroups, each with 64 rows of a tile and ``cols`` columns of x.

    A tile of W takes a turn for each 64 of its columns, in a ring of ``stages`` slots that ``teams``
    of four warps fill.  Roles of the launch: ``in``,
    ``out``, W's packed ``entries``, those of the epilogue.  An x whose rows are no whole pieces, or whose columns are
    none where it is stored by columns, is first written row by row into ``ws.turned``.
    """

    groups: int = 2
    cols: int = 256
    stages: int = 4
    teams: int = 1
    blocks: int = 132
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=("nm",))

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        if op.dtype.nbytes != 2:
            raise IRError(f"nm_decode multiplies 16-bit numbers, not {op.dtype}", hint="take nm_lanes")
        row_tiles, col_tiles = -(-op.m // (ROWS * self.groups)), -(-op.n // self.cols)
        n, m, _, wide = op.pattern
        e = entries(n, m, wide, self.groups)
        params = parameters(op, {"entries": (u32, row_tiles * -(-op.k // STEP) * e.turn)}, 0, 0)
        module, params, x = by_pieces(module, op, params, ("row", "column"), overlap=True)
        body = self._walk(op, params, x, e, row_tiles, col_tiles)
        blocks = min(self.blocks, row_tiles * col_tiles)
        warps = threads(self.groups, self.teams) // 32
        return launched(module, op, params, replace(body, blocks=blocks), blocks, warps, self.min_blocks)

    def _walk(
        self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, e: Entries, row_tiles: int, col_tiles: int
    ) -> tw.WalkGroups:
        """What a block does."""
        groups, cols, steps = self.groups, self.cols, -(-op.k // STEP)
        ring = Buffer("w_ring", op.dtype, self.stages * STEP * ROWS * groups, "shared", ALIGN)
        x_ring = Buffer("x_ring", op.dtype, self.stages * STEP * cols, "shared", ALIGN)
        ahead = e.ahead(self.teams)
        packed = Buffer("packed", u32, ahead * e.turn, "shared", 16)
        acc, words = Buffer("acc", f32, cols // 2, "reg"), Buffer("entry", u32, e.words, "reg")
        bars = Buffer("bars", u64, barriers(self.stages, lists=WARPS * ahead), "shared", 8)
        tile, column = Value("tile", s32, 0, row_tiles - 1), Value("column", s32, 0, op.n - 1)
        step, slot = Value("step", s32, 0, steps - 1), Value("slot", s32, 0, self.stages - 1)
        turn = Value("turn", s32, 0, steps * row_tiles * col_tiles - 1)
        coming: Any = {
            "src": params["entries"], "ring": packed, "bars": bars, "tile": tile, "step": step, "turn": turn,
            "steps": steps, "ahead": ahead, "teams": self.teams,
        }  # fmt: skip
        load = td.LoadPacked(dst=words, **coming)
        copy = tw.CopyRows(
            dst=x_ring, src=x.buffer, bars=bars, slot=slot, column=column, step=step, cols=cols, k=op.k, n=x.n,
            order=x.order,
        )  # fmt: skip
        decode = td.DecodeTile(dst=ring, entries=words, bars=bars, slot=slot, groups=groups, run=e.run, runs=e.runs)
        fetch = td.FetchPacked(words=e.words, **coming)
        multiply = tw.MultiplyGroup(acc=acc, a=ring, b=x_ring, slot=slot, cols=cols, groups=groups, order=x.order)
        store = tw.StoreTile(
            acc=acc, tile=tile, column=column, warps=(4 * groups, 1), vec=together(op, cols), **epilogue(op, params)
        )
        return tw.WalkGroups(
            shared=(ring, x_ring, packed, bars), registers=(acc, words), tile=tile, column=column, step=step, slot=slot,
            turn=turn, acc=acc, bars=bars, groups=groups, row_tiles=row_tiles, col_tiles=col_tiles,
            cols=cols, steps=steps, stages=self.stages, blocks=1, fastest="cols" if col_tiles <= FEW else "rows",
            teams=self.teams, lists=WARPS * ahead, ahead=(), begin=x.begin, look=(load,), fill=(copy, decode, fetch),
            body=(multiply,), done=(*x.begin, store),
        )  # fmt: skip
