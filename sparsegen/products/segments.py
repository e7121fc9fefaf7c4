"""Rows of a compressed matrix as segments of bounded length, in the order in which teams of lanes take them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.tile_ragged import RANK, RECORD
from sparsegen.ir.types import s32


class Segments(NamedTuple):
    """``records`` [count, 4] of int32: row, first entry, the one after the last, rank among the row's segments; the
    first ``cuts`` are pieces of rows that are cut, or of row ``m``, which only fill up."""

    records: npt.NDArray[np.int32]
    cuts: int


def segments_of(w: SparseMatrix, longest: int, warp: int, block: int) -> Segments:
    """``segments`` of a matrix in csr, worked out once and kept as long as the matrix lives."""
    shape = longest, warp, block
    return w.once(("segments", shape), lambda: segments(w.library.to_host(w.arrays["ptr"], s32), *shape))


def segments(ptr: npt.NDArray[Any], longest: int, warp: int, block: int) -> Segments:
    """Cuts the rows of more than ``longest`` entries into pieces as even as they come.

    ``ptr`` [m + 1] says where a row's entries begin.  Long segments come first, so that the last blocks have little
    left to do, and neighbours are of similar length (a class is twice as long as the next): the teams of a warp walk
    together.  The cut ones fill warps of ``warp`` teams, all of them blocks of ``block`` teams.
    """
    starts = np.asarray(ptr, dtype=np.int64)
    lengths = np.diff(starts)
    m = len(lengths)
    longest = max(longest, -(-int(lengths.max(initial=0)) // (RANK - 1)))  # a rank counts no more pieces
    long = np.flatnonzero(lengths > longest)
    pieces = -(-lengths[long] // longest)
    row = np.repeat(long, pieces)
    before = np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    of_row = np.repeat(pieces, pieces)
    begin = starts[row] + lengths[row] * before // of_row
    end = starts[row] + lengths[row] * (before + 1) // of_row
    cut = _filled(np.stack([row, begin, end, before + RANK * (of_row - 1 - before)], axis=1), m, warp)
    short = np.flatnonzero(lengths <= longest)
    _, octave = np.frexp(lengths[short].astype(np.float64))
    short = short[np.argsort(-octave, kind="stable")]
    whole = np.stack([short, starts[short], starts[short + 1], np.zeros_like(short)], axis=1)
    records = _filled(np.concatenate([cut, whole]), m, block)
    return Segments(records.astype(np.int32), len(cut))


def _filled(records: npt.NDArray[np.int64], row: int, teams: int) -> npt.NDArray[np.int64]:
    """The records, and empty ones of ``row`` up to a multiple of ``teams``."""
    extra = np.zeros((-len(records) % teams, RECORD), dtype=np.int64)
    extra[:, 0] = row
    return np.concatenate([records, extra])
