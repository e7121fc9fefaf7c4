"""The meaning of the op ``sddmm``: a dense product of integers, exact modulo 2^32, of which a pattern keeps some."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: Vectors that are worked out at a time.
MANY = 1 << 12


def run(a: Array, b: Array, rows: Array, columns: Array, height: int) -> Array:
    """The vectors of ``a @ b`` that begin at ``rows`` in ``columns``: int32 [vectors, height].

    a is [M, k], b [k, N], both integers; rows from M on are zero.
    """
    (m, k), vectors = a.shape, len(rows)
    full = np.zeros((-(-m // height) * height, k), np.int64)
    full[:m] = a
    turned = np.ascontiguousarray(b.T).astype(np.int64)
    out = np.empty((vectors, height), np.int32)
    for first in range(0, vectors, MANY):
        some = slice(first, first + MANY)
        of_a = full.reshape(-1, height, k)[rows[some] // height]
        # sums of 64 bits wrap modulo 2^64, and so do their low halves modulo 2^32
        out[some] = np.einsum("vhk,vk->vh", of_a, turned[columns[some]]).astype(np.uint32).view(np.int32)
    return out
