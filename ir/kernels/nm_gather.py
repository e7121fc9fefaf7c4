"""``nm_gather``: a product with rows of W that share their columns, on tensor cores; rows of x are gathered on load.

nmSPARSE's vector-wise pattern (MLSys'23, section 3) for many columns of x: rows of x that a tile's list names come by
asynchronous copies of 16 bytes into a swizzled tile, and warpgroups multiply out of shared memory, so that the gather
costs only addresses.  Tiles of W lie in memory as they lie in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from .. import op_spmm as o
from .. import tile_gather as tg
from .. import tile_groups as tw
from ..errors import IRError
from ..expr import Value
from ..module import Module
from ..numbers.groups import ALIGN, COLS, ROWS, STEP, list_words, threads
from ..numbers.groups import bars as barriers
from ..passes.manager import register
from ..types import Buffer, f32, s32, u32, u64
from .common import each
from .groups import FEW, Pieces, by_pieces, together
from .product import epilogue, launched, parameters

#: Registers of a thread that copies where the others need more than a launch gives: gelu of 128 sums would spill.
COPYING: Final = 40


@register("nm_gather")
@dataclass(frozen=True)
class NmGather:
    """``blocks`` blocks of ``groups`` warpgroups, each with 64 rows of a tile and ``cols`` columns of x.

    A tile of W takes ``steps`` turns of 64 columns, in a ring of ``stages`` slots.  Roles of the launch: ``in``,
    ``out``, W's packed arrays (``tiles`` and ``rows``), those of the epilogue.  An x by columns, or one whose rows are
    no whole pieces, is first written row by row into ``ws.turned``.
    """

    groups: int = 2
    cols: int = 256
    stages: int = 4
    steps: int = 1
    blocks: int = 132
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=("nm",))

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        if op.dtype.nbytes != 2:
            raise IRError(f"nm_gather multiplies 16-bit numbers, not {op.dtype}", hint="take nm_lanes")
        row_tiles, col_tiles = -(-op.m // (ROWS * self.groups)), -(-op.n // self.cols)
        size = row_tiles * self.steps * STEP
        arrays = {"tiles": (op.dtype, size * ROWS * self.groups), "rows": (u32, size // 2)}
        params = parameters(op, arrays, 0, 0)
        module, params, x = by_pieces(module, op, params, ("row",), overlap=True)
        body = self._walk(op, params, x, row_tiles, col_tiles)
        blocks = min(self.blocks, row_tiles * col_tiles)
        return launched(
            module, op, params, replace(body, blocks=blocks), blocks, threads(self.groups) // 32, self.min_blocks
        )

    def _walk(self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, row_tiles: int, col_tiles: int) -> tw.WalkGroups:
        """What a block does."""
        groups, cols = self.groups, self.cols
        ring = Buffer("w_ring", op.dtype, self.stages * STEP * ROWS * groups, "shared", ALIGN)
        x_ring = Buffer("x_ring", op.dtype, self.stages * STEP * cols, "shared", ALIGN)
        acc, rows = Buffer("acc", f32, cols // 2, "reg"), Buffer("listed", u32, list_words(cols), "reg")
        lists = Buffer("lists", u32, self.steps * STEP, "shared", 16)
        bars = Buffer("bars", u64, barriers(self.stages, lists=2), "shared", 8)
        which = Value("which", s32, 0, 1)
        tile, column = Value("tile", s32, 0, row_tiles - 1), Value("column", s32, 0, op.n - 1)
        step, slot = Value("step", s32, 0, self.steps - 1), Value("slot", s32, 0, self.stages - 1)
        ahead = tg.CopyList(dst=lists, src=params["rows"], bars=bars, tile=tile, list=which, steps=self.steps)
        look = tg.ListRows(rows=rows, lists=lists, list=which, step=step, steps=self.steps, cols=cols)
        copy = tw.CopyTile(
            dst=ring,
            src=params["tiles"],
            bars=bars,
            slot=slot,
            tile=tile,
            step=step,
            steps=self.steps,
            size=STEP * ROWS * groups,
        )
        gather = tg.GatherRows(
            dst=x_ring, src=x.buffer, rows=rows, bars=bars, slot=slot, column=column, cols=cols, k=op.k, n=x.n
        )
        multiply = tw.MultiplyGroup(acc=acc, a=ring, b=x_ring, slot=slot, cols=cols, groups=groups, order="row")
        store = tw.StoreTile(
            acc=acc, tile=tile, column=column, warps=(4 * groups, 1), vec=together(op, cols), **epilogue(op, params)
        )
        tight = op.activation == "gelu" and groups == 2 and cols == COLS[-1]
        return tw.WalkGroups(
            shared=(ring, x_ring, lists, bars), registers=(acc, rows), tile=tile, column=column, step=step, slot=slot,
            list=which, acc=acc, bars=bars, groups=groups, row_tiles=row_tiles, col_tiles=col_tiles, cols=cols,
            steps=self.steps, stages=self.stages, blocks=1, fastest="cols" if col_tiles <= FEW else "rows",
            lists=2, keep=COPYING * tight, ahead=(ahead,), begin=x.begin, look=(look,), fill=(copy, gather),
            body=(multiply,), done=(*x.begin, store),
        )  # fmt: skip
