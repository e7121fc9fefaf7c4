"""A quotient by a number that is known when the kernel is made, without a division's branches."""

from __future__ import annotations

from .expr import Expr, Value
from .node import Op, attr, define, operand, result


@define("warp.quotient")
class Quotient(Op):
    """``a`` over ``by`` (a number of the type, of a size that ``numbers.quotients`` names), in f32 or f64.

    The product with the reciprocal, which its remainder then mends: rounded as a division is, but for numbers next to
    the middle of two (P. Markstein, IBM J. Res. Dev. 34(1), 1990) and those too small to have a remainder.  A
    division's branches, for numbers of any size, would cut a kernel where its instructions can overlap.
    """

    out: tuple[Value] = result()
    a: Expr = operand()
    by: float = attr()
