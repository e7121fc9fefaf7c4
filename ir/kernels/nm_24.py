"""``nm_24``: a product with W that keeps at most 2 of every aligned 4 columns, on sparse tensor cores.

Warps that only copy fill a ring: W's kept elements and the words that say which they are, by bulk copies as they lie
in memory, and 64 rows of x; warpgroups multiply out of it by ``wgmma.sp``, which takes from x what it needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import op_spmm as o
from .. import tile_fours as tf
from .. import tile_groups as tw
from ..errors import IRError
from ..expr import Value
from ..module import Module
from ..numbers.fours import values_size, words_size
from ..numbers.groups import ALIGN, ROWS, STEP, bars, threads
from ..passes.manager import register
from ..types import Buffer, f32, s32, u32, u64
from .common import each
from .groups import FEW, Pieces, by_pieces, together
from .product import epilogue, launched, parameters


@register("nm_24")
@dataclass(frozen=True)
class Nm24:
    """``blocks`` blocks of ``groups`` warpgroups, each with 64 rows of a tile and ``cols`` columns of x.

    A turn takes 64 columns of W, in a ring of ``stages`` slots.  Roles of the launch: ``in``, ``out``, W's packed
    arrays (``kept`` and ``words``), those of the epilogue.  An x whose rows (or columns, if stored so) are no whole
    pieces is first written row by row into ``ws.turned``.
    """

    groups: int = 2
    cols: int = 256
    stages: int = 4
    blocks: int = 132
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=("nm",))

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        if op.dtype.nbytes != 2:
            raise IRError(f"nm_24 multiplies 16-bit numbers, not {op.dtype}", hint="take nm_lanes")
        row_tiles, col_tiles, steps = -(-op.m // (ROWS * self.groups)), -(-op.n // self.cols), -(-op.k // STEP)
        turns = row_tiles * steps
        arrays = {"kept": (op.dtype, turns * values_size(self.groups)), "words": (u32, turns * words_size(self.groups))}
        params = parameters(op, arrays, 0, 0)
        module, params, x = by_pieces(module, op, params, ("row", "column"), overlap=True)
        body = self._walk(op, params, x, row_tiles, col_tiles, steps)
        blocks = min(self.blocks, row_tiles * col_tiles)
        return launched(
            module, op, params, replace(body, blocks=blocks), blocks, threads(self.groups) // 32, self.min_blocks
        )

    def _walk(
        self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, row_tiles: int, col_tiles: int, steps: int
    ) -> tw.WalkGroups:
        """What a block does."""
        groups, cols = self.groups, self.cols
        ring = Buffer("w_ring", op.dtype, self.stages * values_size(groups), "shared", ALIGN)
        words = Buffer("word_ring", u32, self.stages * words_size(groups), "shared", 16)
        x_ring = Buffer("x_ring", op.dtype, self.stages * STEP * cols, "shared", ALIGN)
        acc, word = Buffer("acc", f32, cols // 2, "reg"), Buffer("word", u32, 1, "reg")
        full = Buffer("bars", u64, bars(self.stages, lists=0), "shared", 8)
        tile, column = Value("tile", s32, 0, row_tiles - 1), Value("column", s32, 0, op.n - 1)
        step, slot = Value("step", s32, 0, steps - 1), Value("slot", s32, 0, self.stages - 1)
        copies = [
            tw.CopyTile(dst=dst, src=params[role], bars=full, slot=slot, tile=tile, step=step, steps=steps, size=size)
            for dst, role, size in ((ring, "kept", values_size(groups)), (words, "words", words_size(groups)))
        ]
        rows = tw.CopyRows(
            dst=x_ring, src=x.buffer, bars=full, slot=slot, column=column, step=step, cols=cols, k=op.k, n=x.n,
            order=x.order,
        )  # fmt: skip
        multiply = tf.MultiplyFours(
            acc=acc, a=ring, words=words, word=word, b=x_ring, slot=slot, cols=cols, groups=groups, order=x.order
        )
        store = tw.StoreTile(
            acc=acc, tile=tile, column=column, warps=(4 * groups, 1), vec=together(op, cols), **epilogue(op, params)
        )
        return tw.WalkGroups(
            shared=(ring, x_ring, words, full), registers=(acc,), tile=tile, column=column, step=step, slot=slot,
            acc=acc, bars=full, groups=groups, row_tiles=row_tiles, col_tiles=col_tiles,
            cols=cols, steps=steps, stages=self.stages, blocks=1, pending=0,
            fastest="cols" if col_tiles <= FEW else "rows", ahead=(), begin=x.begin, look=(), fill=(*copies, rows),
            body=(multiply,), done=(*x.begin, store),
        )  # fmt: skip
