"""What stencils and products mean, worked out in NumPy from the documents, not from the library's reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def neighbours(u: Array, reach: tuple[int, ...], sides: Any) -> Array:
    """The field with ``reach`` cells more at each end of each axis, by the kind of border that stands there.

    The lowest axis that a cell leaves where a value is prescribed decides.
    """
    index, beyond = [], []
    for n, r, (low, high) in zip(u.shape, reach, sides, strict=True):
        at = np.arange(-r, n + r)
        inside = np.clip(at, 0, n - 1)
        for side, out in ((low, at < 0), (high, at >= n)):
            if side.kind == "periodic":
                inside[out] = at[out] % n
            elif side.kind == "neumann":
                inside[out] = np.where(at[out] < 0, -1 - at[out], 2 * n - 1 - at[out])
            elif side.kind == "dirichlet":
                beyond.append((len(index), out, side.value))
        index.append(np.clip(inside, 0, n - 1))
    made = u[np.ix_(*index)].copy()
    for axis, out, value in reversed(beyond):
        made[(slice(None),) * axis + (out,)] = value
    return made


def held(shape: tuple[int, ...], reach: tuple[int, ...], sides: Any) -> Array:
    """Where a frozen border keeps a cell as it is."""
    keep = np.zeros(shape, bool)
    for axis, (n, r, ends) in enumerate(zip(shape, reach, sides, strict=True)):
        for side, cells in zip(ends, (slice(0, r), slice(max(0, n - r), n)), strict=True):
            if side.kind == "frozen":
                keep[(slice(None),) * axis + (cells,)] = True
    return keep


def stencil(u: Array, weights: Array, sides: Any, steps: int) -> Array:
    """The field after so many steps, in f64."""
    reach = tuple(edge // 2 for edge in weights.shape)
    keep = held(u.shape, reach, sides)
    now = u.astype(np.float64)
    for _ in range(steps):
        around, new = neighbours(now, reach, sides), np.zeros_like(now)
        for offset in zip(*np.nonzero(weights), strict=True):
            new += weights[offset] * around[tuple(slice(o, o + n) for o, n in zip(offset, u.shape, strict=True))]
        now = np.where(keep, now, new)
    return now


#: The activations of a product's epilogue.
ACTIVATIONS: dict[str | None, Callable[[Array], Array]] = {
    None: lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    "gelu": lambda z: 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))),
    "silu": lambda z: z / (1 + np.exp(-z)),
}


def product(w: Array, given: dict[str, Array], activation: str | None) -> Array:
    """y in f64."""
    wide = {name: a.astype(np.float64) for name, a in given.items()}
    z = w.astype(np.float64) @ wide["x"]
    z = z * wide["scale"][:, None] if "scale" in wide else z
    z = z + wide["bias"][:, None] if "bias" in wide else z
    return ACTIVATIONS[activation](z) + wide.get("residual", 0.0)
