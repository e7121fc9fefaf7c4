"""A product with a matrix that lists the entries of its rows, in numbers: how long rows are, how often x's are named.

What a schedule makes of them is worked out from how many rows there are of each length, not row by row; its kernel
takes the rows as segments of bounded length, in the order in which teams of lanes take them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import FormatError
from sparsegen.ir.kernels.csr import ALIGN
from sparsegen.ir.tile_ragged import RANK, RECORD
from sparsegen.ir.types import s32
from sparsegen.products.product import OfProduct, Product
from sparsegen.sizes import MAX_CELLS


@dataclass(frozen=True)
class Ragged(OfProduct):
    """The numbers of a product with ragged rows.

    ``lengths``: (entries, rows that have so many), ascending; ``popular[i]``: the share of entries that name one of
    the 2 ** i columns that are named most; ``spread``: how far entries are from the diagonal, over the width of W, in
    the mean; ``nbytes``: of W's arrays; ``operands``: of bias, scale and residual.
    """

    m: int
    k: int
    n: int
    dtype: str
    entries: int
    nbytes: int
    operands: int
    lengths: tuple[tuple[int, int], ...]
    popular: tuple[float, ...]
    spread: float

    @staticmethod
    def of(product: Product) -> Ragged:
        """The numbers of a product; FormatError for a matrix that no kernel reads."""
        w, n = product.w, product.n
        m, k = w.shape
        entries = int(w.arrays["idx"].shape[0])
        if not m or not k:
            raise FormatError(f"W has shape {m}x{k}: there is nothing to multiply", hint="leave the product out")
        if 4 * (m + entries) > MAX_CELLS:  # words of the records, were every entry a segment
            raise FormatError(
                f"W has {m} rows and {entries} entries; indices are 32 bits wide: {MAX_CELLS // 4} in all at most",
                hint="cut the matrix into pieces of fewer rows",
            )
        ptr, idx = (partial(w.library.to_host, w.arrays[name], s32) for name in ("ptr", "idx"))
        found = w.once("measured", lambda: measured(ptr(), idx(), k))  # it reads all columns
        return Ragged(m, k, n, w.dtype, entries, w.nbytes, product.operand_bytes, *found)

    @property
    def stored(self) -> dict[str, int]:
        """What the op level says of W."""
        return {"chunks": 0, "entries": self.entries}

    @property
    def touched(self) -> int:
        """Rows of x that are read, at most: one for each entry."""
        return min(self.k, self.entries)

    @cached_property
    def table(self) -> Table:
        """The rows, as arrays."""
        length, rows = (np.array(column, dtype=float) for column in zip(*self.lengths, strict=True))
        _, octave = np.frexp(length)
        first: Any = np.searchsorted(octave, octave, "left")
        last: Any = np.searchsorted(octave, octave, "right")
        return Table(length, rows, np.concatenate([[0.0], np.cumsum(rows)]), first, last)

    @cached_property
    def _hash(self) -> int:
        return hash(
            (self.m, self.k, self.n, self.dtype, self.nbytes, self.operands, self.lengths, self.popular, self.spread)
        )

    def __hash__(self) -> int:
        return self._hash

    def named(self, columns: Any) -> Any:
        """The share of entries that name one of so many most popular columns, a number or an array of them."""
        return np.interp(np.log2(np.maximum(columns, 1)), np.arange(len(self.popular)), self.popular)


class Table(NamedTuple):
    """Rows by their lengths, ascending: ``upto[i]`` rows are of the first i lengths; the octave of a length has those
    from number ``begin`` to before ``end``."""

    length: npt.NDArray[np.float64]
    rows: npt.NDArray[np.float64]
    upto: npt.NDArray[np.float64]
    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]


class Walk(NamedTuple):
    """What teams have to do for a tile of columns: segments, those of rows that are cut, the turns of all warps (of a
    warp as many as its busiest team has), those of the longest segment, and the segments of the longest row."""

    segments: float
    cuts: float
    turns: float
    longest: float
    pieces: float


def measured(ptr: npt.NDArray[Any], idx: npt.NDArray[Any], k: int) -> tuple[Any, Any, float]:
    """``lengths``, ``popular`` and ``spread`` of a matrix of ``k`` columns, whose arrays are on the host."""
    starts = np.asarray(ptr, dtype=np.int64)
    each = starts[1:] - starts[:-1]
    lengths, rows = np.unique(each, return_counts=True)
    diagonal = np.repeat((np.arange(len(each)) + 0.5) / len(each), each)
    spread = float(np.abs((idx + 0.5) / k - diagonal).mean()) if len(idx) else 0.0
    uses = np.sort(np.bincount(idx, minlength=k))[::-1]
    shares = np.cumsum(uses) / max(1, len(idx))
    places = [min(1 << i, k) - 1 for i in range(int(k - 1).bit_length() + 1)]
    return tuple(zip(lengths.tolist(), rows.tolist(), strict=True)), tuple(shares[places].tolist()), spread


def walk(p: Ragged, cut: int, step: int, unroll: int, teams: int) -> Walk:
    """The work of teams that take ``step`` entries a turn, ``teams`` of them a warp, of rows cut at ``cut`` entries.

    The host sorts segments by octaves of their lengths: a warp's teams have any of one octave.
    """
    t = p.table
    longest = max(cut, -(-int(t.length[-1]) // (RANK - 1)))
    pieces = np.ceil(np.maximum(t.length, 1) / longest)
    early = (min(unroll, ALIGN) - 1) / 2  # a segment's first turn begins at a multiple of so many entries
    turns = np.where(t.length > 0, np.ceil((t.length / pieces + early) / step), 0)
    short = int(np.searchsorted(t.length, longest, side="right"))
    cuts = float((t.rows * pieces)[short:].sum())
    total = float((t.rows * pieces * turns)[short:].sum()) / teams
    # Of the rows of an octave that are not cut, the shares as short, and shorter: of ``teams`` the longest one counts.
    rows = np.maximum(t.upto[np.minimum(t.end, short)] - t.upto[t.begin], 1)[:short]
    here, below = (((t.upto[at : at + short] - t.upto[t.begin[:short]]) / rows) ** teams for at in (1, 0))
    total += float(((here - below) * rows * turns[:short]).sum()) / teams
    return Walk(cuts + float(t.upto[short]), cuts, total, float(turns.max()), float(pieces[-1]))


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
