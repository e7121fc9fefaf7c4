"""Matrices that the lanes of a warp hold in registers: transposed, and multiplied where half of one is kept."""

from __future__ import annotations

from .expr import Expr, Value
from .node import Op, attr, define, operand, result
from .warp import Mma


@define("warp.movmatrix")
class MovMatrix(Op):
    """The transposed 8x8 matrix of 16-bit elements: lane l has elements 2 (l % 4), + 1 of row l / 4, before and after.

    A u32 has two elements; all 32 lanes take part (PTX ISA, "movmatrix").
    """

    out: tuple[Value] = result()
    a: Expr = operand()


@define("warp.mma_sp")
class MmaSp(Mma):
    """A :class:`sparsegen.ir.warp.Mma` of an a that keeps 2 of every 4 columns: of ``shape``, an entry of
    :data:`sparsegen.ir.fragments.SPARSE`, with the registers of what it keeps.

    Which columns are kept the lanes say by ``meta``, a u32 value of each, laid out as in :mod:`sparsegen.ir.metadata`;
    ``selector`` says which lanes.
    """

    meta: Expr = operand()
    selector: int = attr(one_of=(0, 1))
