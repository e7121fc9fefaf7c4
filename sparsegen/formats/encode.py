"""``sparse``: a matrix in a sparse format, from a dense array or a sparse one; ``load``: from a file.

``register`` adds a format.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from sparsegen.arrays import describe
from sparsegen.callsite import located, user_loc
from sparsegen.formats import file
from sparsegen.formats.axes import Compressed, Mask
from sparsegen.formats.bcrs import Bcrs, bcrs
from sparsegen.formats.bitmap import Bitmap, bitmap
from sparsegen.formats.csr import Csr, OfRows, csr
from sparsegen.formats.format import Format, held, outside
from sparsegen.formats.hybrid import Hybrid, blocked_ell, hybrid
from sparsegen.formats.library import NUMPY, Library, library_of
from sparsegen.formats.matrix import KINDS, NAMES, SparseMatrix, check_room
from sparsegen.formats.nm import Nm, nm
from sparsegen.formats.rows import Listed, check_axes, checked_scipy, listed, summed
from sparsegen.formats.scales import scale_of
from sparsegen.formats.sr_bcrs import SrBcrs, sr_bcrs
from sparsegen.formats.tca_bme import tca_bme
from sparsegen.ir.errors import ArrayError, FormatError
from sparsegen.ir.types import DType, f32
from sparsegen.schedule import nearest
from sparsegen.views import ArrayView


class LargerWarning(UserWarning):
    """A matrix takes more memory in its sparse format than it did dense."""


@dataclass(frozen=True)
class Maker:
    """``make(dtype, **options)``, its dtypes by their names for users, and the class of its matrices."""

    make: Callable[..., Format]
    dtypes: tuple[str, ...]
    matrix: type[SparseMatrix]

    def spec(self, dtype: str, options: dict[str, Any]) -> Format:
        """The format for a dtype, with options; FormatError for options that it does not have."""
        if not isinstance(dtype, str) or dtype not in self.dtypes:
            raise FormatError(
                f"elements of dtype {dtype!r} cannot be encoded", hint=f"use {' or '.join(map(repr, self.dtypes))}"
            )
        try:
            made = self.make(KINDS[dtype], **options)
        except TypeError as e:
            raise FormatError(f"options {options}: {e}", hint="leave them away, or name those of the format") from e
        return made if made.options else replace(made, options=tuple(options.items()))


FORMATS: Final[dict[str, Maker]] = {}


def register(
    name: str, make: Callable[..., Format], dtypes: tuple[str, ...], matrix: type[SparseMatrix] = SparseMatrix
) -> None:
    """Make ``sparse(w, format=name, **options)`` encode by ``make(dtype, **options)``.

    ``dtypes``: those of the elements that it takes, of "f64", "f32", "f16", "bf16", "e4m3", "e5m2", "i32", "i16",
    "i12", "i8", "i4", "u16", "u8" and "u4"; of those that are held alike the first one is taken where none is named.
    """
    FORMATS[name] = Maker(make, dtypes, matrix)


def found(name: Any) -> Maker:
    """The format of a name; FormatError if there is none."""
    if not isinstance(name, str) or name not in FORMATS:
        raise FormatError(
            f"there is no sparse format {name!r}",
            hint=f"{nearest(str(name), FORMATS)}use one of {', '.join(FORMATS)}, or auto",
        )
    return FORMATS[name]


register("bitmap", bitmap, ("f16", "bf16", "i8", "e4m3", "e5m2"), Bitmap)
register("tca_bme", tca_bme, ("f16", "bf16"))
register("csr", csr, ("f32", "f16", "bf16", "f64"), Csr)
register("hybrid", hybrid, ("f32", "f16", "bf16"), Hybrid)
register("blocked_ell", blocked_ell, ("f16", "bf16"), Hybrid)
register("nm", nm, ("f32", "f16", "bf16"), Nm)
_OF_VECTORS: Final = ("i8", "i16", "u8", "u16", "i4", "u4", "i12", "i32", "f16", "bf16")
register("sr_bcrs", sr_bcrs, _OF_VECTORS, SrBcrs)
register("bcrs", bcrs, _OF_VECTORS, Bcrs)


def sparse(
    w: Any, format: str = "bitmap", *, dtype: str | None = None, scale: Any = None,
    **options: float | str | tuple[int, int],
) -> SparseMatrix:  # fmt: skip
    """Encode a matrix [M, K], where it is: NumPy, CuPy and torch arrays stay in their library.

    ``format``: ``"bitmap"`` (f16, bf16; and for an x of f16 i8, e5m2 and e4m3, which is ``torch.float8_e4m3fn``),
    ``"tca_bme"`` (the paper's, f16, bf16), ``"csr"`` (also f32 and f64), ``"nm"`` and ``"hybrid"`` (also f32),
    ``"blocked_ell"`` (f16, bf16), ``"sr_bcrs"`` and ``"bcrs"`` (f16, bf16 and integers), or ``"auto"``: nm or sr_bcrs
    with the options of these; without any bitmap, or csr for f32, f64 and for what lists its entries.  Then a product
    may take the dense matrix, of nm in which nothing repeats (``vector`` 1, f16 or bf16) bitmap, and without options
    bitmap, csr, sr_bcrs or hybrid (of f32 hybrid alone), where the cost model has that as the faster one.

    ``options``: those of the format.  ``"nm"`` has ``n`` and ``m``: of every m consecutive columns (along K, the first
    m, the next m, ...) at most n hold elements, 1 <= n < m <= 64, by default 2 of 4; and ``vector``: so many adjacent
    rows share the columns that are kept (1 by default, up to 1024), or ``vector=(r, c)``: whole blocks r x c are kept,
    and c divides n and m, which count columns.  Rows and columns that do not fill the last group or window are fine.
    ``"sr_bcrs"`` has ``height``: vectors of 2, 4 or 8 rows and one column are kept whole if they hold an element (8 by
    default; rows that do not fill the last ones are fine); and ``stride``: as many vectors as lie row by row.
    ``"bcrs"``, in which the elements of a vector are adjacent, has ``height``.
    ``"hybrid"`` puts rows in the order of ``reorder(w, method, tile=tile, alpha=alpha)`` ("bsa", 32 and 0.3 by default)
    and keeps tiles of ``tile`` x ``tile`` that hold more than the share ``delta`` (0.3) of their elements as they are.
    ``alpha`` and ``delta`` may be ``"auto"``: those with which the cost model expects the soonest product with
    ``columns`` columns of x (128) on ``device``, as ``reorder`` has it; ``W.plan()`` says what it expects.
    ``"blocked_ell"`` has the same options, and the tiles as the paper has them, filled up to the longest block row.

    ``w`` may be a ``scipy.sparse`` matrix too; scipy has no 16-bit numbers, so then ``dtype`` ("f16", "bf16", "f32" for
    csr, nm and hybrid, or "f64" for csr) may be given, and values are rounded to it; integers of any width are taken if
    the dtype holds them.  Or a sparse matrix of CuPy, a sparse tensor of torch, or its semi-structured one, as
    ``to_dense()`` gives it.  Entries that come twice, or unsorted, are refused in rows that stay rows.  Otherwise
    nothing is ever converted; ``dtype="i4"`` takes int8 from -8 to 7, ``"u4"`` uint8 up to 15, ``"i12"`` int16 from
    -2048 to 2047, and ``"e4m3"`` and ``"e5m2"`` also uint8 that has their bits.

    ``scale``: of 8-bit elements in bitmap tiles, f32 [M] where ``w`` is, or one number, all positive: products multiply
    the sums of each row by it (``sg.quantize(w, rows=True)`` makes values and scale).  It is copied.

    Raises ArrayError (what ``w`` is) or FormatError (an unknown format or option, a matrix that the format cannot hold:
    for ``"nm"`` with the first row and window that break the pattern, which ``sparsegen.prune`` mends); a
    LargerWarning, with the share of zeros from which on the format saves memory, for a matrix that takes more in it.
    """
    with located(loc := user_loc()):
        auto = isinstance(format, str) and format == "auto"
        name = _chosen(w, dtype, options) if auto else format
        made = _encoded(w, found(name), dtype, options)
        if scale is not None:
            with made.library.active():
                made.scale = scale_of(made.spec, made.library, scale, made.shape[0])
    made.auto = auto
    if 0 not in made.shape and made.compression < 1 and made.spec.inner == 1:
        file, line = (loc.file, loc.line) if loc is not None else ("sparsegen", 1)
        warnings.warn_explicit(_larger(made), LargerWarning, file, line)
    return made


def _chosen(w: Any, dtype: str | None, options: dict[str, Any]) -> str:
    """The format that a matrix is kept in with ``format="auto"``: rows where it lists its entries, or is f32 or f64."""
    if options:
        return "sr_bcrs" if "height" in options else "nm"
    scipy_sparse: Any = sys.modules.get("scipy.sparse")
    if scipy_sparse is not None and scipy_sparse.issparse(w):
        return "csr"
    if dtype is not None:
        return "csr" if dtype in ("f32", "f64") else "bitmap"
    torch: Any = sys.modules.get("torch")
    semi_structured = getattr(getattr(torch, "sparse", None), "SparseSemiStructuredTensor", None)
    if semi_structured is not None and isinstance(w, semi_structured):
        return "bitmap"
    if listed(w) is not None:
        return "csr"
    return "csr" if describe(w).layout.dtype.name in ("float32", "float64") else "bitmap"


def _larger(w: SparseMatrix) -> str:
    """What is said of a matrix that takes more memory than dense."""
    even = _break_even(w)
    never = f"never with {dict(w.spec.options)}" if isinstance(w, Nm) else "never for a matrix this small"
    when = never if even is None else f"from {even:.0%} zeros on"
    return (
        f"W {w.shape[0]}x{w.shape[1]} {w.dtype} with {w.sparsity:.1%} zeros takes {w.nbytes:,} bytes in {w.format}, "
        f"{w.nbytes * w.compression:,.0f} dense: it saves memory {when}; prune more, or multiply by the dense matrix"
    )


def _break_even(w: SparseMatrix) -> float | None:
    """The share of zeros, to whole per cent, from which on the format is smaller than dense; None if it never is."""
    elements = w.shape[0] * w.shape[1]
    dense = elements * w.spec.width / 8
    shares = (percent / 100 for percent in range(101))
    return next((share for share in shares if w.spec.nbytes(w.shape, (1 - share) * elements) <= dense), None)


def _encoded(w: Any, maker: Maker, dtype: str | None, options: dict[str, Any]) -> SparseMatrix:
    if dtype is not None:
        maker.spec(dtype, options)
    scipy_sparse: Any = sys.modules.get("scipy.sparse")
    torch: Any = sys.modules.get("torch")
    semi_structured = getattr(getattr(torch, "sparse", None), "SparseSemiStructuredTensor", None)
    if semi_structured is not None and isinstance(w, semi_structured):
        w = w.to_dense()
    if scipy_sparse is not None and scipy_sparse.issparse(w):
        name, rows = _from_scipy(w, maker, dtype)
    elif (found := listed(w)) is not None:
        name, rows = _from_listed(found, maker, dtype)
    else:
        return _from_dense(w, maker, dtype, options)
    spec = maker.spec(name, options)
    _check_shape(rows.shape, spec)
    if issubclass(maker.matrix, OfRows):
        return maker.matrix.of_rows(spec, rows)
    check_room(rows.shape, spec.dtype)
    with rows.library.active():
        return _fitting(maker, spec, rows.library, rows.spec.decode(rows.library, rows.arrays, rows.shape))


def _dtype(have: Any, maker: Maker, dtype: str | None) -> str:
    """The name of the dtype of an array of NumPy's dtype ``have``; ArrayError if the format does not take it."""
    wanted = maker.dtypes if dtype is None else (dtype,)
    for name in wanted:
        if have == held(KINDS[name]).numpy() or (dtype in BITS_OF and have == np.dtype("u1")):
            return name
    raise ArrayError(f"w has dtype {have}, weights are encoded in {' or '.join(wanted)}", hint=_convert(wanted, have))


#: 8-bit floats, which uint8 arrays may hold the bits of, if they are named.
BITS_OF: Final = ("e4m3", "e5m2")
#: dtype of an array -> what makes one of it: in NumPy, in torch.
_CONVERSIONS: Final = {
    "f16": ("w.astype(np.float16)", "w.half()"), "bf16": ("w.astype(ml_dtypes.bfloat16)", "w.bfloat16()"),
    "f32": ("w.astype(np.float32)", "w.float()"), "f64": ("w.astype(np.float64)", "w.double()"),
    "i16": ("w.astype(np.int16)", "w.short()"),
    "i8": ("w.astype(np.int8)", "w.char()"), "u8": ("w.astype(np.uint8)", "w.byte()"),
    "e4m3": ("w.astype(ml_dtypes.float8_e4m3fn)", "w.to(torch.float8_e4m3fn)"),
    "e5m2": ("w.astype(ml_dtypes.float8_e5m2)", "w.to(torch.float8_e5m2)"),
    "u16": ("w.astype(np.uint16)", "w.to(torch.uint16)"), "i32": ("w.astype(np.int32)", "w.int()"),
}  # fmt: skip


def _convert(wanted: Sequence[str], have: Any = None) -> str:
    """How an array (of NumPy's dtype ``have``, if it has one) becomes one of the dtypes that are wanted."""
    if have is not None and "complex" in have.name:
        return "encode w.real and w.imag, converted, as two matrices: the product is linear"
    floats = have is not None and "float" in have.name
    integers = [name for name in wanted if KINDS[name].is_int]
    alike = [name for name in wanted if (name in integers) != floats and name not in BITS_OF] or wanted
    if floats and len(integers) == len(wanted):
        return _quantise("w", wanted[0])
    ways = [_CONVERSIONS[NAMES[held(KINDS[name])]] for name in alike]
    numpy, torch = (", ".join(dict.fromkeys(way[which] for way in ways)) for which in (0, 1))
    or_else = f"; or {_quantise('w', integers[0])}" if floats and integers else ""
    return f"convert it: {numpy}; in torch {torch}; nothing is cast{or_else}"


def _quantise(w: str, dtype: str) -> str:
    """How floats become integers of the bits of a dtype, always signed ones."""
    bits = KINDS[dtype].bits
    return f"quantise it first: q = sg.quantize({w}, bits={bits}), and encode q.values with dtype='i{bits}'"


def _usable(w: Any, wanted: Sequence[str]) -> ArrayView:
    view = describe(w)
    if view.layout.problem is not None:
        raise ArrayError(f"w is {view.layout.problem[0]}", hint=view.layout.problem[1] or _convert(wanted))
    return view


def _from_dense(w: Any, maker: Maker, dtype: str | None, options: dict[str, Any]) -> SparseMatrix:
    view = _usable(w, (dtype,) if dtype else maker.dtypes)
    spec = maker.spec(_dtype(view.layout.dtype, maker, dtype), options)
    check_axes(view.layout.shape)
    _check_shape(view.layout.shape, spec)
    lib, bits = library_of(view)
    with lib.active():
        return _fitting(maker, spec, lib, bits)


def _fitting(maker: Maker, spec: Format, lib: Library, bits: Any) -> SparseMatrix:
    """The matrix of a dense one's signed bits; ArrayError, with the first place, for elements that it cannot hold."""
    if (place := outside(lib, bits, spec.dtype)) is not None:
        row, col = divmod(place, int(bits.shape[1]))
        raise _too_large(row, col, int(lib.elements(lib.packed(bits[row]), held(spec.dtype))[col]), spec.dtype)
    return maker.matrix.encode(spec, lib, bits)


def _too_large(row: int, col: int, value: int, kind: DType) -> ArrayError:
    low, high = kind.range
    return ArrayError(
        f"w[{row}, {col}] is {value}, outside {low}..{high}, which is what {kind.bits} bits hold",
        hint=f"clip it, name a wider dtype, or quantise the weights it comes from: sg.quantize(w, bits={kind.bits})",
    )


def _check_shape(shape: tuple[int, ...], spec: Format) -> None:
    if 0 in shape and not (isinstance(spec.sparse, Compressed) and spec.inner == 1):
        raise ArrayError(
            f"w has shape {tuple(shape)}: no elements", hint="pass a matrix of at least one row and one column"
        )


def _from_scipy(w: Any, maker: Maker, dtype: str | None) -> tuple[str, Csr]:
    """The name of the dtype, and the rows of a scipy matrix, rounded to it, or integers as what holds them.

    CSR that is to stay CSR must be sorted, without duplicates.
    """
    rows = checked_scipy(w)
    if dtype is None:
        dtype = next((name for name in maker.dtypes if held(KINDS[name]).numpy() == w.dtype), None)
    wanted = (dtype,) if dtype else tuple(n for n in maker.dtypes if KINDS[n].is_int == (w.dtype.kind in "iub"))
    wanted = wanted or maker.dtypes
    integers = all(KINDS[name].is_int for name in wanted)
    if w.dtype.kind not in ("iu" if integers else "f") or not (w.dtype.kind == "f" or np.can_cast(w.dtype, np.int64)):
        named = f"dtype={wanted[0]!r}"
        wide = "int64" if integers else "float32"
        remedy = f"convert it: sg.sparse(w.astype({wide!r}), {named})"
        if integers and w.dtype.kind in "fc":
            part, also = ("w.real", ", and w.imag likewise") if w.dtype.kind == "c" else ("w", "")
            remedy = _quantise(f"{part}.toarray()", wanted[0]) + also
        elif w.dtype.kind == "c":
            remedy = f"encode its parts as two matrices: sg.sparse(w.real, {named}), sg.sparse(w.imag, {named})"
        raise ArrayError(f"a scipy.sparse matrix of dtype {w.dtype}", hint=remedy)
    if dtype is None:
        raise ArrayError(
            f"a scipy.sparse matrix of {w.dtype}, which is encoded in {' or '.join(wanted)}",
            hint=f"say {' or '.join(f'dtype={name!r}' for name in wanted)}: "
            + ("it must hold all values" if integers else "values are rounded to it")
            + (f"; or {_quantise('w.toarray()', maker.dtypes[0])}" if KINDS[maker.dtypes[0]].is_int > integers else ""),
        )
    if w.format != "csr" or not issubclass(maker.matrix, OfRows):
        rows = summed(w, np.int64 if integers else None)
    kind = KINDS[dtype]
    if integers:
        low, high = kind.range
        if (entry := NUMPY.first((rows.data < low) | (rows.data > high))) is not None:
            row = int(np.searchsorted(rows.indptr, entry, side="right")) - 1
            raise _too_large(row, int(rows.indices[entry]), int(rows.data[entry]), kind)
    with np.errstate(over="ignore", invalid="ignore"):
        values = rows.data.astype(held(kind).numpy())
    lost = ~np.isfinite(values) & np.isfinite(rows.data)  # of e4m3 a NaN
    if lost.any():
        raise FormatError(
            f"{rows.data[lost][0]} is too large for {dtype}", hint="scale the weights, or use dtype='bf16'"
        )
    return dtype, Csr.of(held(kind), NUMPY, tuple(rows.shape), rows.indptr, rows.indices, values)


def _from_listed(w: Listed, maker: Maker, dtype: str | None) -> tuple[str, Csr]:
    """The name of the dtype, and the rows of a sparse matrix of torch or CuPy in what holds that."""
    view = _usable(w.values, maker.dtypes)
    name = _dtype(view.layout.dtype, maker, dtype)
    lib, _ = library_of(view)
    check_axes(w.shape)
    return name, Csr.of(held(KINDS[name]), lib, (w.shape[0], w.shape[1]), w.ptr, w.idx, w.values)


def restored(name: str, dtype: str, options: dict[str, Any], said: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """The matrix that was pickled, in arrays of the library that they are of; FormatError if they contradict it."""
    maker = found(name)
    lib, _ = library_of(describe(next(iter(arrays.values()))))
    matrix = maker.matrix(maker.spec(dtype, options), said["shape"], lib, arrays, said["nnz"])
    matrix.auto, matrix.scale = said["auto"], said["scale"]
    matrix.check()
    return matrix


def load(path: str | os.PathLike[str]) -> SparseMatrix:
    """Read a matrix that ``W.save`` wrote, into NumPy arrays.

    FormatError for any other file: a foreign one, one of a newer version, a truncated or altered one.
    """
    return file.read(path, _read)


def _read(said: Mapping[str, Any], arrays: Mapping[str, Any]) -> SparseMatrix:
    """The matrix of a file's header and arrays; ValueError and the like if they are wrong."""
    maker = found(said["format"])
    spec = maker.spec(said["dtype"], dict(said.get("options", {})))
    rows, cols = said["shape"]
    if any(type(n) is not int for n in (rows, cols, said["nnz"])) or not (0 <= rows < 1 << 31 and 0 <= cols < 1 << 31):
        raise ValueError(f"shape {said['shape']}, nnz {said['nnz']}")
    _check_shape((rows, cols), spec)
    for stored in spec.stored:
        if arrays[stored.name].itemsize != stored.dtype.nbytes:
            raise ValueError(f"{stored.name} has dtype {arrays[stored.name].dtype}, not {stored.dtype.numpy()}")
    typed = {s.name: NUMPY.view(arrays[s.name], s.dtype) for s in spec.stored}
    if isinstance(spec.sparse, Mask):  # in files of version 1 the words of tca_bme were flat
        name = spec.sparse.own.name
        if typed[name].ndim == 1:
            typed[name] = typed[name].reshape(spec.shapes((rows, cols), 0)[name])
    matrix = maker.matrix(spec, (rows, cols), NUMPY, typed, said["nnz"])
    matrix.auto = said["auto"] is True
    if "scale" in arrays:
        try:
            matrix.scale = scale_of(spec, NUMPY, NUMPY.view(arrays["scale"], f32), rows)
        except ArrayError as e:
            raise ValueError(e.message) from e
    matrix.check()
    return matrix
