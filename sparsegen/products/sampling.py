"""Patterns of sampled products: which vectors of the result are kept, from a mask or a sparse matrix."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from sparsegen.arrays import describe
from sparsegen.formats.bcrs import Bcrs, bcrs
from sparsegen.formats.library import NUMPY, Library, library_of
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.rows import checked_scipy, distinct
from sparsegen.formats.sr_bcrs import SrBcrs
from sparsegen.formats.vectors import HEIGHTS, INDICES, OfVectors, height_of
from sparsegen.ir.errors import ArrayError, ProductError
from sparsegen.ir.types import s8, s32


def vectors_of(pattern: Any, height: int | None) -> Bcrs:
    """The vectors that a pattern keeps, as a matrix of ones where the pattern is.

    ``height``: their rows; None for those of a matrix of vectors, or else the most of 8, 4 and 2 in which the pattern
    consists of whole vectors.  ArrayError or ProductError for what is no such pattern.
    """
    rows = None if height is None else height_of(height)
    if isinstance(pattern, OfVectors) and rows in (None, pattern.height):
        return _listed(pattern)
    if isinstance(pattern, SparseMatrix):
        with pattern.library.active():
            bits = pattern.library.view(pattern.to_dense(), pattern.spec.raw)
            return _dense(pattern.library, pattern.library.view(bits != 0, "int8"), rows)
    scipy_sparse: Any = sys.modules.get("scipy.sparse")
    if scipy_sparse is not None and scipy_sparse.issparse(pattern):
        return _scipy(checked_scipy(pattern), rows)
    view = describe(pattern)
    layout = view.layout
    if layout.problem is not None or layout.dtype.name != "bool" or len(layout.shape) != 2:
        what = layout.problem[0] if layout.problem else f"of dtype {layout.dtype} and shape {layout.shape}"
        raise ArrayError(
            f"pattern is {what}, not bool [M, N]", hint="pass a mask such as w != 0, a scipy.sparse matrix or sg.sparse"
        )
    if 0 in layout.shape:
        raise ArrayError(f"pattern has shape {layout.shape}: no elements", hint="pass a mask of at least one element")
    lib, bits = library_of(view)
    with lib.active():
        return _dense(lib, bits, rows)


def ones(lib: Library, shape: tuple[int, int], height: int, ptr: Any, idx: Any) -> Bcrs:
    """The matrix of ones of vectors that are listed: ``ptr`` int64 [vector rows + 1], ``idx`` int64 of each vector."""
    index = 32 if shape[1] > INDICES[16].range[1] else 16
    values = lib.zeros((int(idx.shape[0]), height), "int8") + 1
    last = int(ptr[-2])
    values[last:, shape[0] - (int(ptr.shape[0]) - 2) * height :] = 0  # rows beyond the matrix
    arrays = {
        "ptr": lib.cast(ptr, s32), "idx": lib.cast(idx, INDICES[index]), "values": lib.cast(values, s8).reshape(-1),
    }  # fmt: skip
    return Bcrs(bcrs(s8, height, index), shape, lib, arrays, int((arrays["values"] != 0).sum()))


def _listed(w: OfVectors) -> Bcrs:
    """The vectors of a matrix that lists them."""
    lib = w.library
    with lib.active():
        idx = lib.wide(w.arrays["idx"])
        if isinstance(w, SrBcrs):
            ptr = lib.zeros((w.strips + 1,), "int64")
            ends = lib.wide(lib.packed(w.arrays["ptr"].reshape(-1))).reshape(-1, 2)
            ptr[1:] = lib.cumsum(ends[:, 1] - ends[:, 0])
            idx = lib.pick(idx, idx != (1 << w.spec.sparse.own.dtype.bits) - 1)
        else:
            ptr = lib.wide(w.arrays["ptr"])
        return ones(lib, w.shape, w.height, ptr, idx)


def _dense(lib: Library, bits: Any, height: int | None) -> Bcrs:
    """The vectors of a mask, given as 0 and 1 in 8 bits."""
    (m, n), place, rows = (int(bits.shape[0]), int(bits.shape[1])), 0, 0
    for rows in HEIGHTS[::-1] if height is None else (height,):
        strips = -(-m // rows)
        full = lib.zeros((strips * rows, n), "int8")
        full[:m] = bits
        full[m:] = bits[-1]  # a short last vector is whole if it would be, were it to go on
        count = full.reshape(strips, rows, n).sum(1)
        found = lib.first(((count != 0) & (count != rows)).reshape(-1))
        if found is None:
            ptr = lib.zeros((strips + 1,), "int64")
            ptr[1:] = lib.cumsum((count != 0).sum(-1))
            return ones(lib, (m, n), rows, ptr, lib.columns(count != 0))
        place = found
    raise _torn(place // n, place % n, rows)


def _scipy(w: Any, height: int | None) -> Bcrs:
    """The vectors of the entries of a scipy matrix."""
    if 0 in w.shape:
        raise ArrayError(f"pattern has shape {w.shape}: no elements", hint="pass a matrix of at least one element")
    coo = w.tocoo()
    (m, n), rows, key = tuple(map(int, w.shape)), 0, 0
    row, column = coo.row.astype(np.int64), coo.col.astype(np.int64)
    entries = distinct(row * n + column)
    row, column = entries // n, entries % n
    for rows in HEIGHTS[::-1] if height is None else (height,):
        keys, counts = np.unique(row // rows * n + column, return_counts=True)
        torn = keys[counts != np.minimum(rows, m - keys // n * rows)]
        if not torn.size:
            ptr = np.searchsorted(keys // n, np.arange(-(-m // rows) + 1)).astype(np.int64)
            return ones(NUMPY, (m, n), rows, ptr, keys % n)
        key = int(torn[0])
    raise _torn(key // n, key % n, rows)


def _torn(strip: int, column: int, rows: int) -> ProductError:
    """The error for a pattern that is not made of whole vectors."""
    return ProductError(
        f"the pattern is not made of whole vectors of {rows} x 1: it keeps a part of rows {strip * rows} to "
        f"{strip * rows + rows - 1} of column {column}",
        hint="round it up to whole vectors: sg.pattern.vectors(mask, height=8)",
    )
