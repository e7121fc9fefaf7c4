"""Strided row-major block compressed rows (SR-BCRS) as in Magicube: vectors of integers, a stride of them row by row.

The matrix is cut into *vector rows* of ``height`` rows (the last one may be short), and each of these into vectors
height x 1, of which those that hold an element are kept.  ``stride`` of them follow one another as a block, row by row:
a tile height x stride whose rows are what an ``mma`` with k = stride takes.  A vector row whose vectors do not fill its
last block is filled up with vectors of zeros:

- ``ptr`` int32 [vector rows, 2]: of each vector row its first vector, a multiple of the stride, and where its vectors
  end; what fills its last block up comes behind.  The paper's two pointers a row.
- ``idx`` uint16: the column of each vector, ascending in a vector row; -1 (65535 in 16 bits) where it fills up.
  uint32 for a matrix of more than 65535 columns.
- ``values``: the blocks.  Row r of vector v is element ``(v // stride * height + r) * stride + v % stride``.  Elements
  of 4 bits lie two to a byte, the first in the low half; those of 12 bits lie in 16.

The rows of a short last vector row that lie beyond the matrix are zero.  torch holds the same bits in signed integers.
Source: Magicube (SC'22), section 4.1 and figure 2.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sparsegen.formats.axes import Compressed, Dense, Pointers, Stored
from sparsegen.formats.blocks import Blocked
from sparsegen.formats.format import Format, held
from sparsegen.formats.library import Library
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.nm import whole
from sparsegen.ir.errors import FormatError
from sparsegen.ir.layout import layout
from sparsegen.ir.types import DType, s32, u16, u32

#: Rows of a vector, which an ``mma`` takes whole, and vectors of a block.
HEIGHTS: Final = (2, 4, 8)
STRIDES: Final = (4, 8, 16, 32, 64, 128)
#: Bits of a column -> the type that lists them.
INDICES: Final = {16: u16, 32: u32}


def sr_bcrs(dtype: DType, height: int = 8, stride: int | None = None, index: int = 16) -> Format:
    """The format for integers of 4, 8, 12 or 16 bits.

    ``stride``: vectors of a block; by default the k of the widest ``mma``: 64 for 4 bits, else 32, as 12 and 16 bits
    are multiplied in digits.  ``index``: bits of a column, 16, or 32, which wider matrices get by themselves.
    FormatError for other numbers.
    """
    rows, wide = whole(height), whole((64 if dtype.bits == 4 else 32) if stride is None else stride)
    if rows not in HEIGHTS:
        raise FormatError(
            f"height={height!r}: vectors have 2, 4 or 8 rows",
            hint="give height=8, or 4 or 2 where fewer adjacent rows have their zeros alike",
        )
    if wide not in STRIDES:
        raise FormatError(
            f"stride={stride!r}: a block has {', '.join(map(str, STRIDES[:-1]))} or {STRIDES[-1]} vectors",
            hint="leave it away: it is the k of the mma that multiplies blocks",
        )
    bits = whole(index)
    if bits not in INDICES:
        raise FormatError(
            f"index={index!r}: columns are listed in 16 bits or 32", hint="leave it away: wide matrices get 32"
        )
    return _format(dtype, rows, wide, bits)


@cache
def _format(dtype: DType, height: int, stride: int, index: int) -> Format:
    kept = Compressed("slab", Stored("idx", INDICES[index]), Pointers("ptr", s32, align=stride, ends=True))
    size = held(dtype).nbytes
    block = layout({"k": stride, "row": height, "byte": size}, lambda k, row, byte: (row * stride + k) * size + byte)
    options = (("height", height), ("stride", stride), ("index", index))
    axes = (Dense("strip"), kept, Dense("element"))
    return Format("sr_bcrs", dtype, Blocked.plain(height, 1), axes, record=block, options=options)


class SrBcrs(SparseMatrix):
    """A matrix in strided row-major block compressed rows, with what products ask of it."""

    @property
    def height(self) -> int:
        """Rows of a vector."""
        return self.spec.blocks.rows

    @property
    def stride(self) -> int:
        """Vectors of a block."""
        return int(dict(self.spec.options)["stride"])

    @property
    def strips(self) -> int:
        """Vector rows, a short last one counted."""
        return self.spec.fibers(self.shape)[0][0]

    @classmethod
    def encode(cls, spec: Format, lib: Library, bits: Any) -> SrBcrs:
        """Encode a dense matrix, given as its signed bits, with columns listed in 32 bits if 16 do not hold them."""
        options = dict(spec.options)
        narrow = int(bits.shape[1]) > INDICES[options["index"]].range[1]  # the last number is -1
        return super().encode(sr_bcrs(spec.dtype, **{**options, "index": 32}) if narrow else spec, lib, bits)
