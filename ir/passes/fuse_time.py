"""``fuse-time``: several time steps as one wider stencil, and the rim where that is not the same thing.

Inside, T steps of a linear stencil are its T-fold self-convolution (exact).  Near a border that is not periodic the
boundary holds at each step, which one application cannot do: those cells go to an ``op.rim`` (see
:mod:`sparsegen.ir.fuse`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, prod

import numpy as np

from .. import op as o
from ..errors import ScheduleError
from ..fuse import LOSS, Widths, convolve, dense_weights, inner_box, loss, rim_width, strips
from ..module import Module
from ..node import Op
from ..op_update import Update
from ..types import cell_type
from .manager import choice, register

#: Weights of a fused stencil, times the steps that make them: more would take minutes.
MOST_WORK = 1 << 24


@register("fuse-time")
@dataclass(frozen=True)
class FuseTime:
    """Makes ``steps`` time steps of every stencil one application, and ``levels`` applications one pass.

    A general update has levels only, at each of which its boundary holds.
    Levels are done one after the other by whoever lowers the op.  ``rim``: what is left to it near a border that is not
    periodic: what is wrong after so many steps at once (``fused``); all that the border reaches, for lowerings that
    know none (``all``); or nothing, for lowerings that let it hold at every level (``none``; levels of one step only).
    """

    steps: int = 1
    levels: int = 1
    rim: str = choice("fused", "all", "none")

    def run(self, module: Module) -> Module:
        funcs: list[Op] = []
        for op in module.funcs:
            if isinstance(op, Update):
                if self.steps > 1:
                    raise ScheduleError(f"fuse={self.steps}: weights are fused, a formula has none", loc=op.loc,
                                        hint="take levels: they follow one another")  # fmt: skip
                funcs.append(replace(op, levels=self.levels))
            else:
                funcs += self._fuse(op) if isinstance(op, o.Stencil) else [op]
        return replace(module, funcs=tuple(funcs))

    def _fuse(self, op: o.Stencil) -> list[Op]:
        count = prod(2 * r * self.steps + 1 for r in op.radius)
        if count * self.steps > MOST_WORK:
            raise ScheduleError(f"fuse={self.steps}: the fused stencil has up to {count} weights, too many to work out",
                                loc=op.loc, hint="fuse fewer steps")  # fmt: skip
        one = dense_weights(op)
        lost = loss(one, self.steps, op.dtype) if self.steps > 1 else 0.0
        if lost == inf:
            raise ScheduleError(
                f"fuse={self.steps}: the fused weights overflow or vanish (absolute ones sum to {np.abs(one).sum():g})",
                loc=op.loc,
                hint="fuse fewer steps or scale the weights",
            )
        if lost > (most := LOSS[cell_type(op.dtype).name]):
            raise ScheduleError(
                f"fuse={self.steps}: weights of both signs cancel; the fused ones would be off by about {lost:.1g} of "
                f"their size, {most:g} is allowed",
                loc=op.loc,
                hint="fuse fewer steps",
            )
        fused = convolve(one, self.steps)
        radius = tuple(r * self.steps for r in op.radius)
        taps = tuple(
            (tuple(int(i) - r for i, r in zip(at, radius, strict=True)), float(fused[tuple(at)]))
            for at in np.argwhere(fused != 0.0)
        )
        total = self.steps * self.levels
        rims = (
            reached(op, total)
            if self.rim == "all"
            else rim_width(one, op.sides, self.steps if self.rim == "none" else total)
        )
        if self.rim == "none" and any(low or high for low, high in rims):
            raise ScheduleError(
                f"fuse={self.steps}: near a border that is not periodic fused steps are wrong, "
                "and no rim mends them here",
                loc=op.loc,
                hint="set fuse=1 and do the steps as levels",
            )
        inner, boxes = inner_box(op.shape, rims), strips(op.shape, rims)
        out: list[Op] = []
        if all(low < high for low, high in inner):
            out.append(replace(op, taps=taps, radius=radius, box=inner, steps=total, levels=self.levels))
        if boxes:
            own = op.taps, op.radius, op.sides, boxes, op.pitch, total
            out.append(o.Rim(f"{op.symbol}_rim", op.shape, op.dtype, *own, loc=op.loc))
        return out


def reached(op: o.Stencil, steps: int) -> Widths:
    """How many cells from each border, unless it is periodic, a value from outside can have come in ``steps`` steps."""
    return tuple(
        (0, 0) if low[0] == "periodic" else (r * steps, r * steps)
        for r, (low, _) in zip(op.radius, op.sides, strict=True)
    )
