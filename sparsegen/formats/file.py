"""One file for one sparse matrix: versioned, checksummed, written whole or not at all.

``MAGIC``, version (4 bytes), length of the header (4), length of the file (8), all little-endian; the header, JSON:
what the matrix says of itself (see ``SparseMatrix.save``), and dtype and shape of each array; the arrays, one after
another, in C order, as unsigned words; the sha256 of all that (32 bytes).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from math import prod
from struct import Struct
from typing import Any, BinaryIO, Final, TypeVar

import numpy as np

from sparsegen import files
from sparsegen.ir.errors import FormatError

Made = TypeVar("Made")

MAGIC: Final = b"\x93SGW\r\n\x1a\n"  #: as PNG's: not ASCII, and broken by whoever translates line ends
VERSION: Final = 2  #: version 1: only 16-bit values, no options
_FIXED: Final = Struct("<8sIIQ")
_DIGEST: Final = 32
_PIECE: Final = 1 << 24


def write(path: str | os.PathLike[str], said: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write NumPy arrays, and what else there is to say in the header, as bits: their dtypes are the format's.

    It goes through a temporary file in the same folder, so that a reader never sees half of it.
    """
    packed = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    kinds = {name: [np.dtype(f"<u{array.itemsize}").str, array.shape] for name, array in packed.items()}
    header = json.dumps({**said, "arrays": kinds}).encode()
    total = _FIXED.size + len(header) + sum(a.nbytes for a in packed.values()) + _DIGEST
    digest = hashlib.sha256()

    def parts() -> Iterator[bytes | memoryview]:
        start: list[bytes | memoryview] = [_FIXED.pack(MAGIC, VERSION, len(header), total), header]
        for part in start + [array.reshape(-1).view(np.uint8).data for array in packed.values()]:
            digest.update(part)
            yield part
        yield digest.digest()

    files.write(path, parts(), FormatError)


def read(
    path: str | os.PathLike[str],
    made: Callable[[Mapping[str, Any], Mapping[str, Any]], Made],
    what: str = "sparse matrix",
    by: str = "W.save",
) -> Made:
    """What ``made`` makes of the header and of the arrays, flat unsigned words by name with their shapes' sizes.

    ``what``: what the file holds, and ``by`` what writes such files, for messages.

    FormatError for a foreign file, one of a newer version, a truncated or altered one, and where ``made`` raises.
    """
    try:
        opened = files.opened(files.path_of(path, FormatError))
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}", hint=f"pass a file that {by} wrote") from error
    with opened as file:
        header = _header(file, os.fspath(path), what, by)
        try:
            said = json.loads(header)
            return made(said, dict(_arrays(file, said["arrays"])))
        except _WRONG as e:  # its checksum is right: made by someone else
            raise FormatError(f"{os.fspath(path)} is no valid {what}: {e}", hint=_again(by)) from e


_WORDS: Final = ("|u1", "<u2", "<u4", "<u8")
#: What a header that is not ours makes Python raise, by its types, values, names or depth.
_WRONG: Final = (KeyError, TypeError, ValueError, AttributeError, RecursionError, FormatError)


def _again(by: str) -> str:
    return f"write the file again with {by}, or copy it again"


def _header(file: BinaryIO, name: str, what: str, by: str) -> bytes:
    """The header of a file whose checksum is right; the file then stands at the first array."""
    size = os.fstat(file.fileno()).st_size
    fixed = file.read(_FIXED.size)
    if not fixed.startswith(MAGIC[: max(1, len(fixed))]):
        raise FormatError(f"{name} is not a {what} of sparsegen", hint=f"pass a file that {by} wrote")
    if len(fixed) < _FIXED.size:
        raise FormatError(f"{name} is truncated: {size} bytes, not even a header", hint=_again(by))
    _, version, length, total = _FIXED.unpack(fixed)
    if version > VERSION:
        raise FormatError(
            f"{name} has file version {version}, this sparsegen reads up to {VERSION}", hint="update sparsegen"
        )
    if size < total:
        raise FormatError(f"{name} is truncated: {size} of {total} bytes", hint=_again(by))
    digest = hashlib.sha256(fixed)
    for piece in _pieces(file, size - _FIXED.size - _DIGEST):
        digest.update(piece)
    if size != total or not version or file.read(_DIGEST) != digest.digest():
        raise FormatError(f"{name} was altered: its checksum is wrong", hint=_again(by))
    file.seek(_FIXED.size)
    return file.read(length)


def _pieces(file: BinaryIO, count: int) -> Iterator[bytes]:
    while count > 0 and (piece := file.read(min(count, _PIECE))):
        count -= len(piece)
        yield piece


def _arrays(file: BinaryIO, kinds: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    left = os.fstat(file.fileno()).st_size - file.tell() - _DIGEST
    for name, (kind, shape) in kinds.items():
        if kind not in _WORDS or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"{name} has dtype {kind}, shape {shape}")
        nbytes = prod(shape) * np.dtype(kind).itemsize
        left -= nbytes
        if left < 0:  # before memory is taken for it
            raise ValueError(f"{name} is cut off")
        yield name, np.frombuffer(bytearray(file.read(nbytes)), kind).reshape(shape)
    if left:
        raise ValueError(f"{left} bytes belong to no array")
