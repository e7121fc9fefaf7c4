"""``softmax``: integer scores become exponentials as small integers, and a scale for each row, a vector row a warp.

Scores are read twice, for the largest of a row and for its exponentials, the second time from the caches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import op_attention as o
from .. import tile as t
from .. import tile_softmax as ts
from ..module import Module
from ..passes.manager import register
from ..types import Buffer, f32, s32, u32
from .common import each, replace_kernel


@register("softmax")
@dataclass(frozen=True)
class SoftmaxKernel:
    """Blocks of ``warps`` warps.  Roles of the launch: ``scores``, ``ptr`` (of each vector row its first vector and its
    end), ``q_scale``, ``k_scale`` and ``v_scale``, ``values`` and ``scale``.  A fresh one overlaps with the launch
    before (Hopper)."""

    warps: int = 8

    def run(self, module: Module) -> Module:
        return each(module, o.Softmax, self._kernel, batched=True)

    def _kernel(self, module: Module, op: o.Softmax) -> Module:
        rows = op.batch * -(-op.m // op.height)
        params = {
            "scores": Buffer("scores", s32, op.batch * op.stored, "global"),
            "ptr": Buffer("ptr", s32, 2 * rows // op.batch, "global"),
            **{name: Buffer(name, f32, 1, "global") for name in ("q_scale", "k_scale", "v_scale")},
            "values": Buffer("values", u32, op.batch * op.stored * op.bits // 32, "global"),
            "scale": Buffer("scale", f32, op.batch * op.m, "global"),
        }
        of: dict[str, Any] = {**params}
        softmax = ts.SoftmaxRows(
            **of, batch=op.batch, m=op.m, height=op.height, d=op.d, bits=op.bits, fresh=op.fresh
        )  # fmt: skip
        func = t.Func(
            symbol=op.symbol, params=tuple(params.values()), blocks=-(-rows // self.warps), threads=32 * self.warps,
            body=(*(t.Overlap(launch="last") for _ in range(op.fresh)), softmax),
        )  # fmt: skip
        return replace_kernel(module, op, func, params)
