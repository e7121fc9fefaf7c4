"""Strided row-major block compressed rows (SR-BCRS) as in Magicube: vectors, a stride of them row by row.

The matrix is cut into *vector rows* of ``height`` rows (the last one may be short), and each of these into vectors
height x 1, of which those that hold an element are kept.  ``stride`` of them follow one another as a block, row by row:
a tile height x stride whose rows are what an ``mma`` with k = stride takes.  A vector row whose vectors do not fill its
last block is filled up with vectors of zeros:

- ``ptr`` int32 [vector rows, 2]: of each vector row its first vector, a multiple of the stride, and where its vectors
  end; what fills its last block up comes behind.  The paper's two pointers a row.
- ``idx`` uint16: the column of each vector, ascending in a vector row; -1 (65535 in 16 bits) where it fills up.
  uint32 for a matrix of more than 65535 columns.
- ``values``: the blocks.  Row r of vector v is element ``(v // stride * height + r) * stride + v % stride``.  Elements
  of 4 bits lie two to a byte, the first in the low half; those of 12 bits lie in 16.  Floats have 16 bits.

The rows of a short last vector row that lie beyond the matrix are zero.  torch holds the same bits in signed integers.
Source: Magicube (SC'22), section 4.1 and figure 2.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from sparsegen.formats.axes import Compressed, Dense, Pointers, Stored
from sparsegen.formats.blocks import Blocked
from sparsegen.formats.format import Format, held
from sparsegen.formats.nm import whole
from sparsegen.formats.vectors import OfVectors, height_of, index_of
from sparsegen.ir.errors import FormatError
from sparsegen.ir.layout import layout
from sparsegen.ir.types import DType, s32

#: Vectors of a block.
STRIDES: Final = (4, 8, 16, 32, 64, 128)


def sr_bcrs(dtype: DType, height: int = 8, stride: int | None = None, index: int = 16) -> Format:
    """The format for integers of 4, 8, 12, 16 or 32 bits, and floats of 16.

    ``stride``: vectors of a block; by default the k of the widest ``mma``: 64 for 4 bits, 16 for floats, else 32, as
    integers of 12 and 16 bits are multiplied in digits.  ``index``: bits of a column, 16, or 32, which wider matrices
    get by themselves.
    FormatError for other numbers.
    """
    own = 16 if not dtype.is_int else 64 if dtype.bits == 4 else 32
    rows, wide = height_of(height), whole(own if stride is None else stride)
    if wide not in STRIDES:
        raise FormatError(
            f"stride={stride!r}: a block has {', '.join(map(str, STRIDES[:-1]))} or {STRIDES[-1]} vectors",
            hint="leave it away: it is the k of the mma that multiplies blocks",
        )
    return _format(dtype, rows, wide, index_of(index))


@cache
def _format(dtype: DType, height: int, stride: int, index: DType) -> Format:
    kept = Compressed("slab", Stored("idx", index), Pointers("ptr", s32, align=stride, ends=True))
    size = held(dtype).nbytes
    block = layout({"k": stride, "row": height, "byte": size}, lambda k, row, byte: (row * stride + k) * size + byte)
    options = (("height", height), ("stride", stride), ("index", index.bits))
    axes = (Dense("strip"), kept, Dense("element"))
    return Format("sr_bcrs", dtype, Blocked.plain(height, 1), axes, record=block, options=options)


class SrBcrs(OfVectors):
    """A matrix in strided row-major block compressed rows, with what products ask of it."""

    format_of = staticmethod(sr_bcrs)

    @property
    def stride(self) -> int:
        """Vectors of a block."""
        return int(dict(self.spec.options)["stride"])
