"""The meaning of the op ``attention``, in f64: of integers and their scales, or of floats that are quantised first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def quantised(x: Array, bits: int) -> tuple[Array, np.float32]:
    """Integers of so many bits and the scale, f32, that makes them ``x`` again; 1 where all are 0.

    As ``tile.quantise`` says it, the inverse of the scale is an f32 too, and products with it are rounded once: in f64
    those of f16 are exact.
    """
    most = np.float32(2 ** (bits - 1) - 1)
    top = np.float32(np.abs(x.astype(np.float32)).max(initial=0))
    by, scale = (most / top, top / most) if top else (np.float32(0), np.float32(1))
    return np.rint(x.astype(np.float64) * np.float64(by)).astype(np.int8), scale


def run(q: Array, k: Array, v: Array, scales: Sequence[float], rows: Array, columns: Array) -> Array:
    """``softmax(q k^T / sqrt(d) where the mask is) v``, f64: q [heads, M, d], k, v [heads, N, d], integers.

    The mask keeps elements (row, column), in order of rows.  A row that it has none of is 0.
    """
    heads, m, d = q.shape
    out = np.zeros((heads, m, d))
    factor = scales[0] * scales[1] / np.sqrt(d)
    starts = np.searchsorted(rows, np.arange(m + 1))
    for head in range(heads):
        wide_k, wide_v = k[head].astype(np.float64), v[head].astype(np.float64)
        for row in np.flatnonzero(np.diff(starts)):
            seen = columns[starts[row] : starts[row + 1]]
            scores = wide_k[seen] @ q[head, row].astype(np.float64) * factor
            powers = np.exp(scores - scores.max())
            out[head, row] = powers @ wide_v[seen] / powers.sum() * scales[2]
    return out
