"""Time fusion: T steps of a stencil as one wider stencil, and where near the border that is not the same thing.

Source: KERNELS, "Kernel fusion".  Inside, the T-fold self-convolution of the weights is exact.  A *one-shot* kernel
fills the cells outside once and applies the fused weights; near a border that is wrong, because the boundary holds at
every step.  :func:`rim_width` says how near.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from sparsegen.dsl.stencil import Stencil, Weights, round_to
from sparsegen.ir.boundary import Side
from sparsegen.ir.errors import StencilError


def fuse(weights: Weights, steps: int, dtype: str = "f64") -> Weights:
    """The weights of ``steps`` (at least 1) applications: radius r becomes r * steps, sums kept in float64.

    ``dtype``: round the result to it, once.  A weight that is not finite then, or nothing left but zeros, is refused.
    """
    if steps < 1:
        raise StencilError(f"cannot fuse {steps} time steps", hint="fuse at least 1")
    base = np.asarray(weights, dtype=np.float64)
    fused: Weights = base.copy()
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for _ in range(steps - 1):
            fused = _convolve(fused, base)
        fused = round_to(fused, dtype)
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


def rim_width(stencil: Stencil, steps: int) -> tuple[tuple[int, int], ...]:
    """(low, high) width of each axis's rim, in cells: outside every rim the one-shot fused kernel is exact.

    Let r be the radius and s the reach of the stencil *towards* that side (s = r unless the outermost weights on that
    side are zero).  A cell is wrong if it depends on a cell whose value after a step, not before, the boundary decides:

    - ``periodic``: 0.
    - ``neumann``: 0 if the weights are their own mirror image along *this* axis (the mirrored field then stays
      mirrored; the other axes' symmetry does not matter), else s * (steps - 1).
    - ``dirichlet``: s * (steps - 1).
    - ``frozen``: r * steps, the radius of the fused weights: beyond it the one-shot kernel never reads outside, and
      whether it keeps or computes the cells within does not matter.  0 for one step: there the r cells that keep their
      values are the kernel's own business (out = in), not a rim.

    Each side follows its own rule, and the rim of the whole field is the union over axes and sides, corners included.
    The field must be at least as wide as the fused stencil.
    """
    if steps < 1:
        raise StencilError(f"cannot fuse {steps} time steps", hint="fuse at least 1")
    widths: list[tuple[int, int]] = []
    for axis, ((low, high), (reach_low, reach_high)) in enumerate(zip(stencil.sides, stencil.reach, strict=True)):
        radius, mirrored = stencil.radius[axis], stencil.is_symmetric(axis)
        widths.append((_rim(low, radius, reach_low, mirrored, steps), _rim(high, radius, reach_high, mirrored, steps)))
    return tuple(widths)


def _rim(side: Side, radius: int, reach: int, mirrored: bool, steps: int) -> int:
    if steps == 1 or side.kind == "periodic" or (side.kind == "neumann" and mirrored):
        return 0
    return radius * steps if side.kind == "frozen" else reach * (steps - 1)


def _convolve(a: Weights, b: Weights) -> Weights:
    """Full convolution in any number of axes, by shifting and adding in a fixed order."""
    out = np.zeros([n + m - 1 for n, m in zip(a.shape, b.shape, strict=True)])
    for index in product(*map(range, b.shape)):
        if b[index] != 0.0:
            out[tuple(slice(i, i + n) for i, n in zip(index, a.shape, strict=True))] += b[index] * a
    return out
