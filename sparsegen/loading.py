"""``load_smtx`` and ``load_mtx``: matrices from the files of public collections, as what ``sparsegen.sparse`` takes."""

from __future__ import annotations

import os
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparsegen.arguments import one_of
from sparsegen.callsite import located, user_loc
from sparsegen.files import content, opened, path_of
from sparsegen.formats.library import NUMPY
from sparsegen.formats.rows import Rows
from sparsegen.ir.errors import FormatError

MOST: Final = 2**31 - 1  #: rows, columns and entries, as kernels count them in 32 bits
#: What may become of entries with the same row and column.
DUPLICATES: Final = ("refuse", "sum", "first")
_WHOLE: Final = "fetch or write the file again"
_LINES: Final = "an .smtx file has three lines: rows, columns, entries; where rows begin; the column of each entry"


def load_smtx(path: str | os.PathLike[str]) -> Any:
    """A pruned network's pattern from a file of the Deep Learning Matrix Collection (Gale et al., SC'20).

    Returns a ``scipy.sparse.csr_array`` [rows, columns] of float32 ones, as such files have no values: give it some by
    ``a.data[:] = ...``.  The columns of a row may come in any order in the file; they ascend in the matrix.

    Raises FormatError, with the line or the entry, for a file that is cut off, or holds what is no number, a column
    beyond the shape or a column twice; and where SciPy is not installed.
    """
    with located(user_loc()):
        sparse = _scipy("sparse")
        rows = read_smtx(path)
        ones = np.ones(rows.nnz, np.float32)
        made = sparse.csr_array((ones, rows.idx.astype(np.int32), rows.ptr), shape=rows.shape)
        made.sort_indices()
        return made


def load_mtx(path: str | os.PathLike[str], dtype: Any = np.float32, duplicates: str = "refuse") -> Any:
    """A matrix from a Matrix Market file, by SciPy's reader: a ``scipy.sparse.csr_array`` [rows, columns].

    ``dtype``: NumPy's dtype that values are rounded to.  The other half of a symmetric matrix is there; a file without
    values ("pattern") gives ones; entries that are 0 stay entries.  ``duplicates``: what becomes of entries with the
    same row and column: ``"refuse"``, ``"sum"``, or ``"first"``, for graphs whose files name an edge from both ends.

    Raises FormatError, with the line or the entry, for a file that is cut off, or holds what is no number, an entry
    beyond the shape or one twice, complex values, or a value too large for the dtype; and where SciPy is not installed.
    """
    with located(user_loc()):
        sparse, io = _scipy("sparse"), _scipy("io")
        name, kind = path_of(path, FormatError), _real(dtype)
        one_of(duplicates, DUPLICATES, "duplicates", FormatError)
        try:
            found = sparse.coo_array(io.mmread(_ended(name)))
        except FormatError:
            raise
        except OSError as e:
            raise FormatError(f"{name} cannot be read: {e.strerror or e}", hint="pass a Matrix Market file") from e
        except Exception as e:  # what SciPy's compiled reader raises; it names the line
            raise FormatError(f"{name} is no Matrix Market file: {e}", hint=_WHOLE) from e
        rows, cols = found.shape
        _check_size(f"{name}", rows, cols, found.nnz)
        if found.dtype.kind == "c":
            raise FormatError(
                f"{name} holds complex values", hint="read it by scipy.io.mmread, and encode .real and .imag"
            )
        row, col = found.row.astype(np.int64), found.col.astype(np.int64)
        if (again := _repeated(row * cols + col)).size:
            if duplicates == "refuse":
                raise FormatError(
                    f"{name} has two entries for row {row[again[0]] + 1}, column {col[again[0]] + 1}",
                    hint='load_mtx(path, duplicates="sum") adds them up, duplicates="first" keeps the first one',
                )
            if duplicates == "sum":
                found.sum_duplicates()
            else:
                kept = np.delete(np.arange(len(row)), again)
                found = sparse.coo_array((found.data[kept], (row[kept], col[kept])), shape=found.shape)
            row, col = found.row.astype(np.int64), found.col.astype(np.int64)
        with np.errstate(over="ignore", invalid="ignore"):
            values = found.data.astype(kind)
            lost = values != found.data if kind.kind in "iu" else np.isinf(values) & ~np.isinf(found.data)
        if (entry := _first(lost)) is not None:
            raise FormatError(
                f"{name}: the entry of row {row[entry] + 1}, column {col[entry] + 1} is {found.data[entry]}, "
                f"which {kind} does not hold",
                hint="name a wider one: load_mtx(path, dtype=np.float64)",
            )
        return sparse.csr_array((values, (row, col)), shape=found.shape)


def _ended(name: Path) -> Any:
    """What SciPy's reader is given: the path, or the text of a file whose last line has no end, with one.

    SciPy 1.17 reads on behind a last line without an end that holds anything after its last number, be it a space or
    the "e" of an exponent that was cut off, and crashes.  FormatError for a line that is cut off so.
    """
    packed = {".gz": "gzip", ".bz2": "bz2"}.get(name.suffix)  # what SciPy unpacks
    if packed is None:
        with opened(name) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            if file.read() in (b"", b"\n"):
                return name
    data = content(name) if packed is None else import_module(packed).decompress(content(name))
    last = data[data.rfind(b"\n") + 1 :].decode("utf-8", "replace")
    if not last.startswith("%") and not all(map(_is_number, last.split())):
        raise FormatError(
            f"{name}, line {data.count(10) + 1}: {last[:60]!r} is no line of numbers: is it cut off?", hint=_WHOLE
        )
    return BytesIO(data + b"\n")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def read_smtx(path: str | os.PathLike[str]) -> Rows:
    """The rows of an ``.smtx`` file in the order of the file; FormatError as ``load_smtx`` has it.  No SciPy needed."""
    name = path_of(path, FormatError)
    try:
        lines = content(name).decode("utf-8", "replace").splitlines()
    except OSError as e:
        raise FormatError(f"{name} cannot be read: {e.strerror}", hint="pass an .smtx file") from e
    head, ptr, idx = (_numbers(name, lines, at) for at in range(3))
    if len(head) != 3 or head.min() < 0:
        raise FormatError(f"{name}, line 1: {lines[0][:60]!r} is not rows, columns, entries", hint=_LINES)
    rows, cols, entries = (int(n) for n in head)
    _check_size(f"{name}, line 1", rows, cols, entries)
    for line, have, wanted in ((2, len(ptr), rows + 1), (3, len(idx), entries)):
        if have != wanted:
            raise FormatError(f"{name}, line {line} has {have} numbers, not {wanted}: is it cut off?", hint=_WHOLE)
    if ptr[0] != 0 or ptr[-1] != entries or (ptr[1:] < ptr[:-1]).any():
        raise FormatError(
            f"{name}, line 2: where rows begin does not ascend from 0 to {entries}: "
            f"it runs from {ptr[0]} to {ptr[-1]}{_descent(ptr)}",
            hint=_WHOLE,
        )
    row = np.repeat(np.arange(rows), np.diff(ptr))
    if (entry := _first((idx < 0) | (idx >= cols))) is not None:
        raise FormatError(
            f"{name}, line 3: entry {entry} (row {row[entry]}) has column {idx[entry]}, there are {cols}", hint=_WHOLE
        )
    for entry in _repeated(row * cols + idx)[:1]:
        raise FormatError(
            f"{name}, line 3: entry {entry} has row {row[entry]}, column {idx[entry]}, as an earlier one has",
            hint=_WHOLE,
        )
    return Rows(NUMPY, (rows, cols), ptr, idx)


def _numbers(name: Any, lines: list[str], at: int) -> Any:
    """The whole numbers of a line, int64."""
    if at >= len(lines):
        raise FormatError(f"{name} is cut off: it has {len(lines)} lines, not 3", hint=_LINES)
    words = lines[at].replace(",", " ").split()
    try:
        return np.array(words, np.int64)
    except (ValueError, OverflowError):
        place, word = next((place, word) for place, word in enumerate(words) if not _fits(word))
        raise FormatError(
            f"{name}, line {at + 1}: word {place} is {word[:60]!r}, no whole number of 64 bits", hint=_LINES
        ) from None


def _fits(word: str) -> bool:
    try:
        return -(2**63) <= int(word) < 2**63
    except ValueError:
        return False


def _descent(ptr: Any) -> str:
    row = _first(ptr[1:] < ptr[:-1])
    return "" if row is None else f", and row {row} begins at {ptr[row]}, the next one at {ptr[row + 1]}"


def _check_size(where: str, rows: int, cols: int, entries: int) -> None:
    if max(rows, cols, entries) > MOST:
        raise FormatError(
            f"{where}: {rows} rows, {cols} columns, {entries} entries; the most of each is {MOST}",
            hint="cut the matrix into pieces of fewer rows",
        )


def _first(mask: Any) -> int | None:
    """The first place where a mask is true; None if there is none."""
    return int(mask.argmax()) if mask.any() else None


def _repeated(keys: Any) -> Any:
    """The places, ascending, whose key an earlier place has."""
    order = np.argsort(keys, kind="stable")
    return np.sort(order[1:][keys[order[1:]] == keys[order[:-1]]])


def _real(dtype: Any) -> Any:
    """NumPy's dtype of real numbers that a user named."""
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype(object)
    if kind.kind not in "fiu":
        raise FormatError(f"dtype={dtype!r} is no dtype of real numbers", hint="such as np.float32 or np.float64")
    return kind


def _scipy(part: str) -> Any:
    try:
        return import_module(f"scipy.{part}")
    except ImportError as e:
        raise FormatError("SciPy is not installed; what is loaded is a matrix of it", hint="pip install scipy") from e
