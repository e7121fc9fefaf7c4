"""Adjacent cells of each lane handed on between lanes, so that a register's cells lie side by side in a warp."""

from __future__ import annotations

from collections.abc import Sequence

from ..expr import Expr, Value
from .context import Context


def side_by_side(cx: Context, values: Sequence[Value]) -> tuple[list[Value], list[Expr]]:
    """A warp's cells of a row, of which each lane has adjacent ones in ``values``, such that all lanes' cells of one
    register are adjacent; and which of the warp's cells a lane then has in each.

    Stores of them touch each sector once; those of a lane's own cells would touch all sectors for each.  The number of
    a cell has the lane's bits above those of the register: so many of the lane's highest bits change places with these,
    in exchanges between two lanes.
    """
    b, own, count = cx.b, list(values), len(values)
    share, bit = 32 // count, 1
    while bit < count:
        odd = b.let("odd", (cx.lane & (share * bit)).ne(0))
        for low in (i for i in range(count) if not i & bit):
            high = low + bit
            got = b.shfl("xor", b.select(odd, own[low], own[high]), share * bit)
            own[low], own[high] = b.select(odd, got, own[low]), b.select(odd, own[high], got)
        bit *= 2
    first = b.let("beside", cx.lane % share * count + cx.lane // share)
    return own, [first + 32 * i for i in range(count)]
