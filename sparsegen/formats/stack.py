"""Matrices of one format as one matrix of that format, where they are: one below the other, or rows of two in turn.

Compressed rows and bitmap tiles are joined as they are stored; all else is decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparsegen.formats.bitmap import Bitmap
from sparsegen.formats.csr import Csr
from sparsegen.formats.library import Library
from sparsegen.formats.matrix import SparseMatrix, check_room
from sparsegen.ir.errors import FormatError
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.op_spmm import STRIP
from sparsegen.ir.types import u32

#: Rows of each matrix of a pair in a strip.
HALF = STRIP // 2


def stacked(parts: Sequence[SparseMatrix]) -> SparseMatrix:
    """The matrix [M, K] of several [M_i, K] in turn; all have one format, with its options, and one library.

    FormatError on the host where a dense matrix is made on the way, and memory is too small for it.
    """
    first = parts[0]
    lib, tile = first.library, first.spec.blocks.rows
    with lib.active():
        if isinstance(first, Csr):
            made = _rows(parts)
        elif isinstance(first, Bitmap) and all(w.shape[0] % tile == 0 for w in parts[:-1]):
            made = _tiles(parts)
        else:
            made = _again(parts)
    made.auto = all(w.auto for w in parts)
    return made


def whole_strips(parts: Sequence[SparseMatrix]) -> SparseMatrix:
    """The matrix of several in bitmap tiles in turn, each filled with rows of zeros up to a whole strip."""
    with parts[0].library.active():
        made = _tiles(parts)
    return type(made)(made.spec, (up(made.shape[0], STRIP), made.shape[1]), made.library, made.arrays, made.nnz)


def _joined(parts: Sequence[SparseMatrix], arrays: dict[str, Any]) -> SparseMatrix:
    """The matrix of joined arrays: where blocks do not cut them, each but the last has whole ones."""
    first = parts[0]
    rows = sum(up(w.shape[0], w.spec.blocks.rows) for w in parts[:-1]) + parts[-1].shape[0]
    return type(first)(first.spec, (rows, first.shape[1]), first.library, arrays, sum(w.nnz for w in parts))


def _rows(parts: Sequence[SparseMatrix]) -> SparseMatrix:
    """Compressed rows: the pointers go on where those of the matrix before end."""
    first = parts[0]
    lib, cat = first.library, first.library.xp.concatenate
    pointers, entries = [lib.wide(first.arrays["ptr"][:1])], 0
    for w in parts:
        pointers.append(lib.wide(w.arrays["ptr"][1:]) + entries)
        entries += int(w.arrays["ptr"][-1])
    arrays = {name: cat([w.arrays[name] for w in parts]) for name in ("idx", "values")}
    return _joined(parts, {"ptr": lib.cast(cat(pointers), first.spec.stored[0].dtype), **arrays})


def _tiles(parts: Sequence[SparseMatrix]) -> SparseMatrix:
    """Bitmap tiles: a slab has those of each matrix in turn."""
    first = parts[0]
    lib, cat = first.library, first.library.xp.concatenate
    _, slabs = first.spec.blocks.grid(first.shape)
    indices = [lib.wide(w.arrays["index"]) for w in parts]
    starts = [_slabs(lib, index, slabs) for index in indices]
    at, index, values = 0, [], []
    for slab in range(slabs):
        for w, own, start in zip(parts, indices, starts, strict=True):
            each, (begin, end) = (len(own) - 1) // slabs, start[slab : slab + 2]
            index.append(own[slab * each : (slab + 1) * each] + (at - begin))
            values.append(w.arrays["values"][begin // 8 : end // 8])
            at += end - begin
    if at >= 1 << 32:
        raise FormatError(
            f"their values take {at} bytes together; the index has 32 bits",
            hint="make a product of fewer matrices each",
        )
    index.append(indices[-1][-1:] + (at - starts[-1][-1]))
    values.append(parts[-1].arrays["values"][starts[-1][-1] // 8 :])  # the zeros behind all of them
    masks = cat([w.arrays["masks"] for w in parts], 1)
    return _joined(parts, {"index": lib.cast(cat(index), u32), "masks": masks, "values": cat(values)})


def _slabs(lib: Library, index: Any, slabs: int) -> list[int]:
    """Where the values of each slab begin, and those of the last one end, in bytes of two-byte values: on the host."""
    each = (len(index) - 1) // slabs
    found: list[int] = index[::each, 0].tolist()
    return found


def _again(parts: Sequence[SparseMatrix]) -> SparseMatrix:
    """By way of a dense matrix."""
    bits, at = _dense(parts[0], sum(w.shape[0] for w in parts)), 0
    for w in parts:
        bits[at : at + w.shape[0]] = w.library.view(w.to_dense(), w.spec.raw)
        at += w.shape[0]
    return parts[0].encode(parts[0].spec, parts[0].library, bits)


def _dense(like: SparseMatrix, rows: int) -> Any:
    """The bits of a dense matrix of zeros with so many rows."""
    if like.library.where == "cpu":
        check_room((rows, like.shape[1]), like.kind)
    return like.library.zeros((rows, like.shape[1]), like.spec.raw)


def interleaved(upper: SparseMatrix, lower: SparseMatrix) -> SparseMatrix:
    """Two matrices [m, K] in one: of each strip of 16 rows the upper 8 are the one's, the lower 8 the other's.

    The last strip's halves are filled with zeros.
    """
    lib, (m, k) = upper.library, upper.shape
    with lib.active():
        bits = _dense(upper, -(-m // HALF) * STRIP)
        pairs = bits.reshape(-1, 2, HALF, k)
        for half, w in enumerate((upper, lower)):
            own, whole = lib.view(w.to_dense(), w.spec.raw), m // HALF
            pairs[:whole, half] = own[: whole * HALF].reshape(whole, HALF, k)
            pairs[whole:, half, : m % HALF] = own[whole * HALF :]
        return upper.encode(upper.spec, lib, bits)


def halves(dense: Any, m: int) -> tuple[Any, Any]:
    """The two matrices [m, K] of which a dense one is interleaved."""
    pairs = dense.reshape(-1, 2, HALF, dense.shape[1])
    upper, lower = (pairs[:, half].reshape(-1, dense.shape[1])[:m] for half in (0, 1))
    return upper, lower
