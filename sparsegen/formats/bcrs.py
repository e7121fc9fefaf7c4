"""Block compressed rows of vectors (BCRS): those of a vector row one after the other.

The matrix is cut into *vector rows* of ``height`` rows (the last one may be short), and each of these into vectors
height x 1, of which those that hold an element are kept.  What a softmax reads: elements of a vector are adjacent, and
nothing fills rows up.

- ``ptr`` int32 [vector rows + 1]: the first vector of each vector row; at the end, all of them.
- ``idx`` uint16: the column of each vector, ascending in a vector row; uint32 for a matrix of more than 65535 columns.
- ``values``: row r of vector v is element ``v * height + r``.  Elements of 4 bits lie two to a byte, the first in the
  low half; those of 12 bits lie in 16.  Floats have 16 bits.

The rows of a short last vector row that lie beyond the matrix are zero.  torch holds the same bits in signed integers.
"""

from __future__ import annotations

from functools import cache

from sparsegen.formats.axes import Compressed, Dense, Pointers, Stored
from sparsegen.formats.blocks import Blocked
from sparsegen.formats.format import Format
from sparsegen.formats.vectors import OfVectors, height_of, index_of
from sparsegen.ir.types import DType, s32


def bcrs(dtype: DType, height: int = 8, index: int = 16) -> Format:
    """The format for integers of 4, 8, 12, 16 or 32 bits, and floats of 16.

    ``index``: bits of a column, 16, or 32, which wider matrices get by themselves.  FormatError for other numbers.
    """
    return _format(dtype, height_of(height), index_of(index))


@cache
def _format(dtype: DType, height: int, index: DType) -> Format:
    kept = Compressed("slab", Stored("idx", index), Pointers("ptr", s32))
    axes = (Dense("strip"), kept, Dense("element"))
    return Format("bcrs", dtype, Blocked.plain(height, 1), axes, options=(("height", height), ("index", index.bits)))


class Bcrs(OfVectors):
    """A matrix in block compressed rows of vectors."""

    format_of = staticmethod(bcrs)
