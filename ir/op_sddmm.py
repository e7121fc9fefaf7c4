"""The op level of sampled products: those elements of a product of two dense matrices that a pattern keeps."""

from __future__ import annotations

from typing import Final

from .checks import Context, check
from .node import Op, attr, define
from .op_spmm import ORDERS, Binds
from .types import DType, s4, s8, s16, u8

#: Rows of a vector.
HEIGHTS: Final = (2, 4, 8)
#: Elements of a and b, and the bytes of which rows and addresses may be multiples.
DTYPES: Final = (s4, s8, s16)
ALIGNED: Final = (1, 2, 4, 8, 16)


@define("op.sddmm")
class Sddmm(Op):
    """``C = a @ b`` where a pattern keeps it, a [m, k], b [k, n]; C has ``stored`` s32, exact modulo 2^32.

    The pattern is ``vectors`` vectors of ``height`` rows and one column.  Of s4 two lie in a byte, adjacent along k.
    C's vectors lie one after the other (``stride`` 0), or row by row in blocks of ``stride`` of them, each vector row
    filled up with zeros.  ``a_order`` and ``b_order``: :data:`ORDERS`; ``a_vec`` and ``b_vec``: bytes of which the
    address and the rows (of a column order columns) are multiples.  ``batch``: of so many a, b and C, packed one after
    another, which one pattern serves.  ``binds``: as of ``op.spmm``.
    """

    symbol: str = attr()
    m: int = attr()
    n: int = attr()
    k: int = attr()
    dtype: DType = attr()
    height: int = attr()
    vectors: int = attr()
    stored: int = attr()
    stride: int = attr(default=0)
    a_order: str = attr(default="row")
    b_order: str = attr(default="column")
    a_vec: int = attr(default=1)
    b_vec: int = attr(default=1)
    batch: int = attr(default=1)
    binds: Binds = attr(default=())

    @property
    def held(self) -> DType:
        """The type of the elements in memory."""
        return u8 if self.dtype is s4 else self.dtype

    @property
    def cols(self) -> int:
        """Such elements of a row of a."""
        return self.k * self.dtype.bits // self.held.bits


@check(Sddmm)
def _sddmm(op: Sddmm, ctx: Context) -> None:
    ctx.need(op.batch >= 1, f"a batch of {op.batch} products")
    ctx.need(min(op.m, op.n, op.k, op.vectors) >= 1, f"{op.vectors} vectors of {op.m} x {op.k} by {op.k} x {op.n}")
    ctx.one_of(op.dtype, DTYPES, "type of a and b")
    ctx.one_of(op.height, HEIGHTS, "rows of a vector")
    ctx.need(op.stored >= op.vectors * op.height and op.stored % (op.height * max(1, op.stride)) == 0,
             f"{op.stored} values are not those of {op.vectors} vectors of {op.height}")  # fmt: skip
    ctx.need(op.dtype is not s4 or op.k % 2 == 0, f"{op.k} numbers of 4 bits are no whole bytes")
    for name, order, vec, rows in (("a", op.a_order, op.a_vec, op.m), ("b", op.b_order, op.b_vec, op.n)):
        ctx.one_of(order, ORDERS, f"order of {name}")
        ctx.one_of(vec, ALIGNED, f"alignment of {name}")
        along = op.cols if (order == "row") == (name == "a") else rows
        ctx.need(along * op.held.nbytes % vec == 0, f"runs of {along} {op.held} are no multiple of {vec} bytes")
