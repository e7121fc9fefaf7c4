"""What the tests of dense tiles and other entries share: matrices that have both, of any size."""

from __future__ import annotations

from typing import Any

import numpy as np

import sparsegen as sg
from tests.products_kit import DTYPES


def values(
    m: int, k: int, tile: int = 32, dtype: str = "f16", fill: float = 0.7, noise: float = 0.02, seed: int = 0,
    long: int = 0,
) -> Any:  # fmt: skip
    """Groups of about ``tile`` rows that touch the same few blocks of columns, shuffled, and noise everywhere; ``long``
    rows have entries in 0.4 of all columns."""
    rng = np.random.default_rng(seed)
    kept = rng.random((m, k)) < noise
    for first in range(0, m, tile - 3):
        for slab in rng.choice(-(-k // tile), min(3, -(-k // tile)), replace=False):
            own = kept[first : first + tile - 3, slab * tile : (slab + 1) * tile]
            own |= rng.random(own.shape) < fill
    kept[:long] |= rng.random((long, k)) < 0.4
    w = rng.uniform(-1, 1, (m, k)).astype(DTYPES[dtype])
    w[~kept[rng.permutation(m)]] = 0
    return w


def line(
    cols: int = 32, warps: str = "1x2", stages: int = 3, unroll: int = 2, high: int = 1, slices: int = 1,
    mma: str = "sync",
) -> str:  # fmt: skip
    """A schedule that leaves nothing to the cost model."""
    share = f"cols={cols} warps={warps} mma={mma} slices={slices}"
    return f"hybrid high={high} {share} stages={stages} unroll={unroll}"


def matrix(m: int, k: int, tile: int = 32, dtype: str = "f16", delta: float = 0.3, **how: Any) -> Any:
    """The same, encoded; ``method`` is that of the order, all else but ``format`` goes to :func:`values`."""
    method, format = how.pop("method", "bsa"), how.pop("format", "hybrid")
    return sg.sparse(values(m, k, tile, dtype, **how), format=format, tile=tile, delta=delta, method=method)
