"""What sampled products read of a pattern: tasks of warps, entries of their vectors, where these lie in the result.

A task is 8 rows of the result, a *group*, in a strip of columns.  Eight of its vectors are a phase, which ``ldmatrix``
reads at once; their columns lie in different banks if they differ modulo 8 (sparsegen/products/banks.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparsegen.formats.bcrs import Bcrs
from sparsegen.formats.library import NUMPY
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.kernels.vector_block import index_type
from sparsegen.ir.numbers.gathered import COLUMN_BITS
from sparsegen.ir.numbers.sampled import GROUP, PHASE, TILE, bits_of, entry_type, length, no_vector, tiles
from sparsegen.products.banks import slots
from sparsegen.products.sddmm import vector_rows
from sparsegen.products.tasks import deal

Ints = npt.NDArray[Any]


class _Vectors(NamedTuple):
    """The vectors of a pattern: of each its row, strip, column in the strip, and task (strip by strip)."""

    row: Ints
    strip: Ints
    column: Ints
    task: Ints
    strips: int
    groups: int


def _vectors(w: Bcrs, rows: int) -> _Vectors:
    columns, row = NUMPY.wide(w.arrays["idx"]), np.asarray(vector_rows(w))
    groups, strip = -(-w.shape[0] // GROUP), columns // rows
    task = strip * groups + row // (GROUP // w.height)
    return _Vectors(row, strip, columns % rows, task, -(-w.shape[1] // rows), groups)


def tasks(pattern: SparseMatrix, rows: int, groups: int, warps: int) -> Any:
    """Records of tasks, as ``tile.each_task`` reads them: lists of ``groups`` blocks a strip of ``rows`` columns.

    The steps of a task are its vectors, those that fill its last tile left out; the word of a record is the row of the
    warp's next task, or one that there is not.
    """
    w = _host(pattern)
    v = _vectors(w, rows)
    counts = np.bincount(v.task, minlength=v.strips * v.groups)
    begin = _begins(counts)
    most, made = length(v.groups, groups, warps), list[Ints]()
    for strip in range(v.strips):
        own = slice(strip * v.groups, (strip + 1) * v.groups)
        some = np.flatnonzero(counts[own])
        first = begin[own][some]
        dealt = deal(first, first + counts[own][some], some, groups, warps)
        dealt[..., 0] = np.append(some, v.groups)[dealt[..., 0]]
        lists = np.full((groups, most, warps, 4), v.groups, np.int32)
        lists[:, : dealt.shape[1]] = dealt[:, :most]
        lists[:, :-1, :, 3], lists[:, -1, :, 3] = lists[:, 1:, :, 0], v.groups
        made.append(lists)
    return _back(pattern, np.concatenate(made).reshape(-1))


def entries(pattern: SparseMatrix, rows: int) -> Any:
    """Of each task the entries of its vectors, by phases: column, place in the vector row's part of the strip, vector
    row of the group; where a phase is not full, the column of its first one and no vector."""
    w = _host(pattern)
    v = _vectors(w, rows)
    bits, starts = bits_of(rows), np.searchsorted(v.row * v.strips + v.strip, np.arange(w.strips * v.strips))
    place = np.arange(len(v.row)) - starts[v.row * v.strips + v.strip]
    entry = v.column | (place | v.row % (GROUP // w.height) << bits) << bits
    counts = np.bincount(v.task, minlength=v.strips * v.groups)
    phases = tiles(counts) * (TILE // PHASE)
    order = np.lexsort((v.column, v.task))
    made = np.full(int(phases.sum()) * PHASE, -1)
    made[slots(v.task[order], v.column[order], phases)] = entry[order]
    by_phase = made.reshape(-1, PHASE)
    first = np.maximum(by_phase[:, :1], 0) % rows
    none = np.broadcast_to(no_vector(rows, w.height, counts), counts.shape).repeat(phases)[:, None]
    full = np.where(by_phase < 0, first | none << bits, by_phase).reshape(-1)
    return _back(pattern, full.astype(entry_type(rows, w.height).numpy()))


def runs(pattern: SparseMatrix, most: int, warps: int) -> Any:
    """Records of tasks of no more than ``most`` tiles of a group and all columns, a task a warp."""
    w = _host(pattern)
    v = _vectors(w, w.shape[1])
    counts = np.bincount(v.task, minlength=v.groups)
    each, number = -(-tiles(counts) // most), tiles(counts)
    group = np.repeat(np.arange(v.groups), each)
    part = np.arange(len(group)) - np.repeat(np.cumsum(each) - each, each)
    # as even as whole tiles can be
    first, last = (number[group] * (part + i) // each[group] * TILE for i in (0, 1))
    begin = _begins(counts)[group]
    end = begin + np.minimum(last, counts[group])
    dealt = deal(begin + first, end, np.full(len(group), v.groups), -(-len(group) // warps), warps)
    dealt[..., 0] = np.append(group, v.groups)[dealt[..., 0]]
    return _back(pattern, dealt.reshape(-1))


def columns(pattern: SparseMatrix) -> Any:
    """The column of b of each vector, group by group in whole tiles, and above :data:`COLUMN_BITS` bits which vector
    row of the group; the last one fills a tile up."""
    w = _host(pattern)
    v = _vectors(w, w.shape[1])
    entry = v.column | v.row % (GROUP // w.height) << COLUMN_BITS
    at, _ = _filled_tiles(v, len(entry))
    return _back(pattern, entry[at].astype(np.int32))


def places(pattern: SparseMatrix, stride: int) -> Any:
    """The vector of the result that each of these is; one beyond the last one where a tile is filled up."""
    w = _host(pattern)
    v = _vectors(w, w.shape[1])
    begin, counts = _rows(w, stride)
    place = np.arange(len(v.row)) + (begin - (np.cumsum(counts) - counts))[v.row]
    at, missing = _filled_tiles(v, len(place))
    none = int(_filled(counts, stride).sum())
    return _back(pattern, np.where(missing, none, place[at]).astype(np.int32))


def _filled_tiles(v: _Vectors, count: int) -> tuple[Ints, Ints]:
    """Of each entry of whole tiles of the groups, the vector that it is, and whether it fills a tile up."""
    counts = np.bincount(v.task, minlength=v.groups)
    at = np.full(int(tiles(counts).sum()) * TILE, -1)
    at[_begins(counts)[v.task] + np.arange(count) - (np.cumsum(counts) - counts)[v.task]] = np.arange(count)
    return np.maximum.accumulate(at), at < 0


def starts(pattern: SparseMatrix, rows: int, stride: int) -> Any:
    """Of each vector row, whole groups of them, and each strip: the first vector there, counted as the result has them.

    ``stride``: vectors of a block of the result, which vector rows fill up; 0 for none.
    """
    w = _host(pattern)
    v = _vectors(w, rows)
    found = np.searchsorted(v.row * v.strips + v.strip, np.arange(w.strips * v.strips)).reshape(w.strips, v.strips)
    begin, counts = _rows(w, stride)
    found = found + (begin - (np.cumsum(counts) - counts))[:, None]
    made = np.zeros((v.groups * (GROUP // w.height), v.strips), np.int32)
    made[: w.strips] = found
    return _back(pattern, made.reshape(-1))


def _begins(counts: Ints) -> Ints:
    """The first entry of each task, of which each has whole tiles."""
    whole: Ints = tiles(counts) * TILE
    begins: Ints = np.cumsum(whole) - whole
    return begins


def _host(w: SparseMatrix) -> Bcrs:
    assert isinstance(w, Bcrs)
    return w.to_host()


def _back(w: SparseMatrix, made: Ints) -> Any:
    """An array where the pattern is; torch holds the same bits in signed integers."""
    lib = w.library
    if lib is NUMPY:
        return made
    with lib.active():
        return lib.constant(made.view(f"i{made.itemsize}") if lib.name == "torch" else made)


def pointers(pattern: SparseMatrix, stride: int) -> Any:
    """The first vector and the end of each vector row in a result of blocks of ``stride`` vectors."""
    w = _host(pattern)
    begin, counts = _rows(w, stride)
    return _back(pattern, np.stack([begin, begin + counts], 1).astype(np.int32).reshape(-1))


def filled_columns(pattern: SparseMatrix, stride: int) -> Any:
    """The column of each vector in blocks of ``stride`` vectors; the largest number of the type fills blocks up."""
    w = _host(pattern)
    begin, counts = _rows(w, stride)
    dtype = index_type(w.shape[1])
    made = np.full(max(stride, int(_filled(counts, stride).sum())), dtype.range[1], dtype.numpy())
    row = np.asarray(vector_rows(w))
    made[np.arange(len(row)) + (begin - (np.cumsum(counts) - counts))[row]] = NUMPY.wide(w.arrays["idx"])
    return _back(pattern, made)


def values_of(w: Bcrs, vectors: Ints, stride: int) -> Ints:
    """The values of a result, int32 flat, of its vectors [vectors, height] one after the other."""
    if not stride:
        return vectors.reshape(-1)
    begin, counts = _rows(w, stride)
    row = np.asarray(vector_rows(w))
    at = np.arange(len(row)) + (begin - (np.cumsum(counts) - counts))[row]
    made = np.zeros((_filled(counts, stride).sum() // stride, w.height, stride), np.int32)
    made[at // stride, :, at % stride] = vectors
    flat: Ints = made.reshape(-1)
    return flat


def _filled(counts: Ints, stride: int) -> Ints:
    """Vectors of whole blocks of ``stride``; as many as there are for none (0)."""
    found: Ints = -(-counts // stride) * stride if stride else counts
    return found


def _rows(w: Bcrs, stride: int) -> tuple[Ints, Ints]:
    """Of each vector row its first vector in a result of blocks, and its vectors."""
    counts = np.diff(np.asarray(w.spec.starts(NUMPY, w.arrays, 0, w.strips)))
    full = _filled(counts, stride)
    return np.cumsum(full) - full, counts
