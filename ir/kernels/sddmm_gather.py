"""``sddmm_gather``: sampled products of patterns that keep few columns: each warp gathers those of its own tasks.

Magicube's SDDMM (SC'22, section 4.3) loads the columns of b that a vector row keeps, as this kernel does, but to
registers; here they come to a ring in shared memory, from which ``ldmatrix`` makes fragments of 16 of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import op_sddmm as o
from .. import tile_gathered as tg
from .. import tile_tasks as tt
from ..expr import Value
from ..node import Op
from ..numbers.resident import ALIGN
from ..numbers.sampled import TILE
from ..passes.manager import register
from ..types import Buffer, s32
from .sampled import Part, Sampling


@register("sddmm_gather")
@dataclass(frozen=True)
class GatheredColumns(Sampling):
    """A warp has one of ``runs`` tasks; ``tiles`` of 16 vectors in all, rings of ``stages`` slots.

    The lists: ``columns`` and ``places``.
    """

    stages: int = 2
    runs: int = 1
    tiles: int = 1

    def blocks(self, op: o.Sddmm) -> int:
        return -(-self.runs // self.warps)

    def length(self, op: o.Sddmm) -> int:
        return 1

    def lists(self, op: o.Sddmm) -> dict[str, Buffer]:
        return {name: Buffer(name, s32, self.tiles * TILE, "global") for name in ("columns", "places")}

    def body(self, part: Part, lists: dict[str, Any]) -> Op:
        op, task = part.op, part.task
        ring = Buffer("ring", op.held, self.warps * self.stages * TILE * part.cut.nbytes // part.item, "shared", ALIGN)
        slot = Value("slot", s32, 0, self.stages - 1)
        multiply = tg.MultiplyGathered(
            acc=part.acc, own=part.own, ring=ring, slot=slot, stages=self.stages, dtype=op.dtype, **part.share
        )  # fmt: skip
        walk = tg.EachGathered(
            next=Buffer("next", s32, 1, "reg"), place=part.place, slot=slot, ring=ring, src=part.b,
            columns=part.params["columns"], places=part.params["places"], begin=task["begin"], end=task["end"],
            column=part.column, m=op.n, n=part.b.size // (op.batch * op.n), stages=self.stages,
            height=op.height, vectors=part.vectors, which=part.which,
            first=(part.take(waits=False, again=False),), body=part.multiplied(multiply), **part.share,
        )  # fmt: skip
        steps = part.params["columns"].size
        tasks = tt.EachTask(**task, steps=steps, body=(part.fetch(task["row"], alone=False), walk), **lists)
        return part.block((ring,), (), tasks)
