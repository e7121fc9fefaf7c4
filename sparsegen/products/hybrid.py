"""A product with dense tiles and other entries in numbers, and what its kernels read of the matrix.

Blocks take bands of rows with the most to read first: a dense tile brings as many rows of x as it has columns, another
entry one.  In a band the rows with most other entries come first, as teams of lanes take them one after another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from sparsegen.formats.hybrid import HybridFormat
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import FormatError
from sparsegen.ir.kernels.csr import ALIGN
from sparsegen.ir.numbers.mixed import RECORD, SPAN
from sparsegen.ir.types import s32, u32
from sparsegen.products.product import Product
from sparsegen.sizes import MAX_CELLS


class Counts(NamedTuple):
    """What a matrix has: dense tiles of its longest band, other entries of its longest row, and of its busiest band
    the rows of x that it reads, and in the mean of all bands that."""

    longest: int
    most: int
    busiest: int
    mean: float


@dataclass(frozen=True)
class HybridNumbers:
    """The numbers of a product with dense tiles and other entries.

    ``tile``: rows and columns of a dense tile; ``dense``: how many there are; ``entries``: others; ``nbytes``: of W's
    arrays; ``operands``: of bias, scale and residual.
    """

    m: int
    k: int
    n: int
    dtype: str
    tile: int
    dense: int
    entries: int
    counts: Counts
    nbytes: int
    operands: int

    @staticmethod
    def of(product: Product) -> HybridNumbers:
        """The numbers of a product; FormatError for a matrix that no kernel reads."""
        w, (m, k), tile = product.w, product.w.shape, _format(product.w).tile
        dense, entries = (int(w.arrays[name].shape[0]) for name in ("idx", "rest_idx"))
        most = max(RECORD * (m + tile), dense * tile**2, entries + ALIGN)
        if most > MAX_CELLS:
            raise FormatError(
                f"W has arrays of {most} elements; indices are 32 bits wide, so {MAX_CELLS} is the most",
                hint="cut the matrix into pieces of fewer rows",
            )
        found = w.once("mixed counts", lambda: counts(w))
        return HybridNumbers(m, k, product.n, w.dtype, tile, dense, entries, found, w.nbytes, product.operand_bytes)

    @property
    def stored(self) -> dict[str, int]:
        """What the op level says of W."""
        return {"chunks": 0, "entries": self.entries}

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return 4 if self.dtype == "f32" else 2

    @property
    def bands(self) -> int:
        """Bands of rows."""
        return -(-self.m // self.tile)


class _Bands(NamedTuple):
    """Dense tiles of each band, other entries of each row [bands, tile] (none of rows that do not exist), and the bands
    in the order of blocks."""

    tiles: npt.NDArray[np.int64]
    others: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]


def counts(w: SparseMatrix) -> Counts:
    """What bands and rows have."""
    found, tile = _bands(w), _format(w).tile
    reads = found.tiles * tile + found.others.sum(1)
    return Counts(int(found.tiles.max()), int(found.others.max()), int(reads.max()), float(reads.mean()))


def spans(w: SparseMatrix) -> npt.NDArray[np.int32]:
    """``spans`` [bands, 2]: the first dense tile of each band and the one after its last, in the order of blocks."""
    ptr, order = _host(w, "ptr"), _bands(w).order
    return np.stack([ptr[order], ptr[order + 1]], axis=1).astype(np.int32).reshape(-1, SPAN)


def records(w: SparseMatrix) -> npt.NDArray[np.int32]:
    """``records`` [bands, tile, 4], bands in the order of blocks: of each row of a band, those with most other entries
    first, which row of W it is (M of one that does not exist), its first other entry, the one after its last, and its
    place in the band."""
    found, tile, m = _bands(w), _format(w).tile, w.shape[0]
    place = np.argsort(-found.others, axis=1, kind="stable")
    row = (np.arange(len(place))[:, None] * tile + place)[found.order]
    real, ptr = np.minimum(row, m - 1), _host(w, "rest_ptr")
    made = np.stack([_host(w, "order")[real], ptr[real], ptr[real + 1], place[found.order]], axis=-1)
    made[row >= m, :3] = m, 0, 0
    return made.astype(np.int32)


def tiles(w: SparseMatrix) -> Any:
    """The dense tiles in the order of mma fragments, as words: of each 16 columns and each 16 rows the four registers
    of each lane; one tile of zeros where there are none."""
    spec, lib = _format(w), w.library
    tile, count = spec.tile, int(w.arrays["idx"].shape[0])
    with lib.active():
        if not count:
            return lib.view(lib.zeros((tile**2,), "int16"), u32)
        # a row is (half, lane div 4), a column (half, lane mod 4, which of two): halves make registers
        deep = tile // 16
        values = lib.view(lib.packed(w.arrays["values"]), "int16").reshape(count, deep, 2, 8, deep, 2, 4, 2)
        return lib.view(lib.packed(lib.transpose(values, (0, 4, 1, 3, 6, 5, 2, 7))).reshape(-1), u32)


def _bands(w: SparseMatrix) -> _Bands:
    def found() -> _Bands:
        tile, per_row = _format(w).tile, np.diff(_host(w, "rest_ptr"))
        of_band = np.diff(_host(w, "ptr"))
        others = np.zeros((len(of_band), tile), np.int64)
        others.reshape(-1)[: len(per_row)] = per_row
        return _Bands(of_band, others, np.argsort(-(of_band * tile + others.sum(1)), kind="stable"))

    return w.once("mixed bands", found)


def _host(w: SparseMatrix, name: str) -> npt.NDArray[np.int64]:
    return np.asarray(w.library.to_host(w.arrays[name], s32), dtype=np.int64)


def _format(w: SparseMatrix) -> HybridFormat:
    return cast("HybridFormat", w.spec)
