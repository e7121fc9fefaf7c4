"""The meaning of the op ``stencil``: pad by the boundary, sum shifted slices, keep frozen cells, once a time step.

Source: ARCHITECTURE, "Meaning".  Numbers: float64 and float32 fields are summed in their own type, float16 and
bfloat16 ones in float32 and rounded once a step, bytes as well, to nearest even and to 0..255.  Terms are added in the
weights' row-major order; a zero weight is not a term, so a NaN reaches only the cells that read it.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsegen.ir.boundary import Sides
from sparsegen.ir.errors import ArrayError

from .boundary import Field, keep_frozen, pad, rounded

_ACCUMULATE = {
    "float64": "float64",
    "float32": "float32",
    "float16": "float32",
    "bfloat16": "float32",
    "uint8": "float32",
}


def run(u: Field, weights: npt.ArrayLike, sides: Sides, steps: int, accumulate: npt.DTypeLike | None = None) -> Field:
    """The field after ``steps`` (at least 1) time steps; ``u`` is untouched.

    ``sides``: (low, high) boundary of each axis.  ``accumulate``: the type to sum in (default: see the module).
    """
    if steps < 1:
        raise ArrayError(f"{steps} time steps", hint="run at least 1 step")
    for _ in range(steps):
        u = step(u, weights, sides, accumulate)
    return u


def step(u: Field, weights: npt.ArrayLike, sides: Sides, accumulate: npt.DTypeLike | None = None) -> Field:
    """The field one time step later, in a new array of the same dtype."""
    taps = np.asarray(weights, dtype=np.float64)
    _check(u, taps, sides)
    total: np.dtype[Any] = np.dtype(accumulate or _ACCUMULATE[u.dtype.name])
    radius = [extent // 2 for extent in taps.shape]
    ends = tuple(((low.kind, low.value), (high.kind, high.value)) for low, high in sides)
    padded = pad(u, radius, ends).astype(total)
    out: Field = np.zeros(u.shape, total)
    with np.errstate(all="ignore"):
        for index in product(*map(range, taps.shape)):
            if taps[index] != 0.0:
                window = tuple(slice(i, i + n) for i, n in zip(index, u.shape, strict=True))
                out += np.asarray(taps[index], total) * padded[window]
        result = rounded(out, u.dtype)
    keep_frozen(result, u, radius, ends)
    return result


def _check(u: Field, weights: npt.NDArray[np.float64], sides: Sides) -> None:
    if u.dtype.name not in _ACCUMULATE:
        raise ArrayError(f"a field of dtype {u.dtype}", hint=f"use one of {', '.join(_ACCUMULATE)}")
    if not u.ndim == weights.ndim == len(sides):
        raise ArrayError(
            f"{u.ndim} axes of field, {weights.ndim} of weights, {len(sides)} of boundary",
            hint="they must be the same number",
        )
    if any(n < extent for n, extent in zip(u.shape, weights.shape, strict=True)):
        raise ArrayError(
            f"a field of shape {u.shape} is smaller than the stencil's {weights.shape}",
            hint="every axis needs at least as many cells as the stencil is wide",
        )
