"""``nm_decode``: a product with any N:M pattern on tensor cores, in one launch; W's tiles are decoded in shared memory.

For many columns of x where rows do not share their columns (nmSPARSE's element-wise and block-wise patterns): what is
kept comes packed, warps that copy spread it among zeros into swizzled tiles, and warpgroups multiply all columns of W.
So bytes are saved, products are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import op_spmm as o
from .. import tile_decode as td
from .. import tile_groups as tw
from ..expr import Value
from ..numbers.decode import WARPS, Entries, entries
from ..numbers.groups import ALIGN, ROWS, STEP, threads
from ..numbers.groups import bars as barriers
from ..passes.manager import register
from ..types import Buffer, DType, s32, u32, u64
from .groups import Groups, Pieces, Turns


@register("nm_decode")
@dataclass(frozen=True)
class NmDecode(Groups):
    """``teams`` of four warps fill the ring, turn about.  W's packed array: ``entries``."""

    teams: int = 1

    family = "nm_decode"

    @property
    def warps(self) -> int:
        return threads(self.groups, self.teams) // 32

    def _entries(self, op: o.Spmm) -> Entries:
        n, m, _, wide = op.pattern
        return entries(n, m, wide, self.groups)

    def arrays(self, op: o.Spmm, row_tiles: int) -> dict[str, tuple[DType, int]]:
        return {"entries": (u32, row_tiles * self.turns(op) * self._entries(op).turn)}

    def parts(self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, at: Turns) -> dict[str, Any]:
        groups, cols, steps, e = self.groups, self.cols, self.turns(op), self._entries(op)
        ring = Buffer("w_ring", op.dtype, self.stages * STEP * ROWS * groups, "shared", ALIGN)
        ahead = e.ahead(self.teams)
        packed, words = Buffer("packed", u32, ahead * e.turn, "shared", 16), Buffer("entry", u32, e.words, "reg")
        bars = Buffer("bars", u64, barriers(self.stages, lists=WARPS * ahead), "shared", 8)
        turn = Value("turn", s32, 0, steps * (at.tile.hi + 1) * -(-op.n // cols) - 1)
        coming: Any = {
            "src": params["entries"], "ring": packed, "bars": bars, "tile": at.tile, "step": at.step, "turn": turn,
            "steps": steps, "ahead": ahead, "teams": self.teams,
        }  # fmt: skip
        load = td.LoadPacked(dst=words, **coming)
        copy = tw.CopyRows(
            dst=at.x_ring, src=x.buffer, bars=bars, slot=at.slot, column=at.column, step=at.step, cols=cols, k=op.k,
            n=x.n, order=x.order,
        )  # fmt: skip
        decode = td.DecodeTile(dst=ring, entries=words, bars=bars, slot=at.slot, groups=groups, run=e.run, runs=e.runs)
        fetch = td.FetchPacked(words=e.words, **coming)
        multiply = tw.MultiplyGroup(
            acc=at.acc, a=ring, b=at.x_ring, slot=at.slot, cols=cols, groups=groups, order=x.order
        )  # fmt: skip
        return {
            "shared": (ring, at.x_ring, packed, bars), "registers": (at.acc, words), "turn": turn, "bars": bars,
            "teams": self.teams, "lists": WARPS * ahead, "look": (load,), "fill": (copy, decode, fetch),
            "body": (multiply,),
        }  # fmt: skip
