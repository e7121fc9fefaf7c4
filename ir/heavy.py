"""Which planes of weights of three axes are worth a product of matrices (ConvStencil, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence

#: Most doubles of weights that a lane keeps from tile to tile; those of several planes that are more are loaded anew,
#: plane by plane, and so are all where the points of small planes need the registers.
HELD = 32


def heavy(points: Sequence[int], places: int) -> tuple[bool, ...]:
    """For each plane of so many non-zero weights, in ``places`` places: whether tensor cores take it.

    A product costs the same whatever is zero, CUDA cores pay by the point; with half of the places filled both come to
    about the same (at an edge of 7: 52 multiply-adds an output at the rate of m16n8k4, against 25 points).  The first
    of the fullest planes is always a product.
    """
    fullest = list(points).index(max(points))
    return tuple(i == fullest or 2 * n > places for i, n in enumerate(points))
