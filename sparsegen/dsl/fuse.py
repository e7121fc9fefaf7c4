"""Time fusion: T steps of a stencil as one wider stencil, and where near the border that is not the same thing.

Source: KERNELS, "Kernel fusion".  Inside, the T-fold self-convolution of the weights is exact.  A *one-shot* kernel
fills the cells outside once and applies the fused weights; near a border that is wrong, because the boundary holds at
every step.  :func:`rim_width` says how near.  The arithmetic is the IR's own (:mod:`sparsegen.ir.fuse`).
"""

from __future__ import annotations

import numpy as np

from sparsegen.dsl.stencil import Stencil, Weights, round_to
from sparsegen.ir.errors import StencilError
from sparsegen.ir.fuse import Widths, convolve
from sparsegen.ir.fuse import rim_width as widths


def fuse(weights: Weights, steps: int, dtype: str = "f64") -> Weights:
    """The weights of ``steps`` (at least 1) applications: radius r becomes r * steps, sums kept in float64.

    ``dtype``: round the result to it, once.  A weight that is not finite then, or nothing left but zeros, is refused.
    """
    if steps < 1:
        raise StencilError(f"cannot fuse {steps} time steps", hint="fuse at least 1")
    base = np.asarray(weights, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        fused: Weights = round_to(convolve(base, steps), dtype)
    if not np.isfinite(fused).all():
        growth = float(np.abs(base).sum())
        raise StencilError(
            f"fusing {steps} steps gives the weight {float(fused[~np.isfinite(fused)][0])} in {dtype} (the "
            f"absolute weights sum to {growth:g} a step)",
            hint="fuse fewer steps or scale the weights",
        )
    if not fused.any():
        raise StencilError(
            f"fusing {steps} steps leaves no weight other than 0.0 in {dtype} (largest of one step: "
            f"{float(np.abs(base).max()):g})",
            hint="fuse fewer steps or scale the weights",
        )
    return fused


def rim_width(stencil: Stencil, steps: int) -> Widths:
    """(low, high) width of each axis's rim, in cells: outside every rim the one-shot fused kernel is exact.

    The rules are those of :mod:`sparsegen.ir.fuse`; each side follows its own, and the rim of the whole field is the
    union over axes and sides, corners included.  The field must be at least as wide as the fused stencil.
    """
    if steps < 1:
        raise StencilError(f"cannot fuse {steps} time steps", hint="fuse at least 1")
    sides = tuple(((low.kind, low.value), (high.kind, high.value)) for low, high in stencil.sides)
    return widths(stencil.weights, sides, steps)
