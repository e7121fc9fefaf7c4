"""Regions of a domain as coefficients: layers that absorb waves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsegen.arguments import positive, real
from sparsegen.callsite import located, user_loc
from sparsegen.ir.errors import StencilError


def sponge(
    shape: Sequence[int],
    width: int,
    speed: float,
    *,
    reflection: float = 1e-3,
    sides: Mapping[int, tuple[bool, bool]] | None = None,
) -> npt.NDArray[np.float64]:
    """The damping ``d`` of ``u_tt + d u_t = s^2 laplace(u)`` that lets waves run out at the edges of a domain.

    It is 0 inside, and grows with the square of the depth in layers of ``width`` cells at the low and the high end of
    each axis, or of those ends that ``sides`` says, ``{axis: (low, high)}``; where layers meet the larger value counts.
    ``speed``: the largest of waves, in cells a unit of time.  Of a wave that meets a layer head-on, the share
    ``reflection`` comes back from the edge behind it: there d is ``-3 speed log(reflection) / width``.  A layer throws
    back some of long waves itself, and does not take a constant away: make it wider than a wave is long.

    Per unit of time, float64; give it to a kernel in the kernel's type, as ``d.astype(np.float32)``.  StencilError for
    layers that do not fit.

    Source: J. Sochacki, R. Kubichek, J. George, W. R. Fletcher, S. Smithson, Geophysics 52 (1987).
    """
    with located(user_loc()):
        deep = positive(width, "width")
        share, fast = _between(reflection, "reflection", 0, 1), _between(speed, "speed", 0, math.inf)
        depths = _depths(shape, deep, sides)
        found: npt.NDArray[np.float64] = -3 * fast * math.log(share) / deep * np.maximum.reduce(depths) ** 2
        return found


def pml_layers(
    shape: Sequence[int],
    width: int,
    speed: float,
    *,
    reflection: float = 1e-5,
    sides: Mapping[int, tuple[bool, bool]] | None = None,
) -> tuple[npt.NDArray[np.float64], ...]:
    """The dampings of the layers of :func:`sparsegen.pml`: an array for each axis, 0 but in layers at that axis' ends.

    Arguments are those of :func:`sponge`: ``width`` cells at each end, or at those that ``sides`` says; ``speed`` in
    cells a unit of time; ``reflection``, what comes back from the edge behind a layer of a wave that meets it head-on,
    if cells were infinitely small.  A damping grows with the square of the depth, to ``-3 speed log(reflection) / (2
    width)`` at the edge: per unit of time, float64.  StencilError for layers that do not fit.
    """
    with located(user_loc()):
        deep = positive(width, "width")
        share, fast = _between(reflection, "reflection", 0, 1), _between(speed, "speed", 0, math.inf)
        most = -3 * fast * math.log(share) / (2 * deep)
        return tuple(most * depth**2 for depth in _depths(shape, deep, sides))


def _depths(
    shape: Sequence[int], deep: int, sides: Mapping[int, tuple[bool, bool]] | None
) -> list[npt.NDArray[np.float64]]:
    """For each axis how deep cells lie in its layers of so many cells: 0 inside, 1 at the edge."""
    sizes = [positive(n, f"shape[{axis}]") for axis, n in enumerate(shape)]
    found = [np.zeros(sizes) for _ in sizes]
    for axis, ends in (dict.fromkeys(range(len(sizes)), (True, True)) if sides is None else sides).items():
        if axis not in range(len(sizes)):
            raise StencilError(f"a layer on axis {axis} of {len(sizes)}", hint="number the axes from 0")
        n = sizes[axis]
        if sum(ends) * deep > n:
            what = f"layers of {deep} cells do not fit axis {axis} of {n}"
            raise StencilError(what, hint="make them thinner, or the field larger")
        at = np.arange(n) + 0.5
        low, high = (np.clip(1 - far / deep, 0, 1) for far in (at, n - at))
        along = [n if a == axis else 1 for a in range(len(sizes))]
        found[axis] += np.maximum(low * ends[0], high * ends[1]).reshape(along)
    return found


def _between(value: Any, name: str, low: float, high: float) -> float:
    """A number between two others; StencilError otherwise."""
    number = real(value)
    if number is None or not low < number < high:
        below = f" and below {high}" if high < math.inf else ""
        raise StencilError(f"{name}={value!r}", hint=f"pass a number above {low}{below}")
    return number
