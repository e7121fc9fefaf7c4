"""``nm_gather``: a product with rows of W that share their columns, on tensor cores; rows of x are gathered on load.

nmSPARSE's vector-wise pattern (MLSys'23, section 3) for many columns of x: rows of x that a tile's list names come by
asynchronous copies of 16 bytes into a swizzled tile, and warpgroups multiply out of shared memory, so that the gather
costs only addresses.  Tiles of W lie in memory as they lie in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from .. import op_spmm as o
from .. import tile_gather as tg
from .. import tile_groups as tw
from ..expr import Value
from ..numbers.groups import ALIGN, COLS, ROWS, STEP, list_words
from ..numbers.groups import bars as barriers
from ..passes.manager import register
from ..types import Buffer, DType, s32, u32, u64
from .groups import Groups, Pieces, Turns

#: Registers of a thread that copies where the others need more than a launch gives: gelu of 128 sums would spill.
COPYING: Final = 40


@register("nm_gather")
@dataclass(frozen=True)
class NmGather(Groups):
    """A tile of W takes ``steps`` turns of 64 columns that it lists.  W's packed arrays: ``tiles`` and ``rows``."""

    steps: int = 1

    family = "nm_gather"
    orders = ("row",)
    gathers = True

    def turns(self, op: o.Spmm) -> int:
        return self.steps

    def arrays(self, op: o.Spmm, row_tiles: int) -> dict[str, tuple[DType, int]]:
        size = row_tiles * self.steps * STEP
        return {"tiles": (op.dtype, size * ROWS * self.groups), "rows": (u32, size // 2)}

    def parts(self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, at: Turns) -> dict[str, Any]:
        groups, cols, steps, which = self.groups, self.cols, self.steps, Value("which", s32, 0, 1)
        ring = Buffer("w_ring", op.dtype, self.stages * STEP * ROWS * groups, "shared", ALIGN)
        rows, lists = Buffer("listed", u32, list_words(cols), "reg"), Buffer("lists", u32, steps * STEP, "shared", 16)
        bars = Buffer("bars", u64, barriers(self.stages, lists=2), "shared", 8)
        ahead = tg.CopyList(dst=lists, src=params["rows"], bars=bars, tile=at.tile, list=which, steps=steps)
        look = tg.ListRows(rows=rows, lists=lists, list=which, step=at.step, steps=steps, cols=cols)
        copy = tw.CopyTile(
            dst=ring, src=params["tiles"], bars=bars, slot=at.slot, tile=at.tile, step=at.step, steps=steps,
            size=STEP * ROWS * groups,
        )  # fmt: skip
        gather = tg.GatherRows(
            dst=at.x_ring, src=x.buffer, rows=rows, bars=bars, slot=at.slot, column=at.column, cols=cols, k=op.k, n=x.n
        )
        multiply = tw.MultiplyGroup(
            acc=at.acc, a=ring, b=at.x_ring, slot=at.slot, cols=cols, groups=groups, order="row"
        )  # fmt: skip
        tight = op.activation == "gelu" and groups == 2 and cols == COLS[-1]
        return {
            "shared": (ring, at.x_ring, lists, bars), "registers": (at.acc, rows), "list": which, "bars": bars,
            "lists": 2, "keep": COPYING * tight, "ahead": (ahead,), "look": (look,), "early": (copy,),
            "fill": (gather,), "body": (multiply,),
        }  # fmt: skip
