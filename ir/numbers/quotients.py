"""Which quotients by a constant need no division."""

from __future__ import annotations

from typing import Final

#: Sizes of the divisor, least and most: beyond them its reciprocal or a remainder is not rounded as other numbers are.
SIZES: Final = (2.0**-64, 2.0**64)


def simple(divisor: float) -> bool:
    """Whether ``warp.quotient`` divides by it."""
    return SIZES[0] <= abs(divisor) <= SIZES[1]
