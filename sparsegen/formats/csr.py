"""Compressed sparse rows: of each row the columns that have elements, in ascending order, and their values.

- ``ptr`` int32 [M + 1]: the first entry of each row; at the end, all of them.
- ``idx`` int32: the column of each entry; ``values``: its value, explicit zeros included.

Any shape can be stored, one without rows or columns too.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cache
from typing import Any, Final

import numpy as np

from sparsegen.formats.axes import Compressed, Dense, Pointers, Stored, descents
from sparsegen.formats.blocks import Blocked
from sparsegen.formats.format import Format
from sparsegen.formats.library import Library
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import ArrayError, FormatError
from sparsegen.ir.types import DType, s32, s64, sum_type

MOST: Final = 2**31 - 1  #: entries, rows and columns


@cache
def csr(dtype: DType) -> Format:
    """The format for f64, f32, f16 or bf16."""
    columns = Compressed("slab", Stored("idx", s32), Pointers("ptr", s32))
    return Format("csr", dtype, Blocked.plain(1, 1), (Dense("strip"), columns, Dense("element")))


class OfRows(SparseMatrix):
    """A matrix that is made of sorted rows as they are, never by way of the dense matrix."""

    @classmethod
    @abstractmethod
    def of_rows(cls, spec: Format, rows: Csr) -> SparseMatrix:
        """The matrix of compressed sparse rows."""


class Csr(OfRows):
    """A matrix in compressed sparse rows."""

    @classmethod
    def of_rows(cls, spec: Format, rows: Csr) -> Csr:
        return rows

    @classmethod
    def of(cls, dtype: DType, lib: Library, shape: tuple[int, int], ptr: Any, idx: Any, values: Any) -> Csr:
        """The matrix of rows that are given, in arrays of a library, with pointers and columns of any integers; copied.

        ArrayError, with the place, for pointers and columns that say no such rows.
        """
        with lib.active():
            starts, columns = lib.cast(ptr, s64), lib.cast(idx, s64)
            check_rows(lib, shape, starts, columns, int(values.shape[0]))
            arrays = {
                "ptr": lib.cast(starts, s32),
                "idx": lib.cast(columns, s32),
                "values": lib.xp.concatenate([values]),
            }
            return cls(csr(dtype), shape, lib, arrays, int(columns.shape[0]))

    def to_scipy(self) -> Any:
        """A ``scipy.sparse.csr_array`` of float32 values, of f64 float64; explicit zeros stay entries."""
        import scipy.sparse

        ptr, idx, values = (np.array(array) for array in self.to_host().arrays.values())
        return scipy.sparse.csr_array((values.astype(sum_type(self.kind).numpy()), idx, ptr), shape=self.shape)


def check_rows(lib: Library, shape: tuple[int, int], ptr: Any, idx: Any, values: int, *, ascend: bool = True) -> None:
    """ArrayError for row pointers that do not fit, that decrease, or columns out of range; unsorted or repeated ones
    only if they must ``ascend``."""
    rows, cols = shape
    again = "build the matrix anew, as scipy.sparse.csr_array((values, (rows, columns)), shape=shape)"
    if max(rows, cols, int(idx.shape[0])) > MOST:
        raise FormatError(
            f"a matrix {rows}x{cols} with {idx.shape[0]} entries; csr counts up to {MOST} in 32 bits",
            hint="cut the matrix into pieces of fewer columns, and add up their products"
            if cols > MOST
            else "cut the matrix into pieces of fewer rows",
        )
    if tuple(ptr.shape) != (rows + 1,) or tuple(idx.shape) != (values,):
        raise ArrayError(
            f"{ptr.shape[0]} row pointers, {idx.shape[0]} columns and {values} values for {rows} rows", hint=again
        )
    if int(ptr[0]) != 0 or int(ptr[-1]) != values:
        raise ArrayError(
            f"the row pointers run from {int(ptr[0])} to {int(ptr[-1])}; they must run from 0 to the {values} entries",
            hint=again,
        )
    if (row := lib.first(ptr[1:] < ptr[:-1])) is not None:
        raise ArrayError(
            f"the row pointers decrease: row {row} begins at {int(ptr[row])}, the next one at {int(ptr[row + 1])}",
            hint=again,
        )

    def place(entry: int) -> str:
        return f"entry {entry} (row {int(lib.fibers(ptr, entry + 1)[entry])})"

    if (entry := lib.first((idx < 0) | (idx >= cols))) is not None:
        raise ArrayError(f"{place(entry)} has column {int(idx[entry])}, the matrix has {cols} columns", hint=again)
    if ascend and values and (entry := lib.first(descents(lib, ptr, idx))) is not None:
        before, after = int(idx[entry]), int(idx[entry + 1])
        what = "duplicate" if before == after else "unsorted"
        raise ArrayError(
            f"{what} columns: {place(entry + 1)} has column {after} behind column {before}",
            hint="W.sum_duplicates() sorts and adds up in scipy, W.to_sparse_coo().coalesce().to_sparse_csr() in torch",
        )
