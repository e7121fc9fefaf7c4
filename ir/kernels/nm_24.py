"""``nm_24``: a product with W that keeps at most 2 of every aligned 4 columns, on sparse tensor cores.

Warps that only copy fill a ring: W's kept elements and the words that say which they are, by bulk copies as they lie
in memory, and 64 rows of x; warpgroups multiply out of it by ``wgmma.sp``, which takes from x what it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import op_spmm as o
from .. import tile_fours as tf
from .. import tile_groups as tw
from ..numbers.fours import values_size, words_size
from ..numbers.groups import ALIGN, bars
from ..passes.manager import register
from ..types import Buffer, DType, u32, u64
from .groups import Groups, Pieces, Turns


@register("nm_24")
@dataclass(frozen=True)
class Nm24(Groups):
    """W's packed arrays: ``kept`` and ``words``."""

    family = "nm_24"

    def arrays(self, op: o.Spmm, row_tiles: int) -> dict[str, tuple[DType, int]]:
        turns = row_tiles * self.turns(op)
        return {"kept": (op.dtype, turns * values_size(self.groups)), "words": (u32, turns * words_size(self.groups))}

    def parts(self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, at: Turns) -> dict[str, Any]:
        groups, cols, steps = self.groups, self.cols, self.turns(op)
        ring = Buffer("w_ring", op.dtype, self.stages * values_size(groups), "shared", ALIGN)
        words = Buffer("word_ring", u32, self.stages * words_size(groups), "shared", 16)
        word = Buffer("word", u32, 1, "reg")
        full = Buffer("bars", u64, bars(self.stages, lists=0), "shared", 8)
        where: dict[str, Any] = {"bars": full, "slot": at.slot, "tile": at.tile, "step": at.step, "steps": steps}
        copies = [
            tw.CopyTile(dst=dst, src=params[role], size=size, by_lanes=dst is words, **where)
            for dst, role, size in ((ring, "kept", values_size(groups)), (words, "words", words_size(groups)))
        ]
        rows = tw.CopyRows(
            dst=at.x_ring, src=x.buffer, bars=full, slot=at.slot, column=at.column, step=at.step, cols=cols, k=op.k,
            n=x.n, order=x.order,
        )  # fmt: skip
        multiply = tf.MultiplyFours(
            acc=at.acc, a=ring, words=words, word=word, b=at.x_ring, slot=at.slot, cols=cols, groups=groups,
            order=x.order,
        )  # fmt: skip
        return {
            "shared": (ring, at.x_ring, words, full), "registers": (at.acc,), "bars": full, "pending": 0,
            "early": tuple(copies), "fill": (rows,), "body": (multiply,),
        }  # fmt: skip
