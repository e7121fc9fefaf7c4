"""Matrices of vectors height x 1: what those that list them row by row (sr_bcrs and bcrs) have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import numpy as np

from sparsegen.formats.format import Format
from sparsegen.formats.library import Library
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.nm import whole
from sparsegen.ir.errors import FormatError
from sparsegen.ir.types import DType, s32, u16, u32

#: Rows of a vector, which an ``mma`` takes whole.
HEIGHTS: Final = (2, 4, 8)
#: Bits of a column -> the type that lists them.
INDICES: Final = {16: u16, 32: u32}


def height_of(height: Any) -> int:
    """The rows of a vector; FormatError for others than there are."""
    rows = whole(height)
    if rows not in HEIGHTS:
        raise FormatError(
            f"height={height!r}: vectors have 2, 4 or 8 rows",
            hint="give height=8, or 4 or 2 where fewer adjacent rows have their zeros alike",
        )
    assert rows is not None
    return rows


def index_of(index: Any) -> DType:
    """The type that lists columns in so many bits; FormatError for others than there are."""
    bits = whole(index)
    if bits not in INDICES:
        raise FormatError(
            f"index={index!r}: columns are listed in 16 bits or 32", hint="leave it away: wide matrices get 32"
        )
    return INDICES[bits or 0]


class OfVectors(SparseMatrix):
    """A matrix of vectors, with what products ask of it."""

    #: The format for a dtype, with options of its own.
    format_of: ClassVar[Callable[..., Format]]

    @property
    def height(self) -> int:
        """Rows of a vector."""
        return self.spec.blocks.rows

    @property
    def strips(self) -> int:
        """Vector rows, a short last one counted."""
        return self.spec.fibers(self.shape)[0][0]

    @property
    def values(self) -> Any:
        """The stored values, flat, in the order of the format."""
        return self.arrays["values"]

    @classmethod
    def encode(cls, spec: Format, lib: Library, bits: Any) -> Any:
        """Encode a dense matrix, given as its signed bits, with columns listed in 32 bits if 16 do not hold them."""
        options = dict(spec.options)
        narrow = int(bits.shape[1]) > INDICES[options["index"]].range[1]  # the last number is -1
        return super().encode(cls.format_of(spec.dtype, **{**options, "index": 32}) if narrow else spec, lib, bits)

    def to_scipy(self) -> Any:
        """As any matrix's; of sums (int32) every element of the vectors that are kept, zeros too: they have a pattern.

        A ``scipy.sparse.csr_array`` of the integers.
        """
        if self.kind is not s32:
            return super().to_scipy()
        import scipy.sparse

        host, rows = self.to_host(), self.strips
        with host.library.active():
            starts = host.spec.starts(host.library, host.arrays, 0, rows)
            values = host.spec.values(host.library, host.arrays, 0, int(starts[-1])).reshape(-1, self.height)
        strip, column = np.repeat(np.arange(rows), np.diff(starts)), host.library.wide(host.arrays["idx"])
        there = column < self.shape[1]
        row = (strip[there, None] * self.height + np.arange(self.height)).reshape(-1)
        column, values = np.repeat(column[there], self.height), values[there].reshape(-1)
        inside = row < self.shape[0]
        order = np.argsort(row[inside], kind="stable")
        pointers = np.concatenate([[0], np.cumsum(np.bincount(row[inside], minlength=self.shape[0]))])
        found = values[inside][order], column[inside][order].astype(np.int32), pointers
        return scipy.sparse.csr_array(found, shape=self.shape)
