"""Time fusion as arithmetic: self-convolved weights, and how far from a border one application of them is wrong.

Let r be the radius on an axis and s the reach of the stencil towards a side (s = r unless its outermost weights there
are zero).  After T steps at once, a cell is wrong if it depends on a cell whose value after a step, not before, the
boundary decides:

- ``periodic``: never.
- ``neumann``: never if the weights are their own mirror image along this axis, else within s (T - 1) cells.
- ``dirichlet``: within s (T - 1) cells.
- ``frozen``: within r T cells, the radius of the fused weights.  (One step: the r cells that keep their values are the
  kernel's own business, not a rim.)
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from .op import Box, Sides, SideSpec, Stencil
from .types import DType, cell_type

Widths = tuple[tuple[int, int], ...]
#: Largest relative error of fused weights that is accepted, by the type that sums are made in.
LOSS = {"f64": 1e-12, "f32": 1e-6}


def dense_weights(op: Stencil) -> Any:
    """The taps as an array of extent 2 r + 1 on each axis."""
    out = np.zeros(tuple(2 * r + 1 for r in op.radius))
    for offset, weight in op.taps:
        out[tuple(d + r for d, r in zip(offset, op.radius, strict=True))] = weight
    return out


def convolve(weights: Any, steps: int) -> Any:
    """The weights of ``steps`` applications, float64, summed in a fixed order: radius r becomes r * steps."""
    base = np.asarray(weights, dtype=np.float64)
    fused = base.copy()
    for _ in range(steps - 1):
        out = np.zeros([n + m - 1 for n, m in zip(fused.shape, base.shape, strict=True)])
        for index in product(*map(range, base.shape)):
            if base[index] != 0.0:
                out[tuple(slice(i, i + n) for i, n in zip(index, fused.shape, strict=True))] += base[index] * fused
        fused = out
    return fused


def loss(weights: Any, steps: int, dtype: DType) -> float:
    """By how much of their size the weights of ``steps`` fused steps are wrong; infinite where they overflow or vanish.

    Self-convolution rounds each weight by about 2^-53 of the same sum of absolute weights, whose total is
    (sum of |w|)^steps; signs that cancel leave less of it.  It never shrinks from one step to the next.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        fused = np.abs(convolve(weights, steps))
        total = float(np.float_power(np.abs(np.asarray(weights, dtype=np.float64)).sum(), steps))
    if not (fused <= np.finfo(cell_type(dtype).numpy()).max).all() or not np.isfinite(total):
        return float("inf")
    normal = np.where(fused < np.finfo(cell_type(dtype).numpy()).tiny, 0.0, fused)
    left = float(normal.sum())  # what is too small for its type counts as lost
    return 2.0**-53 * total / left + float(fused.sum() - left) / left if left else float("inf")


def most_fused(weights: Any, dtype: DType, limit: int) -> tuple[int, float]:
    """How many steps, ``limit`` at the most, may be fused into one, and the ``loss`` of one more (0 at the limit)."""
    if loss(weights, limit, dtype) <= LOSS[cell_type(dtype).name]:
        return limit, 0.0
    may, not_ = 1, limit
    while may + 1 < not_:
        middle = (may + not_) // 2
        fine = loss(weights, middle, dtype) <= LOSS[cell_type(dtype).name]
        may, not_ = (middle, not_) if fine else (may, middle)
    return may, loss(weights, not_, dtype)


def rim_width(weights: Any, sides: Sides, steps: int) -> Widths:
    """(low, high) width in cells of each axis's rim; outside every rim the one-shot fused stencil is exact."""
    w = np.asarray(weights)
    nonzero = np.nonzero(w)
    out = []
    for axis, (low, high) in enumerate(sides):
        radius = w.shape[axis] // 2
        mirrored = bool(np.array_equal(w, np.flip(w, axis)))
        reach = radius - int(nonzero[axis].min()), int(nonzero[axis].max()) - radius
        out.append(tuple(
            _width(side, radius, max(0, s), mirrored, steps) for side, s in zip((low, high), reach, strict=True)
        ))  # fmt: skip
    return tuple(out)  # type: ignore[arg-type]


def _width(side: SideSpec, radius: int, reach: int, mirrored: bool, steps: int) -> int:
    kind = side[0]
    if steps == 1 or kind == "periodic" or (kind == "neumann" and mirrored):
        return 0
    return radius * steps if kind == "frozen" else reach * (steps - 1)


def inner_box(shape: tuple[int, ...], rims: Widths) -> Box:
    """The cells outside every rim (empty on an axis that the rims cover)."""
    return tuple((min(low, n), max(min(low, n), n - high)) for n, (low, high) in zip(shape, rims, strict=True))


def strips(shape: tuple[int, ...], rims: Widths) -> tuple[Box, ...]:
    """The rim as boxes that do not overlap: along each axis the low and the high strip of what is left."""
    out: list[Box] = []
    box = [(0, n) for n in shape]
    inner = inner_box(shape, rims)
    for axis, (low, high) in enumerate(inner):
        for part in ((box[axis][0], low), (high, box[axis][1])):
            if part[0] < part[1]:
                out.append(tuple(part if a == axis else b for a, b in enumerate(box)))
        box[axis] = (low, high)
    return tuple(b for b in out if all(lo < hi for lo, hi in b))
