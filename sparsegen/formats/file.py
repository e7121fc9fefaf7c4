"""One file for one sparse matrix: versioned, checksummed, written whole or not at all.

``MAGIC``, version (4 bytes), length of the header (4), length of the file (8), all little-endian; the header, JSON:
format, shape, dtype, nnz, auto, and dtype and shape of each array; the arrays, one after another, in C order; the
sha256 of all that (32 bytes).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, Final

import numpy as np

from sparsegen.formats.encode import FORMATS
from sparsegen.formats.library import NUMPY
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import FormatError
from sparsegen.ir.types import DTYPES

MAGIC: Final = b"\x93SGW\r\n\x1a\n"  #: as PNG's: not ASCII, and broken by whoever translates line ends
VERSION: Final = 1
_FIXED: Final = Struct("<8sIIQ")
_DIGEST: Final = 32
_PIECE: Final = 1 << 24


def write(matrix: SparseMatrix, path: str | os.PathLike[str]) -> None:
    """Write a matrix through a temporary file in the same folder, so that a reader never sees half of it."""
    host = matrix.to_host()
    arrays = {name: np.ascontiguousarray(array) for name, array in host.arrays.items()}
    header = json.dumps(
        {
            "format": host.format,
            "shape": host.shape,
            "dtype": host.dtype,
            "nnz": host.nnz,
            "auto": host.auto,
            "arrays": {name: [array.dtype.str, array.shape] for name, array in arrays.items()},
        }
    ).encode()
    total = _FIXED.size + len(header) + sum(a.nbytes for a in arrays.values()) + _DIGEST
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    digest = hashlib.sha256()
    try:
        with open(temporary, "xb") as file:
            parts: list[bytes | memoryview] = [_FIXED.pack(MAGIC, VERSION, len(header), total), header]
            for part in parts + [array.reshape(-1).view(np.uint8).data for array in arrays.values()]:
                file.write(part)
                digest.update(part)
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def load(path: str | os.PathLike[str]) -> SparseMatrix:
    """Read a matrix that ``W.save`` wrote, into NumPy arrays.

    FormatError for any other file: a foreign one, one of a newer version, a truncated or altered one.
    """
    with open(path, "rb") as file:
        header = _header(file, os.fspath(path))
        try:
            return _matrix(file, header)
        except (KeyError, TypeError, ValueError, FormatError) as e:  # its checksum is right: made by someone else
            raise FormatError(f"{os.fspath(path)} is no valid sparse matrix: {e}", hint=_AGAIN) from e


_AGAIN: Final = "write the file again with W.save, or copy it again"


def _header(file: BinaryIO, name: str) -> bytes:
    """The header of a file whose checksum is right; the file then stands at the first array."""
    size = os.fstat(file.fileno()).st_size
    fixed = file.read(_FIXED.size)
    if not fixed.startswith(MAGIC[: max(1, len(fixed))]):
        raise FormatError(f"{name} is not a sparse matrix of sparsegen", hint="pass a file that W.save wrote")
    if len(fixed) < _FIXED.size:
        raise FormatError(f"{name} is truncated: {size} bytes, not even a header", hint=_AGAIN)
    _, version, length, total = _FIXED.unpack(fixed)
    if version > VERSION:
        raise FormatError(
            f"{name} has file version {version}, this sparsegen reads up to {VERSION}", hint="update sparsegen"
        )
    if size < total:
        raise FormatError(f"{name} is truncated: {size} of {total} bytes", hint=_AGAIN)
    digest = hashlib.sha256(fixed)
    for piece in _pieces(file, size - _FIXED.size - _DIGEST):
        digest.update(piece)
    if size != total or version != VERSION or file.read(_DIGEST) != digest.digest():
        raise FormatError(f"{name} was altered: its checksum is wrong", hint=_AGAIN)
    file.seek(_FIXED.size)
    return file.read(length)


def _pieces(file: BinaryIO, count: int) -> Iterator[bytes]:
    while count > 0 and (piece := file.read(min(count, _PIECE))):
        count -= len(piece)
        yield piece


def _matrix(file: BinaryIO, header: bytes) -> SparseMatrix:
    """The matrix behind a header; ValueError, KeyError, TypeError or FormatError if the header or arrays are wrong."""
    said = json.loads(header)
    made = FORMATS[said["format"]]
    rows, cols = said["shape"]
    if said["dtype"] not in ("f16", "bf16") or not (0 < rows < 1 << 31 and 0 < cols < 1 << 31):
        raise ValueError(f"dtype {said['dtype']}, shape {said['shape']}")
    arrays: dict[str, Any] = {}
    for name in made.parts:
        kind, shape = said["arrays"][name]
        count = int(np.prod(shape, dtype=np.int64))
        flat = np.fromfile(file, np.dtype(kind), count)
        if flat.size != count:
            raise ValueError(f"{name} is cut off")
        arrays[name] = flat.reshape(shape)
    matrix = made((rows, cols), DTYPES[said["dtype"]], NUMPY, arrays, said["nnz"])
    matrix.auto = said["auto"] is True
    matrix.check()
    return matrix
