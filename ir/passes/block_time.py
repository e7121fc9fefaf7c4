"""``block-time``: several time steps in one pass over the data, each done as itself.

Unlike ``fuse-time`` the weights stay those of one step; whoever lowers the op must do its ``levels`` one after the
other.  Near a border that is not periodic the boundary holds at each step: those cells go to an ``op.rim``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import op as o
from ..fuse import inner_box, strips
from ..module import Module
from ..node import Op
from .manager import register


@register("block-time")
@dataclass(frozen=True)
class BlockTime:
    """Makes ``levels`` applications of every stencil one pass, where no border but a periodic one reaches."""

    levels: int = 1

    def run(self, module: Module) -> Module:
        funcs: list[Op] = []
        for op in module.funcs:
            funcs += self._block(op) if isinstance(op, o.Stencil) else [op]
        return replace(module, funcs=tuple(funcs))

    def _block(self, op: o.Stencil) -> list[Op]:
        # whatever depends on a cell outside is the rim's: the pass itself knows no border but the periodic one
        reach = tuple(r * self.levels for r in op.radius)
        rims = tuple((0, 0) if low[0] == "periodic" else (n, n) for n, (low, _) in zip(reach, op.sides, strict=True))
        inner, boxes = inner_box(op.shape, rims), strips(op.shape, rims)
        out: list[Op] = []
        if all(low < high for low, high in inner):
            out.append(replace(op, box=inner, levels=self.levels, steps=op.steps * self.levels))
        if boxes:
            out.append(
                o.Rim(
                    f"{op.symbol}_rim", op.shape, op.dtype, op.taps, op.radius, op.sides, boxes, op.pitch, self.levels,
                    loc=op.loc,
                )
            )  # fmt: skip
        return out
