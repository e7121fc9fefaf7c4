"""Weights as a sum of separable terms (LoRAStencil, SC'24, section 3): ``w = sum over t of a_t b_t^T``.

The number of terms is the rank of the weights.  It is 1 for products of 1-D stencils (Gaussian blur, box filters), and
stays 1 when time steps of those are fused; 2 for a star, T + 1 for T fused steps of a star of radius 1; for weights
with no structure it is their edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

#: The residual that rounding may leave (an SVD of up to 25 x 25 weights leaves up to 40 epsilons).
ROUNDING = 128 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Terms:
    """``w ~ a.T @ b``: ``a`` of shape [rank, rows], ``b`` of shape [rank, columns], float64.

    ``residual``: sum|w - a.T @ b| / sum|w|, which bounds the error of an output over the largest input.
    """

    a: Any
    b: Any
    residual: float

    @property
    def rank(self) -> int:
        """How many terms there are."""
        return len(self.a)


def separate(weights: Any, most: int | None = None) -> Terms:
    """As few terms as leave a residual of ROUNDING, by SVD; at most ``most`` (the residual says so)."""
    w = np.asarray(weights, dtype=np.float64)
    u, s, vt = np.linalg.svd(w, full_matrices=False)
    a, b = (u * np.sqrt(s)).T, vt * np.sqrt(s)[:, None]
    scale = float(np.abs(w).sum()) or 1.0
    top = len(s) if most is None else min(most, len(s))
    rank, residual = 0, float("inf")
    while residual > ROUNDING and rank < top:
        rank += 1
        residual = float(np.abs(w - a[:rank].T @ b[:rank]).sum()) / scale
    return Terms(a[:rank], b[:rank], residual)
