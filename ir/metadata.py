"""Which two of each four adjacent k a sparse product multiplies: where the 4 bits that say so lie, and what they mean.

Of 16 rows and 32 k, 8 fours a row, each four has a code: the place of its first kept element in the low two bits, that
of its second, further on, in the high ones.  A lane's word of 32 bits has 8 codes: of lane ``4 g + t`` the lowest four
are of row g and the others of row g + 8; those with t % 2 = 0 are of the first four fours, those with 1 of the others.
Lanes whose t // 2 is the instruction's selector give them; so a word of each lane serves two products.

Source: PTX ISA, "Sparse matrix storage" and the figures of mma.sp.m16n8k32 for 16-bit types; CUTLASS,
``ELayout_64x32`` in ``cute/atom/mma_traits_sm90_gmma_sparse.hpp``, whose four warps have 16 rows each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

#: Adjacent k of which so many are kept; k of a product, and those that are kept.
OF, KEEP = 4, 2
DENSE, KEPT = 32, 16
#: Rows of a warp, bits of a code, and products that a word serves.
ROWS, BITS, SELECTORS = 16, 4, 2
FOURS: Final = DENSE // OF


def words(codes: Any, transpose: Callable[[Any, tuple[int, ...]], Any] = np.transpose) -> Any:
    """The words of 32 lanes, int64 ``[n, 32]``, of codes ``[n, 16 rows, 16 fours]``: of selector 0, then of 1."""
    halves = codes.reshape(-1, 2, 8, SELECTORS, 2, FOURS // 2)  # row // 8, g, selector, t % 2, four
    lanes = transpose(halves, (0, 2, 3, 4, 1, 5)).reshape(-1, 32, FOURS)
    out = lanes[..., 0]
    for i in range(1, FOURS):
        out = out | (lanes[..., i] << BITS * i)
    return out


def codes(words: Any, selector: int) -> Any:
    """The codes ``[n, 16 rows, 8 fours]`` that the lanes of a selector give by their words ``[n, 32]``."""
    parts = words[..., None] >> BITS * np.arange(FOURS) & 15
    lanes = parts.reshape(-1, 8, SELECTORS, 2, 2, FOURS // 2)[:, :, selector]
    return lanes.transpose(0, 3, 1, 2, 4).reshape(-1, ROWS, FOURS)


def wrong(codes: Any) -> Any:
    """Which codes name no two places in ascending order."""
    return codes % OF >= codes // OF


def places(codes: Any) -> Any:
    """The k of each kept element, ``[..., 16]``, of codes ``[..., 8]``."""
    both = np.stack([codes % OF, codes // OF], -1) + OF * np.arange(FOURS)[:, None]
    return both.reshape(*codes.shape[:-1], KEPT)


def dense(kept: Any, codes: Any) -> Any:
    """Rows of 32 k, ``[..., 32]``, of their 16 kept elements and 8 codes: zero where nothing is kept."""
    out = np.zeros((*kept.shape[:-1], DENSE), kept.dtype)
    np.put_along_axis(out, places(codes), kept, -1)
    return out
