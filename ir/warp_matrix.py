"""8x8 matrices that the lanes of a warp hold in registers."""

from __future__ import annotations

from .expr import Expr, Value
from .node import Op, define, operand, result


@define("warp.movmatrix")
class MovMatrix(Op):
    """The transposed 8x8 matrix of 16-bit elements: lane l has elements 2 (l % 4), + 1 of row l / 4, before and after.

    A u32 has two elements; all 32 lanes take part (PTX ISA, "movmatrix").
    """

    out: tuple[Value] = result()
    a: Expr = operand()
