"""What a field has outside its border, and the cells of frozen borders, which keep their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsegen.ir.op import Sides

Field = npt.NDArray[Any]


def pad(u: Field, radius: Sequence[int], sides: Sides) -> Field:
    """The field with ``radius[axis]`` cells more at both ends of each axis (beyond a frozen one: the edge cell)."""
    for axis in reversed(range(u.ndim)):  # the last axis first, so that the lowest axis decides the corners
        n = u.shape[axis]
        at = np.arange(-radius[axis], n + radius[axis])
        stands = {"periodic": at % n, "neumann": np.where(at < 0, -1 - at, 2 * n - 1 - at)}
        (low, below), (high, above) = sides[axis]
        edge = np.clip(at, 0, n - 1)
        index = np.where(at < 0, stands.get(low, edge), np.where(at >= n, stands.get(high, edge), at))
        u = np.take(u, index, axis)
        for kind, value, outside in ((low, below, at < 0), (high, above, at >= n)):
            if kind == "dirichlet":
                u[(slice(None),) * axis + (outside,)] = value
    return u


def keep_frozen(new: Field, old: Field, radius: Sequence[int], sides: Sides) -> None:
    """Gives the cells within the radius of each frozen end their old values."""
    for axis, pair in enumerate(sides):
        n, r = new.shape[axis], radius[axis]
        for (kind, _), kept in zip(pair, (slice(0, r), slice(n - r, n)), strict=True):
            if kind == "frozen":
                cells = (slice(None),) * axis + (kept,)
                new[cells] = old[cells]


def rounded(values: Field, dtype: Any) -> Field:
    """New cells of a type: bytes to nearest even and to 0..255, where a NaN is 0."""
    if np.dtype(dtype).kind == "u":
        values = np.rint(np.fmin(np.fmax(values, 0), np.iinfo(dtype).max))
    return np.array(values, dtype)
