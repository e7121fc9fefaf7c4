"""``sddmm``: the elements of a product of two integer matrices that a pattern of vectors keeps, on tensor cores.

Magicube's SDDMM (SC'22, section 4.3) the other way round: columns of b, of which a pattern keeps a few for each vector
row, stay in shared memory, a strip of them for all rows of a that a block takes; a warp has 8 rows of a in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import op_sddmm as o
from .. import tile_resident as tr
from .. import tile_sampled as ts
from .. import tile_tasks as tt
from ..expr import Value, as_expr
from ..node import Op
from ..numbers.resident import ALIGN
from ..numbers.sampled import GROUP, TILE, entry_type, length
from ..passes.manager import register
from ..types import Buffer, s32, u32, u64
from .sampled import Part, Sampling


@register("sddmm")
@dataclass(frozen=True)
class SampledStrips(Sampling):
    """``groups`` blocks for each strip of ``rows`` columns of b; ``tiles`` of 16 vectors in all.

    ``prefetch``: the rows of a of a warp's next task come while it multiplies.  ``via``: how the strip comes.  The
    lists: ``entries`` and ``starts``.
    """

    rows: int = 256
    groups: int = 8
    tiles: int = 1
    prefetch: bool = True
    via: str = "tensor"

    def strips(self, op: o.Sddmm) -> int:
        """Strips of columns of b."""
        return -(-op.n // self.rows)

    def blocks(self, op: o.Sddmm) -> int:
        return self.strips(op) * self.groups

    def length(self, op: o.Sddmm) -> int:
        return length(-(-op.m // GROUP), self.groups, self.warps)

    def lists(self, op: o.Sddmm) -> dict[str, Buffer]:
        starts = -(-op.m // GROUP) * (GROUP // op.height) * self.strips(op)
        return {
            "entries": Buffer("entries", entry_type(self.rows, op.height), self.tiles * TILE, "global"),
            "starts": Buffer("starts", s32, starts, "global"),
        }

    def body(self, part: Part, lists: dict[str, Any]) -> Op:
        op, task, block = part.op, part.task, part.mine
        strip = Buffer("strip", op.held, self.rows * part.cut.nbytes // part.item, "shared", ALIGN)
        bars = Buffer("bars", u64, 1, "shared") if self.via == "tensor" else None
        entry = Buffer("entry", u32, 2, "reg")
        multiply = ts.MultiplyTile(
            acc=part.acc, own=part.own, strip=strip, entry=entry, rows=self.rows, dtype=op.dtype, **part.share
        )  # fmt: skip
        there = () if bars is None else (tr.AwaitResident(bars=bars, part=0, parts=1),)
        now = (part.take(), part.fetch(task["word"])) if self.prefetch else (part.take(),)
        walk = ts.EachTile(
            entry=entry, place=part.place, entries=part.params["entries"], starts=part.params["starts"],
            begin=task["begin"], end=task["end"], row=task["row"], strip=block // self.groups, strips=self.strips(op),
            rows=self.rows, height=op.height, vectors=part.vectors, which=part.which, first=(*now, *there),
            body=part.multiplied(multiply),
        )  # fmt: skip
        before = () if self.prefetch else (part.fetch(task["row"]),)
        tasks = tt.EachTask(**task, steps=part.params["entries"].size, body=(*before, walk), **lists)
        fill = tr.FillResident(
            dst=strip, src=part.b, bars=bars, row=part.which * op.n + block // self.groups * self.rows,
            column=as_expr(part.column), rows=self.rows, cols=part.cut.width // part.item, slices=part.cut.slices,
            m=op.batch * op.n, n=part.b.size // (op.batch * op.n), via=self.via,
        )  # fmt: skip
        ahead: tuple[Op, ...] = (fill,)
        if self.prefetch:
            soonest = Value("soonest", s32, 0, part.groups)
            first = part.fetch(soonest, alone=bars is not None)
            ahead = (ts.FirstTask(row=soonest, body=(first,), **lists), fill)
        settle = () if bars is None else (tr.SettleResident(bars=bars, parts=1),)
        return part.block((strip, *(() if bars is None else (bars,))), ahead, tasks, settle)
