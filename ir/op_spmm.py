"""The op level of sparse products: a compressed matrix times dense columns."""

from __future__ import annotations

from typing import Final, TypeAlias

from .checks import Context, check
from .node import Op, attr, define
from .types import DType, e4m3, e5m2, f16, f32, s4, s8, s16, s32, sum_type, u4, u8, u16

#: A tile of the bitmap format: 16 rows of a *strip* by 64 columns of a *slab*, four A fragments of m16n8k16.
STRIP: Final = 16
SLAB: Final = 64
#: Orders of x and y: rows one after the other, or columns (what a linear layer's [n, K] array is, seen as [K, n]).
ORDERS: Final = ("row", "column")
#: The formats of W whose values are floats, and how many bits these may have; and those of vectors, which also hold
#: integers.
BITS: Final = {
    "bitmap": (16,), "tca_bme": (16,), "csr": (16, 32, 64), "nm": (16, 32), "hybrid": (16, 32), "blocked_ell": (16,),
    "sr_bcrs": (16,), "bcrs": (16,),
}  # fmt: skip
VECTORS: Final = ("sr_bcrs", "bcrs")
#: Elements of 8 bits that W has in bitmap tiles, beside an x and a y of f16.
NARROW: Final = (s8, e4m3, e5m2)
#: Formats of W whose kernels read and write columns in panels.
PANELS: Final = ("csr", "hybrid")
#: Formats of W that may hold several matrices [m, k].
SEVERAL: Final = ("bitmap",)
#: What x may hold beside integers.
OPERANDS: Final = (s4, u4, s8, u8, s16, u16)
#: A digit of an integer: how many bits it is shifted by, and its type.  Digits of 8 bits, or one of 4.
Digit: TypeAlias = tuple[int, DType]
#: What the roles of an op's launches are called, where one of several ops of a program has others: (role, name).
Binds: TypeAlias = tuple[tuple[str, str], ...]
#: Columns of a window of which some are kept (nm), at most.
MOST_WINDOW: Final = 64
ACTIVATIONS: Final = ("none", "relu", "gelu", "silu")


def strips(rows: int, gated: bool) -> int:
    """Strips of 16 rows that cover so many rows of a matrix, or of each of a gated pair."""
    return -(-rows // (STRIP // 2 if gated else STRIP))


@define("op.spmm")
class Spmm(Op):
    """``y = activation(scale * (W @ x) + bias) + residual``, W [m, k] in a sparse ``format``, x [k, n], y [m, n].

    ``chunks``: 8-byte chunks of W's values in bitmap tiles, slack included; ``entries``: how many W has in a format
    that lists them (csr; hybrid and blocked_ell: those outside of dense tiles), or vectors, or stored values (tca_bme);
    ``pattern``: n, m and the rows and columns of a block, where n of every m are kept (nm).  ``x_order`` and
    ``y_order`` (of the residual too): :data:`ORDERS`; ``vec``: adjacent elements of x (in csr of y as well) that an
    access may take at once.  ``scale`` and ``bias`` have an element a row.

    W, x and y have one type; sums of floats are made in f32, those of f64 in f64.  Integers have ``x_type`` and
    ``y_type`` of their own: sums are exact, or modulo 2^32 in a y of s32, else they and the epilogue are in f32, as
    ``scale`` and ``bias`` are.  x of 4 bits has two adjacent columns a byte.  ``w_digits`` and ``x_digits`` are what
    the pass ``decompose`` makes of vectors: of integers digits of 8 bits, or one of 4; ``height``: rows of W's vectors.

    Elements of 8 bits in bitmap tiles (:data:`NARROW`) have types beside them, too: they are multiplied as f16, which x
    and y are; sums, ``scale`` and ``bias`` are f32.

    Of a product of floats that is made in two the first leaves its sums as they are, in a y of their type (hybrid), and
    the second begins with such sums, row by row (``onto``, csr).

    ``x_panel`` and ``y_panel``: so many adjacent columns of x, or of y and the residual, lie together row by row, one
    such matrix behind the other (csr, hybrid); 0: all do.

    ``precision``: in which tensor cores multiply f32 (hybrid): "tf32" rounds to 10 bits of mantissa; empty: as exactly
    as f32 has it, in parts of tf32.

    ``batch``: of so many products, whose x, y, values and operands lie packed one after another, and whose W have one
    pattern.  ``binds``: what roles of its launches are called instead.

    ``gated``: ``y = activation(scale * (W @ x) + bias) * (scale * (V @ x) + bias) + residual`` of two matrices [m, k]
    in one (bitmap): of each strip of 16 rows the upper 8 are W's and the lower 8 the same rows of V, so that one lane
    has the sums of both.  ``scale`` and ``bias`` have those of V's rows behind those of W's.

    ``experts``: of so many matrices [m, k], or pairs, one below the other in whole strips (bitmap), each of which is
    multiplied by columns of its own: matrix e by those from offsets[e] on up to offsets[e + 1], an array of the call
    (s32, experts + 1).  ``scale`` and ``bias`` have those of each in turn.  0: W is one matrix.
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
    entries: int = attr(default=0, least=0)
    pattern: tuple[int, int, int, int] = attr(default=(0, 0, 0, 0))
    x_type: DType | None = attr(default=None)
    y_type: DType | None = attr(default=None)
    height: int = attr(default=0)
    x_panel: int = attr(default=0)
    y_panel: int = attr(default=0)
    precision: str = attr(default="")
    w_digits: tuple[Digit, ...] = attr(default=())
    x_digits: tuple[Digit, ...] = attr(default=())
    batch: int = attr(default=1)
    onto: bool = attr(default=False)
    binds: Binds = attr(default=())
    gated: bool = attr(default=False)
    experts: int = attr(default=0)

    @property
    def integers(self) -> bool:
        """Whether W and x are integers."""
        return self.multiplied.is_int

    @property
    def narrow(self) -> DType | None:
        """W's type, if its elements have 8 bits and x is of f16."""
        return self.dtype if self.format == "bitmap" and self.dtype in NARROW else None

    @property
    def multiplied(self) -> DType:
        """The type of x, in which elements of W are multiplied."""
        return self.x_type or self.dtype

    @property
    def x_stored(self) -> tuple[DType, int]:
        """The type of x's array and its elements a row: two of 4 bits lie in a byte."""
        kind = self.multiplied
        return (u8, -(-self.n // 2)) if kind.bits == 4 else (kind, self.n)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of x."""
        kind, n = self.x_stored
        return n * kind.nbytes

    @property
    def y_stored(self) -> DType:
        """The type of y, and of what is added to it."""
        return self.y_type or self.dtype

    @property
    def of_rows(self) -> DType:
        """The type of scale and bias."""
        return self.dtype if self.x_type is None else f32

    @property
    def sums(self) -> DType:
        """The type in which floats are multiplied and summed, and the epilogue is worked out."""
        return f32 if self.integers else sum_type(self.multiplied)

    @property
    def matrices(self) -> int:
        """Matrices [m, k] that W holds."""
        return max(1, self.experts) * (2 if self.gated else 1)

    @property
    def strips_each(self) -> int:
        """Strips of 16 rows that cover one of the experts, or W."""
        return strips(self.m, self.gated)

    @property
    def strips(self) -> int:
        """Strips of 16 rows that cover W."""
        return max(1, self.experts) * self.strips_each

    @property
    def slabs(self) -> int:
        """Slabs of 64 columns that cover W."""
        return -(-self.k // SLAB)


@check(Spmm)
def _spmm(op: Spmm, ctx: Context) -> None:
    ctx.need(min(op.m, op.k, op.n) >= 1, f"a product of {op.m} x {op.k} by {op.k} x {op.n}")
    ctx.need(op.batch >= 1, f"a batch of {op.batch} products")
    ctx.need(op.experts >= 0, f"{op.experts} experts")
    several = op.gated or op.experts > 0
    ctx.need(not several or op.format in SEVERAL, f"{op.format} holds no {op.matrices} matrices", "take bitmap")
    ctx.one_of(op.format, tuple(BITS), "format")
    if op.format in VECTORS:
        ctx.need(op.height in (2, 4, 8), f"vectors of {op.height} rows")
        ctx.need(bool(op.w_digits) == bool(op.x_digits), "W and x are decomposed, or neither")
    if op.format in VECTORS and op.integers:
        _integers(op, ctx)
    else:
        _floats(op, ctx)
    ctx.need(not op.onto or op.format == "csr", f"{op.format} begins with no sums that are there", "take csr")
    ctx.need(
        op.format != "tca_bme" or op.entries >= 1, f"{op.entries} values in nested tiles, whose array has one at least"
    )
    n, m, rows, cols = op.pattern
    ctx.need(op.format != "nm" or (1 <= n < m <= MOST_WINDOW and min(rows, cols) >= 1 and n % cols == m % cols == 0),
             f"a pattern that keeps {n} of every {m}, in blocks of {rows} x {cols}")  # fmt: skip
    ctx.one_of(op.x_order, ORDERS, "order of x")
    ctx.one_of(op.y_order, ORDERS, "order of y")
    ctx.one_of(op.activation, ACTIVATIONS, "activation")
    for panel, order in ((op.x_panel, op.x_order), (op.y_panel, op.y_order)):
        fits = panel >= 1 and op.n % panel == 0 and order == "row" and op.format in PANELS
        ctx.need(not panel or fits, f"panels of {panel} columns, of {op.n} by {order}s, in {op.format}")
    ctx.one_of(op.precision, ("", "tf32"), "precision")
    ctx.need(not op.precision or (op.format == "hybrid" and op.dtype is f32),
             f"{op.format} multiplies no {op.dtype} in {op.precision}", "take f32 in hybrid")  # fmt: skip
    along = (op.x_panel or op.x_stored[1]) if op.x_order == "row" else op.k
    ctx.need(op.vec in (1, 2, 4, 8, 16) and along % op.vec == 0, f"vec={op.vec} elements at once, of runs of {along}")


def _floats(op: Spmm, ctx: Context) -> None:
    """Types of floats, and of what is multiplied as such."""
    if op.format == "bitmap" and op.dtype in NARROW:
        ctx.need(op.x_type is f16 and op.y_type is f16, f"x is {op.x_type} and y {op.y_type} beside {op.dtype}",
                 "take f16 for both")  # fmt: skip
        return
    bits = BITS.get(op.format, ())
    floats = op.dtype.kind == "float" and op.dtype.bits in bits
    ctx.need(floats, f"{op.format} holds floats of {bits} bits, not {op.dtype}")
    left = op.y_type is op.sums and op.format == "hybrid"
    ctx.need(op.x_type is None and (op.y_type is None or left), f"x and y are {op.dtype}, as W is")


def _integers(op: Spmm, ctx: Context) -> None:
    """Types of integers."""
    ctx.need(op.dtype.bits in (4, 8, 12, 16), f"{op.format} holds integers, not {op.dtype}")
    ctx.need(op.x_type in OPERANDS, f"x is {op.x_type}", "an integer of 4, 8 or 16 bits")
    y = op.y_type
    ctx.need(y is not None and (y is s32 or (y.kind == "float" and y.bits in (16, 32))), f"y is {y}",
             "take s32, or a float of 16 or 32 bits")  # fmt: skip
    plain = not (op.scale or op.bias or op.residual) and op.activation == "none"
    ctx.need(y is not s32 or plain, "an epilogue makes floats of sums", "take y of floats")
