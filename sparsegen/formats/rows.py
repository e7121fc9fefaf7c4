"""Where a matrix has entries, row by row: of a dense array, or of a sparse matrix of SciPy, torch or CuPy."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from sparsegen.arrays import describe, detached
from sparsegen.formats.csr import Csr, check_rows
from sparsegen.formats.library import FLOATS, NUMPY, Library, library_of
from sparsegen.ir.errors import ArrayError
from sparsegen.ir.types import s64

#: How a broken matrix of SciPy is mended.
ANEW: Final = "build the matrix anew, as scipy.sparse.coo_array((values, (rows, columns)), shape=shape)"


def distinct(keys: Any) -> Any:
    """The whole numbers of an array of NumPy, ascending, each once.

    A hundred times as fast as ``np.unique``, which from NumPy 2.3 on hashes millions of them.
    """
    ordered = np.sort(keys)
    return ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]


@dataclass(frozen=True, eq=False)
class Rows:
    """A matrix's entries: those of row i are in the columns ``idx[ptr[i]:ptr[i + 1]]``; int64, in a library."""

    library: Library
    shape: tuple[int, int]
    ptr: Any
    idx: Any

    @staticmethod
    def of(matrix: Csr) -> Rows:
        """Those of a matrix in compressed sparse rows, where it is."""
        lib = matrix.library
        return Rows(lib, matrix.shape, *(lib.cast(matrix.arrays[name], s64) for name in ("ptr", "idx")))

    @property
    def nnz(self) -> int:
        """Entries; explicit zeros count."""
        return int(self.idx.shape[0])

    def of_entries(self) -> Any:
        """The row of each entry, int64."""
        return self.library.fibers(self.ptr, self.nnz)

    def to_host(self) -> Rows:
        """The same in NumPy."""
        if self.library is NUMPY:
            return self
        return Rows(NUMPY, self.shape, *(self.library.to_host(array, s64) for array in (self.ptr, self.idx)))


class Listed(NamedTuple):
    """A sparse matrix of a library in rows: its own arrays of pointers, columns and values."""

    shape: tuple[int, ...]
    ptr: Any
    idx: Any
    values: Any


def rows_of(w: Any) -> Rows:
    """The rows of a matrix [M, K]: a dense array of NumPy, torch or CuPy, or a sparse one of SciPy, torch or CuPy.

    An element of a dense array is an entry if any of its bits is set; of a sparse matrix all that are stored are.
    ArrayError, with the place, for columns that are unsorted, repeated or beyond the shape, and for what is no matrix.
    """
    scipy_sparse: Any = sys.modules.get("scipy.sparse")
    if scipy_sparse is not None and scipy_sparse.issparse(w):
        w = checked_scipy(w)
        w = w if w.format == "csr" else summed(w)
        return _checked(NUMPY, w.shape, w.indptr, w.indices)
    if (found := listed(w)) is not None:
        lib, _ = library_of(describe(detached(found.values)))
        return _checked(lib, found.shape, found.ptr, found.idx)
    view = describe(detached(w))
    layout = view.layout
    if layout.problem is not None or not (layout.dtype.name in FLOATS or layout.dtype.kind in "biu"):
        what = layout.problem[0] if layout.problem else f"of dtype {layout.dtype}"
        raise ArrayError(f"the matrix is {what}", hint="pass an array of real numbers or bools, or its pattern: w != 0")
    check_axes(layout.shape)
    lib, bits = library_of(view)
    with lib.active():
        kept = bits != 0
        ptr = lib.zeros((layout.shape[0] + 1,), "int64")
        ptr[1:] = lib.cumsum(kept.sum(-1))
        return Rows(lib, (layout.shape[0], layout.shape[1]), ptr, lib.columns(kept))


def _checked(lib: Library, shape: Any, ptr: Any, idx: Any) -> Rows:
    check_axes(shape)
    with lib.active():
        rows = Rows(lib, (int(shape[0]), int(shape[1])), lib.cast(ptr, s64), lib.cast(idx, s64))
        check_rows(lib, rows.shape, rows.ptr, rows.idx, rows.nnz)
        return rows


def check_axes(shape: Any, hint: str = "pass a matrix [M, K]: w.reshape(M, K)") -> None:
    """ArrayError for what has not two axes."""
    if len(shape) != 2:
        raise ArrayError(f"w has {len(shape)} axes (shape {tuple(shape)})", hint=hint)


# ------------------------------------------------------------------------------------------------------- torch and CuPy
def listed(w: Any) -> Listed | None:
    """The rows of a sparse matrix of torch (of any layout) or CuPy (of any format); None for anything else."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(w, torch.Tensor) and w.layout != torch.strided:
        check_axes(w.shape, "pass a matrix [M, K], no batch of them")
        w = w if w.layout == torch.sparse_csr else _torch_rows(torch, w)
        return Listed(tuple(w.shape), w.crow_indices(), w.col_indices(), w.values())
    cupy_sparse: Any = sys.modules.get("cupyx.scipy.sparse")
    if cupy_sparse is not None and cupy_sparse.issparse(w):
        if w.format != "csr":
            w = w.tocsr(copy=True)
            w.sum_duplicates()
        elif not w.has_sorted_indices:  # CuPy makes such rows of a dense array
            w = w.copy()
            w.sort_indices()
        return Listed(tuple(w.shape), w.indptr, w.indices, w.data)
    return None


def _torch_rows(torch: Any, w: Any) -> Any:
    """A sparse tensor of another layout by rows; ArrayError for one whose entries may come twice."""
    if w.layout == torch.sparse_coo and not w.is_coalesced():
        raise ArrayError(
            "w is a torch tensor of layout sparse_coo that is not coalesced: entries may come twice",
            hint="w.coalesce() adds up what comes twice, and sorts",
        )
    try:
        return w.to_sparse_csr()
    except (RuntimeError, NotImplementedError) as e:
        raise ArrayError(f"torch cannot convert w of layout {w.layout} to rows: {e}", hint="pass w.to_dense()") from e


# --------------------------------------------------------------------------------------------------------------- SciPy
def summed(w: Any, dtype: Any = None) -> Any:
    """A copy of a SciPy matrix as sorted rows, in which what comes twice is added up, in a dtype if one is given."""
    try:
        rows = checked_scipy(w if w.format == "csr" else w.tocoo())
        rows = (rows if dtype is None else rows.astype(dtype)).tocsr(copy=True)
        rows.sum_duplicates()
        return rows
    except Exception as error:  # whatever its arrays are
        raise ArrayError(f"scipy cannot convert w to rows: {error}", hint=ANEW) from error


def checked_scipy(w: Any) -> Any:
    """The matrix; ArrayError if its arrays were changed so that scipy's compiled code would read or write astray."""
    if not isinstance(w.shape, tuple) or not all(isinstance(n, (int, np.integer)) and n >= 0 for n in w.shape):
        raise ArrayError(f"w has the shape {w.shape!r}", hint=ANEW)
    check_axes(w.shape)
    for name in ("data", "indices", "indptr", "row", "col", "offsets"):
        a = getattr(w, name, None)
        if a is not None and w.format != "dok" and not (isinstance(a, np.ndarray) and (name == "data" or _integers(a))):
            raise ArrayError(f"w.{name} is no array of {'integers' if name != 'data' else 'values'}", hint=ANEW)
    if w.format in ("csr", "csc", "bsr"):
        blocks = w.format == "bsr" and w.data.ndim == 3
        size = tuple(n // max(1, b) for n, b in zip(w.shape, w.data.shape[1:] if blocks else (1, 1), strict=True))
        size = size[::-1] if w.format == "csc" else size
        entries = w.data.shape[0] if w.data.ndim == (3 if w.format == "bsr" else 1) else -1
        check_rows(NUMPY, size, w.indptr.astype(np.int64), w.indices.astype(np.int64), entries, ascend=False)
    elif w.format == "coo":
        for name, places, n in (("row", w.row, w.shape[0]), ("col", w.col, w.shape[1])):
            if places.shape != w.data.shape or ((places < 0) | (places >= n)).any():
                raise ArrayError(f"w.{name} does not name one of {n} for each value", hint=ANEW)
    elif w.format == "dia" and (w.data.ndim != 2 or w.offsets.shape != w.data.shape[:1]):
        raise ArrayError(f"w has {w.offsets.shape} offsets for diagonals {w.data.shape}", hint=ANEW)
    elif w.format == "lil" and not np.shape(w.data) == np.shape(w.rows) == w.shape[:1]:
        raise ArrayError(f"w has lists for {np.shape(w.data)} rows, not {w.shape[0]}", hint=ANEW)
    return w


def _integers(a: Any) -> bool:
    return a.ndim == 1 and a.dtype.kind in "iu"
