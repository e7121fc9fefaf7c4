"""The op level of sparse products: a compressed matrix times dense columns."""

from __future__ import annotations

from typing import Final

from .checks import Context, check
from .node import Op, attr, define
from .types import DType

#: A tile of the bitmap format: 16 rows of a *strip* by 64 columns of a *slab*, four A fragments of m16n8k16.
STRIP: Final = 16
SLAB: Final = 64
#: Orders of x and y: rows one after the other, or columns (what a linear layer's [n, K] array is, seen as [K, n]).
ORDERS: Final = ("row", "column")
#: The formats of W, and how many bits its values may have.
BITS: Final = {"bitmap": (16,), "csr": (16, 32), "nm": (16, 32)}
#: Columns of a window of which some are kept (nm), at most.
MOST_WINDOW: Final = 64
ACTIVATIONS: Final = ("none", "relu", "gelu", "silu")


@define("op.spmm")
class Spmm(Op):
    """``y = activation(scale * (W @ x) + bias) + residual``, W [m, k] in a sparse ``format``, x [k, n], y [m, n].

    Sums are made in f32.  ``chunks``: 8-byte chunks of W's values in bitmap tiles, slack included; ``entries``: how
    many W has in a format that lists them (csr); ``pattern``: n, m and the rows and columns of a block, where n of
    every m are kept (nm).  ``x_order`` and ``y_order`` (of the residual too): :data:`ORDERS`; ``vec``: adjacent
    elements of x (in csr of y as well) that an access may take at once.  ``scale`` and ``bias`` have an element a row.
    """

    symbol: str = attr()
    m: int = attr()
    k: int = attr()
    n: int = attr()
    dtype: DType = attr()
    chunks: int = attr()
    x_order: str = attr(default="row")
    y_order: str = attr(default="row")
    vec: int = attr(default=1)
    bias: bool = attr(default=False)
    scale: bool = attr(default=False)
    residual: bool = attr(default=False)
    activation: str = attr(default="none")
    format: str = attr(default="bitmap")
    entries: int = attr(default=0)
    pattern: tuple[int, int, int, int] = attr(default=(0, 0, 0, 0))

    @property
    def strips(self) -> int:
        """Strips of 16 rows that cover W."""
        return -(-self.m // STRIP)

    @property
    def slabs(self) -> int:
        """Slabs of 64 columns that cover W."""
        return -(-self.k // SLAB)


@check(Spmm)
def _spmm(op: Spmm, ctx: Context) -> None:
    ctx.need(min(op.m, op.k, op.n) >= 1, f"a product of {op.m} x {op.k} by {op.k} x {op.n}")
    ctx.one_of(op.format, tuple(BITS), "format")
    bits = BITS.get(op.format, ())
    ctx.need(
        op.dtype.kind == "float" and op.dtype.bits in bits, f"{op.format} holds floats of {bits} bits, not {op.dtype}"
    )
    n, m, rows, cols = op.pattern
    ctx.need(op.format != "nm" or (1 <= n < m <= MOST_WINDOW and min(rows, cols) >= 1 and n % cols == m % cols == 0),
             f"a pattern that keeps {n} of every {m}, in blocks of {rows} x {cols}")  # fmt: skip
    ctx.one_of(op.x_order, ORDERS, "order of x")
    ctx.one_of(op.y_order, ORDERS, "order of y")
    ctx.one_of(op.activation, ACTIVATIONS, "activation")
    along = op.n if op.x_order == "row" else op.k
    ctx.need(op.vec in (1, 2, 4, 8) and along % op.vec == 0, f"vec={op.vec} elements at once, of runs of {along}")
