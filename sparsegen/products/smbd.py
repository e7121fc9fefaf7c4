"""Matrices of nested bitmap tiles in numbers, and where each strip's values begin, which SpInfer's kernel reads too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import FormatError
from sparsegen.ir.numbers.smbd import BITMAPS, PIECE, SIDE, STRIPS
from sparsegen.ir.types import u32
from sparsegen.products.product import OfProduct, Product
from sparsegen.products.weights import Prepared, padded
from sparsegen.sizes import MAX_CELLS

#: How many bits of a byte are set.
_ONES: Final = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(1, dtype=np.uint8)


@dataclass(frozen=True)
class NestedNumbers(OfProduct):
    """A product with nested bitmap tiles in numbers.

    ``entries``: values that are stored, those that fill group tiles up among them; ``most``: of the fullest group tile;
    ``nbytes``: of W's arrays; ``operands``: of bias, scale and residual.
    """

    m: int
    k: int
    n: int
    dtype: str
    nbytes: int
    entries: int
    most: int
    operands: int

    @property
    def rows(self) -> int:
        """Rows of group tiles."""
        return -(-self.m // SIDE)

    @property
    def slabs(self) -> int:
        """Group tiles of a row."""
        return -(-self.k // SIDE)

    @property
    def stored(self) -> dict[str, int]:
        """What the op level says of W."""
        return {"chunks": 0, "entries": self.entries}

    @staticmethod
    def of(product: Product) -> NestedNumbers:
        """The numbers of a product; FormatError for a matrix that no kernel reads."""
        w, (m, k) = product.w, product.w.shape
        entries = max(PIECE, int(w.arrays["values"].shape[0]))
        words = max(entries, BITMAPS * -(-m // SIDE) * -(-k // SIDE))
        if words > MAX_CELLS:
            raise FormatError(
                f"W has an array of {words} elements; indices are 32 bits wide, so {MAX_CELLS} is the most",
                hint="cut the matrix into pieces of fewer rows",
            )

        def fullest() -> int:
            offsets = np.asarray(w.library.to_host(w.arrays["offsets"], u32)).astype(np.int64)
            return max(PIECE, int(np.diff(offsets).max()))

        return NestedNumbers(
            m, k, product.n, w.dtype, w.nbytes, entries, w.once("fullest", fullest), product.operand_bytes
        )


def starts(w: SparseMatrix) -> Any:
    """The first value of each strip of 16 rows of all group tiles, and at the end how many there are (on the host)."""
    host = w.to_host()
    counts = _ONES[np.ascontiguousarray(host.arrays["bitmaps"]).view(np.uint8)]
    strips = counts.reshape(-1, STRIPS, 8 * BITMAPS // STRIPS).sum(-1, dtype=np.int64)  # bytes of a strip's bitmaps
    before = np.cumsum(strips, axis=1) - strips
    offsets = np.asarray(host.arrays["offsets"], np.int64)
    return np.append((offsets[:-1, None] + before).reshape(-1), offsets[-1]).astype(np.uint32)


#: What the kernel reads of W, by role.
ARRAYS: Final = {
    "starts": Prepared(
        ("nested starts",), starts,
        "of each 16 rows of each group tile of 64 x 64 their first value, and at the end how many values there are "
        "(starts in sparsegen/products/smbd.py)",
    ),
    "bitmaps": Prepared(("nested bitmaps",), lambda w: w.arrays["bitmaps"], "W.arrays['bitmaps']"),
    "values": Prepared(
        ("nested values",), lambda w: padded(w, "values", PIECE), "W.arrays['values'], 16 bits each, at least eight"
    ),
}  # fmt: skip
