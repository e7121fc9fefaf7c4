"""A product with dense tiles in Blocked-ELL and compressed rows in numbers: those of both of its kernels, and what they
read of the matrix.

Every block row has as many turns as the one with most dense tiles.  A turn that only fills up names the tile behind W's
last column, where there is nothing of x, and multiplies zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from sparsegen.formats.csr import Csr
from sparsegen.formats.hybrid import Hybrid, HybridFormat
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import FormatError
from sparsegen.ir.numbers.mixed import RECORD, SPAN
from sparsegen.ir.types import DTYPES, s32, sum_type
from sparsegen.products.hybrid import HEIGHTS, Counts, HybridNumbers, fragments
from sparsegen.products.product import OfProduct, Product
from sparsegen.products.ragged import Ragged, segments_of
from sparsegen.sizes import MAX_CELLS

#: Block rows of a block of threads: Blocked-ELL has no tiles on top of each other.
HIGH: Final = 1


@dataclass(frozen=True)
class BlockedEllNumbers(OfProduct):
    """The numbers of a product with dense tiles in Blocked-ELL and other entries.

    ``tile``: rows and columns of a dense tile; ``width``: tiles that each block row is filled up to, ``filling`` of
    which are zeros in all; ``entries``: others, with ``lengths``, ``popular`` and ``spread`` as :class:`Ragged` has
    them; ``nbytes``: of W's arrays, ``of_tiles`` of them tiles; ``operands``: of bias, scale and residual.
    """

    m: int
    k: int
    n: int
    dtype: str
    tile: int
    width: int
    filling: int
    entries: int
    nbytes: int
    of_tiles: int
    operands: int
    lengths: tuple[tuple[int, int], ...]
    popular: tuple[float, ...]
    spread: float

    @staticmethod
    def of(product: Product) -> BlockedEllNumbers:
        """The numbers of a product; FormatError for a matrix that no kernel reads."""
        w, (m, k), tile = cast("Hybrid", product.w), product.w.shape, _format(product.w).tile
        strips, width = w.arrays["idx"].shape
        if (room := strips * max(width * tile**2, RECORD * tile)) > MAX_CELLS:
            raise FormatError(
                f"W has arrays of {room} elements; indices are 32 bits wide, so {MAX_CELLS} is the most",
                hint="raise delta, so that block rows have fewer tiles, or cut the matrix into pieces of fewer rows",
            )
        rest = Ragged.of(Product(rest_of(w), product.n))
        of_tiles = sum(int(np.prod(a.shape)) * int(a.itemsize) for a in (w.arrays["idx"], w.arrays["values"]))
        about = rest.lengths, rest.popular, rest.spread
        return BlockedEllNumbers(
            m, k, product.n, w.dtype, tile, width, w.filling, rest.entries, w.nbytes, of_tiles, product.operand_bytes,
            *about,
        )  # fmt: skip

    @property
    def stored(self) -> dict[str, Any]:
        """What the op level says of W."""
        return {"chunks": 0, "entries": self.entries}

    @property
    def strips(self) -> int:
        """Block rows."""
        return -(-self.m // self.tile)

    @property
    def two(self) -> bool:
        """Whether there are both dense tiles and other entries, so that it takes two kernels."""
        return self.width > 0 and self.entries > 0

    @cached_property
    def tiles(self) -> HybridNumbers | None:
        """Those of the product with the dense tiles, whose y are sums if others are added; None if there are none."""
        if not self.width:
            return None
        turns, reads = self.strips * self.width, self.width * self.tile
        counts = (Counts(turns, self.width, reads, float(reads), 0, 0, 0),) * len(HEIGHTS)
        wider = self.sums - self.m * self.n * self.item  # bytes of sums beyond those of y
        return HybridNumbers(
            self.m, self.k, self.n, self.dtype, self.tile, turns, 0, 0, counts, self.of_tiles,
            wider if self.two else self.operands,
        )  # fmt: skip

    @cached_property
    def rest(self) -> Ragged | None:
        """Those of the product with the other entries, on top of such sums; None if there are but tiles."""
        if self.width and not self.entries:
            return None
        about, begun = (self.lengths, self.popular, self.spread), self.two * self.sums
        nbytes = self.nbytes - self.of_tiles
        return Ragged(self.m, self.k, self.n, self.dtype, self.entries, nbytes, self.operands + begun, *about)

    @property
    def sums(self) -> int:
        """Bytes of the sums between both."""
        return sum_type(DTYPES[self.dtype]).nbytes * self.m * self.n


def rest_of(w: SparseMatrix) -> Csr:
    """The entries outside of dense tiles as a matrix whose rows are in W's order."""
    spec = _format(w)

    def made() -> Csr:
        arrays = spec.of_rest(w.arrays)
        return Csr(spec.rest, w.shape, w.library, arrays, int(arrays["idx"].shape[0]))

    return w.once("rest", made)


def spans(w: SparseMatrix) -> npt.NDArray[np.int32]:
    """``spans`` [block rows, 2]: the first turn of each and the one after its last."""
    strips, width = w.arrays["idx"].shape
    first = np.arange(strips) * width
    return np.stack([first, first + width], axis=1).astype(np.int32).reshape(-1, SPAN)


def columns(w: SparseMatrix) -> npt.NDArray[np.int32]:
    """``columns``: which columns each turn multiplies, by the tile; the number after the last where it fills up."""
    listed = w.library.to_host(w.arrays["idx"], s32).reshape(-1)
    _, across = w.spec.blocks.grid(w.shape)
    return np.where(listed < 0, across, listed).astype(np.int32) if len(listed) else np.zeros(1, np.int32)


def records(w: SparseMatrix) -> npt.NDArray[np.int32]:
    """``records`` [block rows, tile, 4]: which row of W each row is (M of one that does not exist), that it has no
    entries, and its place."""
    tile, strips = _format(w).tile, w.arrays["idx"].shape[0]
    made = np.zeros((strips, tile, RECORD), np.int32)
    made[..., 0] = _rows(w)[np.minimum(np.arange(strips * tile), w.shape[0])].reshape(strips, tile)
    made[..., 3] = np.arange(tile)
    return made


def tiles(w: SparseMatrix) -> Any:
    """The tiles in the order of mma fragments, as words; zeros of one where there are none."""
    lib, tile = w.library, _format(w).tile
    with lib.active():
        bits = lib.view(w.arrays["values"], w.spec.raw)
        bits = bits if bits.shape[0] else lib.zeros((tile * tile,), w.spec.raw)
        return fragments(lib, bits, w.kind, tile, HIGH)


def segments(w: SparseMatrix, longest: int, warp: int, block: int) -> npt.NDArray[np.int32]:
    """The segments of the other entries, as ``csr`` has them, each of the row that W has it in."""
    made: npt.NDArray[np.int32] = segments_of(rest_of(w), longest, warp, block).records.copy()
    made[:, 0] = _rows(w)[made[:, 0]]
    return made


def _rows(w: SparseMatrix) -> npt.NDArray[np.int32]:
    """The order of W's rows, and M behind it."""
    rows: npt.NDArray[np.int32] = np.append(w.library.to_host(w.arrays["order"], s32), np.int32(w.shape[0]))
    return rows


def _format(w: SparseMatrix) -> HybridFormat:
    return cast("HybridFormat", w.spec)
