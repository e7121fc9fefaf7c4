"""``sparse``: a matrix in a sparse format, from a dense array or from scipy's sparse matrices."""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np

from sparsegen.arrays import describe
from sparsegen.callsite import user_loc
from sparsegen.formats.bitmap import Bitmap
from sparsegen.formats.library import NUMPY, library_of
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.tca_bme import TcaBme
from sparsegen.ir.errors import ArrayError, FormatError
from sparsegen.ir.types import DType, bf16, f16

FORMATS: Final[dict[str, type[SparseMatrix]]] = {c.format: c for c in (Bitmap, TcaBme)}
_KINDS: Final = {"f16": f16, "bf16": bf16}


def sparse(w: Any, format: str = "bitmap", *, dtype: str | None = None) -> SparseMatrix:
    """Encode a matrix [M, K] of f16 or bf16, where it is: NumPy, CuPy and torch arrays stay in their library.

    ``format``: ``"bitmap"`` (what kernels read), ``"tca_bme"`` (the paper's), or ``"auto"``: bitmap, and a product may
    take the dense matrix where the cost model has that as the faster one.

    ``w`` may be a ``scipy.sparse`` matrix too; scipy has no 16-bit numbers, so then ``dtype`` ("f16" or "bf16") must be
    given, and values are rounded to it. Otherwise nothing is ever converted.

    Raises ArrayError (what ``w`` is) or FormatError (an unknown format, a matrix that the format cannot hold).
    """
    from sparsegen.compiler import located  # which knows products, which know formats

    with located(user_loc()):
        made = _encoded(w, Bitmap.format if format == "auto" else format, dtype)
    made.auto = format == "auto"
    return made


def _encoded(w: Any, format: str, dtype: str | None) -> SparseMatrix:
    if not isinstance(format, str) or format not in FORMATS:
        raise FormatError(f"there is no sparse format {format!r}", hint=f"use one of {', '.join(FORMATS)}, or auto")
    kind = None if dtype is None else _KINDS.get(dtype)
    if dtype is not None and kind is None:
        raise FormatError(f"weights of dtype {dtype!r} cannot be encoded", hint="use 'f16' or 'bf16'")
    scipy_sparse: Any = sys.modules.get("scipy.sparse")
    if scipy_sparse is not None and scipy_sparse.issparse(w):
        bits, kind = _from_scipy(w, kind)
        return FORMATS[format].encode(NUMPY, bits, kind)
    view = describe(w)
    layout = view.layout
    if layout.problem is not None:
        raise ArrayError(f"w is {layout.problem[0]}", hint=layout.problem[1])
    found = next((k for k in _KINDS.values() if k.numpy() == layout.dtype), None)
    if found is None or (kind is not None and kind is not found):
        wanted = " or ".join(_KINDS) if kind is None else kind.name
        raise ArrayError(
            f"w has dtype {layout.dtype}, weights are encoded in {wanted}",
            hint="convert it: w.astype(np.float16), w.astype(ml_dtypes.bfloat16), w.half() or w.bfloat16() in torch; "
            "nothing is cast",
        )
    _check_shape(layout.shape)
    lib, bits = library_of(view)
    return FORMATS[format].encode(lib, bits, found)


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) != 2:
        raise ArrayError(f"w has {len(shape)} axes (shape {shape})", hint="pass a matrix [M, K]: w.reshape(M, K)")
    if 0 in shape:
        raise ArrayError(f"w has shape {shape}: no elements", hint="pass a matrix of at least one row and one column")


def _from_scipy(w: Any, kind: DType | None) -> tuple[Any, DType]:
    """The int16 bits of a scipy matrix as a dense one, and its type."""
    if kind is None:
        raise ArrayError(
            f"a scipy.sparse matrix of {w.dtype}: scipy has no 16-bit numbers", hint="say dtype='f16' or dtype='bf16'"
        )
    if w.dtype.kind != "f":
        raise ArrayError(f"a scipy.sparse matrix of dtype {w.dtype}", hint="convert it: w.astype('float32')")
    _check_shape(tuple(w.shape))
    rows = w.tocsr(copy=True)
    rows.sum_duplicates()
    with np.errstate(over="ignore", invalid="ignore"):
        values = rows.data.astype(kind.numpy())
    lost = np.isinf(values) & ~np.isinf(rows.data)
    if lost.any():
        raise FormatError(
            f"{rows.data[lost][0]} is too large for {kind.name}", hint="scale the weights, or use dtype='bf16'"
        )
    bits = np.zeros(w.shape, np.int16)
    bits[np.repeat(np.arange(w.shape[0]), np.diff(rows.indptr)), rows.indices] = values.view(np.int16)
    return bits, kind
