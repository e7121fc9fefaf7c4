"""``spmm``: a sparse product as the user describes it, and its size as the compiler sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, ClassVar, Final, Literal, NamedTuple

from sparsegen.arguments import positive
from sparsegen.callsite import located, user_loc
from sparsegen.cost.devices import DeviceProfile
from sparsegen.formats.bitmap import SLACK, Tiles, bitmap, values_of
from sparsegen.formats.matrix import KINDS, NAMES, SparseMatrix
from sparsegen.ir.errors import FormatError, ProductError
from sparsegen.ir.op_spmm import ACTIVATIONS, NARROW, OPERANDS, PANELS
from sparsegen.ir.types import ELEMENTS, DType, bf16, f16, f32, s32
from sparsegen.products.stack import Gated, Stack, together
from sparsegen.schedule import nearest
from sparsegen.sizes import MAX_CELLS

Activation = Literal["relu", "gelu", "silu"]
Precision = Literal["tf32"]
#: Strips that a warp may have: as many runs of them are measured (``BitmapNumbers.widest``).
MAX_ROWS: Final = 16


@dataclass(frozen=True)
class Epilogue:
    """What is done to the sums: ``activation(scale * sum + bias) + residual``; gelu in its tanh form."""

    bias: bool = False
    scale: bool = False
    residual: bool = False
    activation: Activation | None = None

    @property
    def operands(self) -> tuple[str, ...]:
        """The arrays that a call must be given besides x."""
        return tuple(name for name in ("bias", "scale", "residual") if getattr(self, name))

    @property
    def steps(self) -> int:
        """How many steps it has."""
        return len(self.operands) + (self.activation is not None)

    def of(self, gated: bool) -> str:
        """What becomes of W's sums, or those of a pair W, V, for people to read."""
        inner, other = (
            (f"scale * ({w} @ x)" if self.scale else f"{w} @ x") + " + bias" * self.bias for w in ("W", "V")
        )
        if self.activation:
            inner = f"{self.activation}({inner})"
        inner = f"{inner if self.activation else f'({inner})'} * ({other})" if gated else inner
        return inner + " + residual" * self.residual

    def __str__(self) -> str:
        return self.of(gated=False)


#: The types that a product of integers may have: exact sums, or floats.
RESULTS: Final[dict[str, DType]] = {"i32": s32, "f32": f32, "f16": f16, "bf16": bf16}
#: Those that its x may have.
INPUTS: Final = tuple(NAMES[kind] for kind in OPERANDS)


class Types(NamedTuple):
    """The types of x, of y and the residual, and of what has an element a row: scale and bias."""

    x: DType
    y: DType
    rows: DType


@dataclass(frozen=True)
class Product:
    """``y = activation(scale * (w @ x) + bias) + residual`` with x of ``n`` columns; made by :func:`sparsegen.spmm`.

    ``columns``: x and y come by columns, as a linear layer has them: what is chosen for; calls may bring any order.
    ``x_dtype`` and ``y_dtype``: beside integers and 8-bit floats; W's own where they are empty.  ``batch``: of so many
    x, which have the ``n`` columns between them; 0: x is one matrix.  ``precision``: that of tensor cores, for f32.
    ``stack``: of which matrices W is made, if of several.
    """

    w: SparseMatrix
    n: int
    epilogue: Epilogue = field(default_factory=Epilogue)
    columns: bool = False
    x_dtype: str = ""
    y_dtype: str = ""
    batch: int = 0
    precision: str = ""
    stack: Stack | None = None

    #: Axes of a grid: it has none.
    ndim: ClassVar[int] = 0

    #: What its kernels are called.
    name: ClassVar[str] = "spmm"

    @property
    def dtype(self) -> str:
        """The element type of W, and of x and y where these have none of their own."""
        return self.w.dtype

    @property
    def each(self) -> int:
        """Columns of an x of the batch, or of x."""
        return self.n // max(1, self.batch)

    def stacked(self, rows: int) -> tuple[int, ...]:
        """The shape of x or y, which has so many rows."""
        return (*(self.batch,) * (self.batch > 0), rows, self.each)

    @property
    def types(self) -> Types:
        """The types of all arrays of a call."""
        if not self.x_dtype:
            return Types(*[self.w.kind] * 3)
        return Types(KINDS[self.x_dtype], RESULTS[self.y_dtype], f32)

    @property
    def scaled(self) -> bool:
        """Whether sums are multiplied by a scale, of the call or of W."""
        return self.epilogue.scale or self.w.scale is not None

    @property
    def gated(self) -> bool:
        """Whether W is a pair of matrices whose products are multiplied with one another."""
        return self.stack is not None and self.stack.gated

    @property
    def experts(self) -> int:
        """Matrices, or pairs, with columns of their own; 0 where all have the same."""
        return self.stack.experts if self.stack else 0

    @property
    def m(self) -> int:
        """Rows of W that a column of x is multiplied by."""
        return self.w.shape[0] // max(1, self.experts)

    @property
    def rows(self) -> int:
        """Rows of y."""
        return self.stack.out if self.stack else self.w.shape[0]

    @property
    def vector(self) -> tuple[int, ...]:
        """The shape of bias and scale."""
        return self.stack.vector if self.stack else (self.rows,)

    @property
    def needs(self) -> frozenset[str]:
        """What a family must do besides products of one matrix."""
        return frozenset(["gated"] * self.gated + ["ragged"] * (self.experts > 0))

    @property
    def operand_bytes(self) -> int:
        """Bytes of bias, scale (W's, too) and residual, less those of rows of W that are not y's, of all columns."""
        e, of, n = self.epilogue, self.types, self.n
        missing = self.m - self.rows
        vectors = of.rows.nbytes * prod(self.vector) * (e.bias + self.scaled)
        return vectors + of.y.nbytes * n * (self.rows * e.residual - missing)

    def __str__(self) -> str:
        m, k = self.w.shape
        columns = f"n={self.each}" + (f", a batch of {self.batch}" if self.batch else "")
        columns += f", in {self.precision}" if self.precision else ""
        types = f", x {self.x_dtype}, y {self.y_dtype}" if self.x_dtype else ""
        made = f" of {self.stack}" if self.stack else ""
        what = f"W {m}x{k} {self.w.dtype}{made}{types}, {self.w.sparsity:.1%} zeros"
        return f"{replace(self.epilogue, scale=self.scaled).of(self.gated)}, {what}, {columns}"


def spmm(
    w: SparseMatrix | Gated | Sequence[SparseMatrix | Gated],
    n: int,
    bias: bool = False,
    scale: bool = False,
    residual: bool = False,
    activation: Activation | None = None,
    x_dtype: str | None = None,
    y_dtype: str | None = None,
    batch: int | None = None,
    precision: Precision | None = None,
    ragged: bool = False,
) -> Product:
    """The product of a sparse matrix W [M, K] with x [K, n]: ``y = activation(scale * (W @ x) + bias) + residual``.

    ``bias`` and ``scale`` (an element a row, [M]) and ``residual`` ([M, n]) say which arrays a call will be given;
    ``scale`` may also be one number, or an array of one element, which a call writes to [M] elements first.
    ``activation``: ``"relu"``, ``"gelu"`` (its tanh form) or ``"silu"``.  Sums and the epilogue are worked out in f32
    (of f64 in f64) and rounded once to W's dtype.

    Of several matrices, as ``sg.spmm([W_q, W_k, W_v], n)``, of one K, dtype and format, all multiply x in one launch: a
    call gives a tuple of their results, parts of one array [M, n], M all their rows, which may be given as ``out``.
    ``residual`` is such an array; ``bias`` and ``scale`` are a tuple of an array each, or one [M], which saves a copy.

    Of a pair, ``sg.spmm(sg.gated(W, V), n, activation="silu")``, the products of both are multiplied with one another
    where they were summed: see :func:`sparsegen.gated`.  ``bias`` and ``scale`` are two arrays [M], or one [2, M].

    With ``ragged``, ``sg.spmm([W_0, W_1, ...], n, ragged=True)``, matrices (or gated pairs) in bitmap are experts, each
    of which multiplies columns of its own, in one launch: x [K, n] has those of each in turn, y [M, n] as well.  A call
    says how many: ``k(x, counts=[...])``, of all experts n in sum; or, as a CUDA graph must, ``k(x, offsets=...)``, an
    int32 array of their sums, experts + 1, from 0 on, where x is.  Columns behind the last offset have no result.
    ``bias`` and ``scale`` are an array for each matrix, or one [experts, M] or [experts, 2, M].

    With ``batch``, for W in csr or hybrid, x is [batch, K, n], y and residual are [batch, M, n], in one launch for all
    of it: ``scale`` and ``bias`` are the same for each.  Matrices lie one behind the other, or side by side (as rows of
    an array [K, batch, n] or [batch, n, K] whose axes are permuted).

    Of W in f32 and hybrid tensor cores multiply dense tiles and x in two parts each, about as exactly as f32 is.  With
    ``precision="tf32"`` they round both to 10 bits of mantissa, which is faster: a relative error of 2^-10 of the
    terms.  Sums, and products of all other entries, are in f32 either way.

    A W of integers has an x of integers, ``x_dtype``: ``"i8"`` (the default), ``"u8"``, ``"i4"``, ``"u4"``, ``"i16"``
    or ``"u16"``, and a y of ``y_dtype``: ``"i32"`` (the default), exact modulo 2^32, or ``"f32"``, ``"f16"`` or
    ``"bf16"``, worked out in f32, with ``scale`` and ``bias`` in f32.  An x of 4 bits may hold an element a byte, or
    two (:func:`sparsegen.pack4`).

    A W of 8 bits in bitmap tiles (``"i8"``, ``"e4m3"``, ``"e5m2"``) has x and y in f16, ``scale`` and ``bias`` in f32;
    its elements are multiplied as f16, which hold them exactly.  A scale that W has of its own is applied by itself.
    ProductError for anything else.
    """
    with located(user_loc()):
        if not isinstance(ragged, bool):
            raise ProductError(f"ragged is {_kind(ragged)}, it must be True or False", hint="pass counts to the call")
        matrix, stack = together(w, ragged)
        count = positive(n, "n", ProductError)
        for name, flag in (("bias", bias), ("scale", scale), ("residual", residual)):
            if not isinstance(flag, bool):
                raise ProductError(
                    f"{name} is {_kind(flag)}, it must be True or False",
                    hint=f"write spmm(..., {name}=True), and pass the array to the call: k(x, {name}=...)",
                )
        known = [a for a in ACTIVATIONS if a != "none"]
        if activation is not None and not (isinstance(activation, str) and activation in known):
            raise ProductError(
                f"there is no activation {activation!r}",
                hint=f"{nearest(str(activation), known)}there are: {', '.join(known)}, and None",
            )
        if scale and matrix.scale is not None:
            raise ProductError(
                "scale=True, but W has a scale of its own, which is applied by itself",
                hint="leave it away; or encode W without, sg.sparse(w, scale=None), and pass all scales to the call",
            )
        kinds = _integers(matrix, x_dtype, y_dtype, Epilogue(bias, scale, residual, activation))
        many = 1 if batch is None else positive(batch, "batch", ProductError)
        if batch is not None and matrix.format not in PANELS:
            raise ProductError(
                f"a batch of x, but W is in {matrix.format}, whose kernels take one",
                hint=f"encode W in {' or '.join(PANELS)}, or pass all columns as one matrix [K, {many * count}]",
            )
        if precision is not None and (precision != "tf32" or (matrix.format, matrix.dtype) != ("hybrid", "f32")):
            raise ProductError(
                f"precision={precision!r} of W in {matrix.dtype}, {matrix.format}",
                hint='"tf32" is for f32 and format="hybrid", whose dense tiles go to tensor cores; else leave it away',
            )
        count *= many
        m, k = matrix.shape
        for what, rows in (("x", k), ("y", m)):
            if rows * count > MAX_CELLS:
                raise ProductError(
                    f"{what} has {rows} x {count} elements; indices are 32 bits wide, so {MAX_CELLS} is the most",
                    hint="take fewer columns at a time",
                )
        epilogue = Epilogue(bias, scale, residual, activation)
        return Product(matrix, count, epilogue, False, *kinds, batch=batch or 0, precision=precision or "", stack=stack)


def _integers(w: SparseMatrix, x: str | None, y: str | None, epilogue: Epilogue) -> tuple[str, str]:
    """The dtypes of x and y; ProductError for those that W does not go with."""
    if w.format == "bitmap" and w.kind in NARROW:
        for name, given in (("x_dtype", x), ("y_dtype", y)):
            if given not in (None, "f16"):
                raise ProductError(
                    f"{name}={given!r}, but W is {w.dtype} in bitmap tiles: x and y are f16",
                    hint="leave it away; for an x of integers encode W in vectors: sg.sparse(w, format='sr_bcrs')",
                )
        return "f16", "f16"
    if not w.kind.is_int:
        for name, given in (("x_dtype", x), ("y_dtype", y)):
            if given not in (None, w.dtype):
                raise ProductError(
                    f"{name}={given!r}, but W is {w.dtype}: x and y are as W is",
                    hint="leave it away; for integers quantize W: sg.sparse(sg.quantize(w).values, format='sr_bcrs')",
                )
        return "", ""
    for name, given, known in (("x_dtype", x, INPUTS), ("y_dtype", y, tuple(RESULTS))):
        if given is not None and given not in known:
            raise ProductError(
                f"{name}={given!r}, but W is {w.dtype}",
                hint=f"{nearest(str(given), known)}there are: {', '.join(known)}",
            )
    if y in (None, "i32") and str(epilogue) != "W @ x":
        raise ProductError(f"{epilogue} makes floats of sums, y is i32", hint="give y_dtype='f32', 'f16' or 'bf16'")
    return x or "i8", y or "i32"


def _kind(value: object) -> str:
    return repr(value) if isinstance(value, (int, float, str, type(None))) else f"a {type(value).__qualname__}"


class OfProduct:
    """Base of the numbers of a product: what they say alike in all formats."""

    m: int
    k: int
    n: int
    dtype: str
    nbytes: int

    @property
    def runs(self) -> tuple[tuple[int, ...], ...]:
        """Adjacent elements of x and y, for each order in which they may come: the better one is meant."""
        return (self.k, self.m), (self.n,)

    @property
    def item(self) -> int:
        """Bytes of an element of W."""
        return ELEMENTS[self.dtype].nbytes

    @property
    def touched(self) -> int:
        """Rows of x that are read, at most."""
        return self.k

    def looped(self, device: DeviceProfile, dense: bool = False) -> DeviceProfile:
        """The device to a product of floats that is called in a loop; ``dense``: a library's, of the dense matrix."""
        matrix = self.m * self.k * self.item if dense else self.nbytes
        return device.warm(matrix + (self.m + (self.k if dense else self.touched)) * self.n * self.item)


@dataclass(frozen=True)
class BitmapNumbers(OfProduct):
    """A product with W in bitmap tiles in numbers, as far as schedules and costs are concerned.

    ``nbytes``: of the stored arrays of W; ``chunks``: of eight bytes of its values, slack included; ``widest[r - 1]``:
    the most chunks of any r adjacent strips of a slab; ``operands``: bytes of bias, scale and residual, less those of
    rows that y has not; ``scaled``: W has a scale of its own.  ``experts``: of so many matrices, of ``m`` rows each; 0:
    W is one.  ``columns``: x and y come by columns, else by rows.
    """

    m: int
    k: int
    n: int
    dtype: str
    nbytes: int
    chunks: int
    widest: tuple[int, ...]
    operands: int
    scaled: bool = False
    experts: int = 0
    columns: bool = False

    @property
    def runs(self) -> tuple[tuple[int, ...], ...]:
        """Adjacent elements of x and y, in the order in which they come."""
        return ((self.k, self.m) if self.columns else (self.n,),)

    @property
    def busy(self) -> int:
        """Experts that have columns, were these spread evenly; 1 where W is one matrix."""
        return min(self.experts, self.n) or 1

    def tiles(self, cols: Any) -> Any:
        """Tiles of ``cols`` columns (an array of them, too), were columns spread evenly over experts."""
        return self.busy * -(-self.n // (self.busy * cols))

    @property
    def narrow(self) -> bool:
        """Whether elements of W have 8 bits."""
        return ELEMENTS[self.dtype] in NARROW

    @property
    def multiplied(self) -> str:
        """The type of x, in which elements of W are multiplied."""
        return f16.name if self.narrow else self.dtype

    @property
    def values(self) -> int:
        """Values of W that its chunks have room for."""
        return values_of(ELEMENTS[self.dtype]) * self.chunks

    @property
    def stored(self) -> dict[str, Any]:
        """What the op level says of W, and of types where W's is not that of all."""
        return {"chunks": self.chunks, **({"x_type": f16, "y_type": f16} if self.narrow else {})}

    @staticmethod
    def of(product: Product) -> BitmapNumbers:
        """The numbers of a product; FormatError for a matrix that no schedule reads."""
        w, n, spec = product.w, product.n, bitmap(product.w.kind)
        _, k = w.shape

        def measured() -> tuple[int, tuple[int, ...]]:
            tiles = Tiles.of(w)  # it reads the whole index, or all of W
            return tiles.chunks, tuple(tiles.widest(rows) for rows in range(1, MAX_ROWS + 1))

        chunks, widest = w.once("tiles", measured)
        words = max(2 * (chunks + SLACK), prod(spec.shapes(w.shape, 0)["masks"]))
        if words > MAX_CELLS:
            raise FormatError(
                f"W has an array of {words} words; indices are 32 bits wide, so {MAX_CELLS} is the most",
                hint="cut the matrix into pieces of fewer rows",
            )
        nbytes, own = spec.room(w.shape, values_of(w.kind) * chunks), w.scale is not None
        operands, experts = product.operand_bytes, product.experts
        return BitmapNumbers(
            product.m, k, n, w.kind.name, nbytes, chunks + SLACK, widest, operands, own, experts, product.columns
        )
