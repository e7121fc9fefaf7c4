"""``fuse-time``: several time steps as one wider stencil, and the rim where that is not the same thing.

Inside, T steps of a linear stencil are its T-fold self-convolution (exact).  Near a border that is not periodic the
boundary holds at each step, which one application cannot do: those cells go to an ``op.rim`` (see
:mod:`sparsegen.ir.fuse`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import op as o
from ..errors import ScheduleError
from ..fuse import convolve, inner_box, rim_width, strips
from ..module import Module
from ..node import Op
from .manager import register


@register("fuse-time")
@dataclass(frozen=True)
class FuseTime:
    """Makes ``steps`` time steps of every stencil one application."""

    steps: int = 1

    def run(self, module: Module) -> Module:
        if self.steps == 1:
            return module
        funcs: list[Op] = []
        for op in module.funcs:
            funcs += self._fuse(op) if isinstance(op, o.Stencil) else [op]
        return Module(module.name, tuple(funcs), module.launches, module.constants)

    def _fuse(self, op: o.Stencil) -> list[Op]:
        one = dense_weights(op)
        with np.errstate(over="ignore", invalid="ignore"):
            fused = convolve(one, self.steps)
        if not np.isfinite(fused).all():
            raise ScheduleError(
                f"fuse={self.steps}: the fused weights overflow (absolute weights sum to {np.abs(one).sum():g})",
                loc=op.loc,
                hint="fuse fewer steps or scale the weights",
            )
        radius = tuple(r * self.steps for r in op.radius)
        taps = tuple(
            (tuple(int(i) - r for i, r in zip(at, radius, strict=True)), float(fused[tuple(at)]))
            for at in np.argwhere(fused != 0.0)
        )
        rims = rim_width(one, op.sides, self.steps)
        inner, boxes = inner_box(op.shape, rims), strips(op.shape, rims)
        out: list[Op] = []
        if all(low < high for low, high in inner):
            out.append(
                o.Stencil(
                    op.symbol, op.shape, op.dtype, taps, radius, op.sides, inner, op.pitch, self.steps, loc=op.loc
                )
            )
        if boxes:
            out.append(
                o.Rim(
                    f"{op.symbol}_rim",
                    op.shape,
                    op.dtype,
                    op.taps,
                    op.radius,
                    op.sides,
                    boxes,
                    op.pitch,
                    self.steps,
                    loc=op.loc,
                )
            )
        return out


def dense_weights(op: o.Stencil) -> Any:
    """The taps as an array of extent 2 r + 1 on each axis."""
    out = np.zeros(tuple(2 * r + 1 for r in op.radius))
    for offset, weight in op.taps:
        out[tuple(d + r for d, r in zip(offset, op.radius, strict=True))] = weight
    return out
