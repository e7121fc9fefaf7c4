"""A product with dense tiles and other entries in numbers, and what its kernels read of the matrix.

A band of rows is as high as one dense tile or some.  What its tiles cover of columns a block multiplies turn by turn: a
turn brings as many rows of x as a tile has columns, for all tiles that are there on top of each other; where one is
missing are zeros.  Blocks take the bands with the most to read first; in a band the rows with most other entries come
first, as teams of lanes take them one after another.  A row that would keep one team at work while the others have done
is cut into pieces, which teams take before; the sums of a row's pieces are added in its order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from sparsegen.formats.hybrid import HybridFormat
from sparsegen.formats.library import Library
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import FormatError
from sparsegen.ir.kernels.csr import ALIGN
from sparsegen.ir.numbers.mixed import PLACES, RECORD, SPAN
from sparsegen.ir.swizzle import swizzled
from sparsegen.ir.types import DType, f32, s32, u32
from sparsegen.products.product import OfProduct, Product
from sparsegen.sizes import MAX_CELLS

#: Dense tiles on top of each other in a band.
HEIGHTS: Final = (1, 2, 4)
#: Pieces of a band at most: as many as most blocks have teams, and few enough for their sums in shared memory.
PIECES: Final = 16
#: A row is cut if it has more entries than LONG and than twice a band's over :data:`PIECES`: a team takes fewer in 16
#: turns at most, and to meet takes about two.  EACH: a piece has a multiple of so many, two turns of a team or some.
#: The longest row of a band has LEAST pieces, so that it pays also where a block has half as many teams as pieces.
LONG, EACH, LEAST = 32, 8, 4


class Counts(NamedTuple):
    """What bands of a height have: the turns of all of them, and of the longest; the rows of x that the busiest one
    reads, and that one reads in the mean; the other entries of the longest row that is not cut, pieces of rows that are
    at most, and the entries of the longest piece."""

    turns: int
    longest: int
    busiest: int
    mean: float
    whole: int
    cuts: int
    piece: int


@dataclass(frozen=True)
class HybridNumbers(OfProduct):
    """The numbers of a product with dense tiles and other entries.

    ``tile``: rows and columns of a dense tile; ``dense``: how many there are; ``entries``: others, of which a row has
    ``most`` at most; ``counts``: of bands of :data:`HEIGHTS`; ``nbytes``: of W's arrays; ``operands``: of bias, scale
    and residual; ``precision``: that of tensor cores, for f32; empty: f32's own, in parts.
    """

    m: int
    k: int
    n: int
    dtype: str
    tile: int
    dense: int
    entries: int
    most: int
    counts: tuple[Counts, ...]
    nbytes: int
    operands: int
    precision: str = ""

    @staticmethod
    def of(product: Product) -> HybridNumbers:
        """The numbers of a product; FormatError for a matrix that no kernel reads."""
        w, (m, k), tile = product.w, product.w.shape, _format(product.w).tile
        dense, entries = (int(w.arrays[name].shape[0]) for name in ("idx", "rest_idx"))
        room = max(RECORD * (m + HEIGHTS[-1] * tile), dense * tile**2, entries + ALIGN)
        if room > MAX_CELLS:
            raise FormatError(
                f"W has arrays of {room} elements; indices are 32 bits wide, so {MAX_CELLS} is the most",
                hint="cut the matrix into pieces of fewer rows",
            )
        most, found = w.once("mixed counts", lambda: counts(w))
        nbytes, operands = w.nbytes, product.operand_bytes
        about = tile, dense, entries, most, found, nbytes, operands, product.precision
        return HybridNumbers(m, k, product.n, w.dtype, *about)

    @property
    def stored(self) -> dict[str, Any]:
        """What the op level says of W, and of how it is multiplied."""
        return {"chunks": 0, "entries": self.entries, "precision": self.precision}

    @property
    def touched(self) -> int:
        """Rows of x that are read, at most: those beside dense tiles, and one for each other entry."""
        return min(self.k, self.entries + self.dense * self.tile)

    @property
    def split(self) -> bool:
        """Whether dense tiles and rows of x are multiplied in parts, so that f32 keeps what it has."""
        return self.dtype == f32.name and not self.precision

    def bands(self, high: int) -> int:
        """Bands of so many dense tiles on top of each other."""
        return -(-self.m // (self.tile * high))

    def counted(self, high: int) -> Counts:
        """What such bands have."""
        return self.counts[HEIGHTS.index(high)]


class _Bands(NamedTuple):
    """The number of columns of each turn, of all bands one after the other; where those of each band begin, and at the
    end how many there are; of each row [bands, rows] its first other entry, and how many it has (none of rows that do
    not exist); the bands in the order of blocks; and of each dense tile its turn."""

    columns: npt.NDArray[np.int64]
    ptr: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    others: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]
    turn: npt.NDArray[np.int64]


def counts(w: SparseMatrix) -> tuple[int, tuple[Counts, ...]]:
    """The most other entries of a row, and what bands of each height have."""
    every, tile = [bands(w, high) for high in HEIGHTS], _format(w).tile

    def counted(found: _Bands) -> Counts:
        turns = np.diff(found.ptr)
        reads = turns * tile + found.others.sum(1)
        parts = cut(found)
        whole = int(np.where(parts.pieces > 0, 0, found.others).max())
        cuts = int(parts.pieces.sum(1).max()), int((parts.each * (parts.pieces.sum(1) > 0)).max())
        return Counts(int(found.ptr[-1]), int(turns.max()), int(reads.max()), float(reads.mean()), whole, *cuts)

    return int(every[0].others.max()), tuple(counted(found) for found in every)


def spans(w: SparseMatrix, high: int) -> npt.NDArray[np.int32]:
    """``spans`` [bands, 2]: the first turn of each band and the one after its last, in the order of blocks."""
    found = bands(w, high)
    return np.stack([found.ptr[found.order], found.ptr[found.order + 1]], axis=1).astype(np.int32).reshape(-1, SPAN)


def columns(w: SparseMatrix, high: int) -> npt.NDArray[np.int32]:
    """``columns``: which columns each turn multiplies, by the tile; one zero where there are no turns."""
    found = bands(w, high).columns
    return np.asarray(found if len(found) else [0], dtype=np.int32)


def records(w: SparseMatrix, high: int) -> npt.NDArray[np.int32]:
    """``records`` [bands, rows, 4], bands in the order of blocks: of each row of a band, those with most other entries
    first, which row of W it is (M of one that does not exist), its first other entry, the one after the last, and its
    place in the band.  A row that is cut has no entries, and with its place its pieces: see ``PLACES``."""
    found, m = bands(w, high), w.shape[0]
    parts = cut(found)
    own = np.where(parts.pieces > 0, 0, found.others)
    place = np.argsort(-own, axis=1, kind="stable")
    row = np.arange(len(place))[:, None] * place.shape[1] + place
    begin, length, first, count = (
        np.take_along_axis(a, place, axis=1) for a in (found.begin, own, parts.first, parts.pieces)
    )
    word = place + PLACES * (np.where(count > 0, first, 0) + PLACES * count)
    made = np.stack([_host(w, "order")[np.minimum(row, m - 1)], begin, begin + length, word], axis=-1)
    made[row >= m, :3] = m, 0, 0
    return made[found.order].astype(np.int32)


def pieces(w: SparseMatrix, high: int) -> npt.NDArray[np.int32]:
    """``pieces`` [bands, rows, 4], bands in the order of blocks: of each piece of a row that is cut, those of a row one
    after the other, which row of W that is, its first other entry, the one after the last, and its number in the band;
    the others, of row M, have no entries."""
    found, m = bands(w, high), w.shape[0]
    parts, (count, rows) = cut(found), found.others.shape
    made = np.zeros((count, rows, RECORD), np.int64)
    made[..., 0], made[..., 3] = m, np.arange(rows)
    band, place = np.nonzero(parts.pieces)
    at = np.repeat(np.arange(len(band)), parts.pieces[band, place])
    band, place = band[at], place[at]
    rank = np.arange(len(at)) - np.searchsorted(at, at)
    begin, each = found.begin[band, place], parts.each[band]
    start = begin // ALIGN * ALIGN + rank * each
    end = np.minimum(begin + found.others[band, place], start + each)
    slot = parts.first[band, place] + rank
    made[band, slot, :3] = np.stack([_host(w, "order")[band * rows + place], np.maximum(begin, start), end], axis=-1)
    return made[found.order].astype(np.int32)


def tiles(w: SparseMatrix, high: int) -> Any:
    """The dense tiles of each turn, on top of each other, in the order of mma fragments, as words: of each 16 columns
    and each 16 rows the four registers of each lane; those of one turn, zeros, where there are none.  Of f32, of each
    8 columns: first the even columns of a lane."""
    with w.library.active():
        return fragments(w.library, _stacked(w, high), w.kind, _format(w).tile, high)


def images(w: SparseMatrix, high: int) -> Any:
    """The same of 16-bit values as warpgroups read them: of each turn row by row, 16-byte pieces of rows swizzled."""
    lib, tile = w.library, _format(w).tile
    with lib.active():
        place = lib.constant(swizzled(high * tile, 2 * tile, 2 * tile).inverse_table().reshape(-1))
        made = _stacked(w, high).reshape(-1, high * tile * tile)
        return lib.view(lib.packed(made[:, place]).reshape(-1), w.kind)


def _stacked(w: SparseMatrix, high: int) -> Any:
    """The bits of the dense tiles of each turn [turns * high, tile * tile] from top to bottom, zeros where none is;
    those of one turn where there are none."""
    lib, tile, found = w.library, _format(w).tile, bands(w, high)
    strip = np.repeat(np.arange(len(_host(w, "ptr")) - 1), np.diff(_host(w, "ptr")))
    count, bits = max(1, len(found.columns)), f"int{w.kind.bits}"
    made = lib.zeros((count * high, tile * tile), bits)
    if len(strip):
        place = lib.constant(found.turn * high + strip % high)
        made[place] = lib.view(lib.packed(w.arrays["values"]), bits).reshape(-1, tile * tile)
    return made


def fragments(lib: Library, tiles: Any, kind: DType, tile: int, high: int) -> Any:
    """Tiles, given as bits turn by turn and in each from top to bottom, in the order that :func:`tiles` has them in."""
    deep = tile // 16
    if kind is f32:
        values = tiles.reshape(-1, high * deep, 2, 8, tile // 8, 4, 2)
        return lib.view(lib.packed(lib.transpose(values, (0, 4, 1, 3, 5, 6, 2))).reshape(-1), f32)
    # a row is (half, lane div 4), a column (half, lane mod 4, which of two): halves make registers
    values = tiles.reshape(-1, high * deep, 2, 8, deep, 2, 4, 2)
    return lib.view(lib.packed(lib.transpose(values, (0, 4, 1, 3, 6, 5, 2, 7))).reshape(-1), u32)


def rounded(w: SparseMatrix, high: int) -> Any:
    """The same of f32, its numbers rounded to 10 bits of mantissa, ties away from zero; NaN and infinities as they
    are."""
    lib, words = w.library, tiles(w, high)
    with lib.active():
        bits = lib.view(words, "int32")
        special = bits & 0x7F800000 == 0x7F800000
        return lib.view(lib.xp.where(special, bits, (bits + 0x1000) & -0x2000), f32)


class Cut(NamedTuple):
    """Of each row [bands, rows] how many pieces it is cut into, or 0, and the number of its first one in the band; of
    each band the entries of a piece."""

    pieces: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    each: npt.NDArray[np.int64]


def cut(found: _Bands) -> Cut:
    """The pieces of the rows of bands, as even as they come: each but a row's first one begins where a load of entries
    does, so that none takes a turn for what lies before it."""
    entries = np.where(found.others > 0, found.others + found.begin % ALIGN, 0)
    long = entries > np.maximum(LONG, 2 * entries.sum(1) // PIECES)[:, None]
    # fewer than half as many rows as pieces are so long: each makes one more piece than its entries fill, at most
    evenly = -(-(entries * long).sum(1) // (PIECES - long.sum(1)))
    each = np.maximum(-(-evenly // EACH), 1) * EACH
    count = np.where(long, -(-entries // each[:, None]), 0)
    count[count.max(1) < LEAST] = 0
    return Cut(count, np.cumsum(count, axis=1) - count, each)


def bands(w: SparseMatrix, high: int) -> _Bands:
    """The bands of so many dense tiles on top of each other, worked out once and kept as long as the matrix lives."""

    def found() -> _Bands:
        spec, ptr, idx, per_row = _format(w), _host(w, "ptr"), _host(w, "idx"), np.diff(_host(w, "rest_ptr"))
        (strips, across), tile = spec.blocks.grid(w.shape), spec.tile
        count = -(-strips // high)
        band = np.repeat(np.arange(strips), np.diff(ptr)) // high
        keys, turn = np.unique(band * across + idx, return_inverse=True)
        begins: npt.NDArray[np.int64] = np.searchsorted(keys // across, np.arange(count + 1))
        first, others = np.zeros((2, count, high * tile), np.int64)
        first.reshape(-1)[: len(per_row)] = _host(w, "rest_ptr")[:-1]
        others.reshape(-1)[: len(per_row)] = per_row
        order = np.argsort(-(np.diff(begins) * tile + others.sum(1)), kind="stable")
        return _Bands(keys % across, begins, first, others, order, turn.reshape(-1))

    return w.once(("mixed bands", high), found)


def _host(w: SparseMatrix, name: str) -> npt.NDArray[np.int64]:
    return np.asarray(w.library.to_host(w.arrays[name], s32), dtype=np.int64)


def _format(w: SparseMatrix) -> HybridFormat:
    return cast("HybridFormat", w.spec)
