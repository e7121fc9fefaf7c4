"""``nm_gather``: a product with rows of W that share their columns, on tensor cores; rows of x are gathered on load.

nmSPARSE's vector-wise pattern (MLSys'23, section 3) for many columns of x: rows of x that a tile's list names come by
asynchronous copies of 16 bytes into a swizzled tile, and warpgroups multiply out of shared memory, so that the gather
costs only addresses.  Tiles of W lie in memory as they lie in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from .. import op_spmm as o
from .. import tile as t
from .. import tile_gather as tg
from ..errors import IRError
from ..expr import Value
from ..module import Module
from ..numbers.arithmetic import up
from ..numbers.gather import ALIGN, PIECE, ROWS, SIDE, SIDE_PITCH, STEP, list_words, threads
from ..numbers.gather import bars as barriers
from ..passes.manager import register
from ..types import Buffer, f32, s32, u32, u64
from .common import each, replace_kernel
from .product import epilogue, launched, parameters

#: Warps of a block that turns columns into rows.
TURNERS: Final = 8
#: Tiles of columns that blocks take side by side: then W's tiles, which they share, come once from DRAM.  With more of
#: them it is better to share columns of x: so 4096^3 took 3 to 7 % less on an H200, n = 256 and 1024 up to 10 % more.
FEW: Final = 8


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
        if op.x_order == "row" and op.n % PIECE == 0 and op.vec == PIECE:
            body = self._walk(op, params, params["in"], op.n, row_tiles, col_tiles)
        else:
            pitch = up(op.n, PIECE)
            module = self._turned(module, op, pitch)
            turned = Buffer("turned", op.dtype, op.k * pitch, "global")
            params = {("ws.turned" if role == "in" else role): (turned if role == "in" else b)
                      for role, b in params.items()}  # fmt: skip
            body = self._walk(op, params, turned, pitch, row_tiles, col_tiles)
        blocks = min(self.blocks, row_tiles * col_tiles)
        return launched(
            module, op, params, replace(body, blocks=blocks), blocks, threads(self.groups) // 32, self.min_blocks
        )

    def _together(self, op: o.Spmm) -> int:
        """Columns of y that a store takes."""
        if op.y_order != "row" or op.residual:  # a sum is rounded once, so exchanged pairs take no residual
            return 2 if op.y_order == "row" and op.n % 2 == 0 else 1
        return next(v for v in (8, 2, 1) if op.n % v == 0 and self.cols % (4 * v) == 0)

    def _turned(self, module: Module, op: o.Spmm, pitch: int) -> Module:
        """The module with a kernel before the op's own that writes x row by row."""
        src, dst = Buffer("x", op.dtype, op.k * op.n, "global"), Buffer("turned", op.dtype, op.k * pitch, "global")
        tile = Buffer("tile", op.dtype, SIDE * SIDE_PITCH, "shared", 16)
        turn = tg.TurnColumns(dst=dst, src=src, tile=tile, k=op.k, n=op.n, pitch=pitch, order=op.x_order)
        func = t.Func(
            symbol=f"{op.symbol}_turn", params=(src, dst), blocks=-(-op.k // SIDE) * -(-pitch // SIDE),
            threads=32 * TURNERS, body=(turn,),
        )  # fmt: skip
        return replace_kernel(module, op, func, ("in", "ws.turned"), keep_op=True)

    def _walk(
        self, op: o.Spmm, params: dict[str, Buffer], x: Buffer, n: int, row_tiles: int, col_tiles: int
    ) -> tg.WalkKept:
        """What a block does."""
        groups, cols = self.groups, self.cols
        ring = Buffer("w_ring", op.dtype, self.stages * STEP * ROWS * groups, "shared", ALIGN)
        x_ring = Buffer("x_ring", op.dtype, self.stages * STEP * cols, "shared", ALIGN)
        acc, rows = Buffer("acc", f32, cols // 2, "reg"), Buffer("listed", u32, list_words(cols), "reg")
        lists = Buffer("lists", u32, self.steps * STEP, "shared", 16)
        bars = Buffer("bars", u64, barriers(self.stages), "shared", 8)
        which = Value("which", s32, 0, 1)
        tile, column = Value("tile", s32, 0, row_tiles - 1), Value("column", s32, 0, op.n - 1)
        step, slot = Value("step", s32, 0, self.steps - 1), Value("slot", s32, 0, self.stages - 1)
        ahead = tg.CopyList(dst=lists, src=params["rows"], bars=bars, tile=tile, list=which, steps=self.steps)
        look = tg.ListRows(rows=rows, lists=lists, list=which, step=step, steps=self.steps, cols=cols)
        copy = tg.CopyTile(
            dst=ring, src=params["tiles"], bars=bars, slot=slot, tile=tile, step=step, steps=self.steps, groups=groups
        )
        gather = tg.GatherRows(dst=x_ring, src=x, rows=rows, slot=slot, column=column, cols=cols, k=op.k, n=n)
        multiply = tg.MultiplyGroup(acc=acc, a=ring, b=x_ring, slot=slot, cols=cols, groups=groups)
        store = tg.StoreTile(
            acc=acc, tile=tile, column=column, groups=groups, vec=self._together(op), **epilogue(op, params)
        )
        return tg.WalkKept(
            shared=(ring, x_ring, lists, bars), registers=(acc, rows), tile=tile, column=column, step=step, slot=slot,
            list=which, acc=acc, bars=bars, groups=groups, row_tiles=row_tiles, col_tiles=col_tiles, cols=cols,
            steps=self.steps, stages=self.stages, blocks=1, fastest="cols" if col_tiles <= FEW else "rows",
            ahead=(ahead,), look=(look,), fill=(copy, gather), body=(multiply,), done=(store,),
        )  # fmt: skip
