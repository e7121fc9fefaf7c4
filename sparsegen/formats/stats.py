"""Where a sparse matrix has its elements: how long its rows are, how many vectors and tiles hold any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sparsegen.formats.axes import Compressed, Mask
from sparsegen.formats.format import WHOLE, Format, Shape
from sparsegen.formats.library import NUMPY, Library
from sparsegen.ir.types import s64

#: Rows of a vector, and rows and columns of a tile, for which a matrix is measured.
VECTOR: Final = 8
TILE: Final = WHOLE


@dataclass(frozen=True, eq=False)
class Stats:
    """``nnz`` stored elements of a matrix (explicit zeros count, zeros that fill a block or fiber up do not).

    ``lengths``: those of each row, int64 [M] on the host; ``vectors``: pieces of 8 x 1, and ``tiles``: of 16 x 16,
    aligned, that hold any.
    """

    shape: Shape
    lengths: Any
    vectors: int
    tiles: int

    @property
    def nnz(self) -> int:
        """Stored elements."""
        return int(self.lengths.sum())

    @property
    def imbalance(self) -> float:
        """Elements of the longest row over those of the mean one; 1 where all are alike, or empty."""
        return int(self.lengths.max()) * self.shape[0] / self.nnz if self.nnz else 1.0

    @property
    def per_vector(self) -> float:
        """Elements of an 8 x 1 vector that holds any, on average: 1 to 8; 0 for an empty matrix."""
        return self.nnz / max(1, self.vectors)


def measured(spec: Format, lib: Library, arrays: Mapping[str, Any], shape: Shape) -> Stats:
    """The figures of a matrix, measured where its arrays are."""
    of = _by_entries if isinstance(spec.sparse, Compressed) else _by_windows
    lengths, vectors, tiles = of(spec, lib, arrays, shape)
    host = lengths if lib is NUMPY else np.asarray(lib.to_host(lengths, s64))
    return Stats(shape, host, int(vectors), int(tiles))


def _by_windows(spec: Format, lib: Library, arrays: Mapping[str, Any], shape: Shape) -> tuple[Any, Any, Any]:
    """Decoded piece by piece: as ones, or where entries may be zeros that fill up, as they are."""
    mask = isinstance(spec.sparse, Mask)
    lengths, vectors, tiles = lib.zeros((shape[0],), "int64"), 0, 0
    for band, window in spec.bands(shape, lib.band):
        rows, cols = (cut.stop - cut.start for cut in window)
        down, across = (-(-n // TILE) for n in (rows, cols))
        piece = lib.zeros((down * TILE, across * TILE), "int8" if mask else spec.raw)
        spec.restore(lib, arrays, band, piece[:rows, :cols], shape, ones=mask)
        ones = piece if mask else lib.view(piece != 0, "int8")
        lengths[window[0]] += ones[:rows].sum(-1)
        held = ones.reshape(-1, VECTOR, across * TILE).any(1)
        vectors += held.sum()
        tiles += held.reshape(down, TILE // VECTOR, across, TILE).any(3).any(1).sum()
    return lengths, vectors, tiles


def _by_entries(spec: Format, lib: Library, arrays: Mapping[str, Any], shape: Shape) -> tuple[Any, Any, Any]:
    """By the coordinates of all elements, since their positions may span far more than memory holds."""
    (first, windows), window = spec.fibers(shape)
    starts = spec.starts(lib, arrays, 0, first * windows)
    entries = int(starts[-1])
    fiber = lib.fibers(starts, entries)
    second = fiber % windows * window + lib.wide(arrays[spec.sparse.own.name])
    place = dict(zip(spec.outer, (fiber // windows, second), strict=True))
    row, col = (lib.constant(table.ravel()) for table in np.divmod(spec.blocks.order.inverse_table(), spec.blocks.cols))
    rows = place["strip"].reshape(-1, 1) * spec.blocks.rows + row
    cols = place["slab"].reshape(-1, 1) * spec.blocks.cols + col
    if not (isinstance(spec.sparse, Compressed) and spec.inner == spec.sparse.ptr.align == 1):
        held = (spec.values(lib, arrays, 0, entries) != 0).reshape(rows.shape)
        rows, cols = rows[held], cols[held]
    rows, cols = rows.reshape(-1), cols.reshape(-1)
    vectors = lib.distinct(rows // VECTOR * shape[1] + cols)
    tiles = lib.distinct(rows // TILE * (shape[1] // TILE + 1) + cols // TILE)
    return lib.xp.bincount(rows, minlength=shape[0]), vectors, tiles
