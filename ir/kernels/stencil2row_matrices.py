"""The matrices of ``stencil2row``: where a tile's window goes, what the products read, and the host's tables."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from .. import op as o
from ..fragments import SHAPES
from ..layout import Layout, layout, row_major, stencil2row_a, stencil2row_b
from ..numbers import stencil2row as numbers
from ..tile import NOWHERE


class Matrices(numbers.Matrices):
    """A and B as layouts, and the host's tables of them.

    ``base``: the mma shape whose fragments hold the sums; ``dirty``: elements that A or B has no place for go to a slot
    of their own.
    """

    def __init__(self, k: int, height: int, rows: int, cols: int, base: str, pad: bool, dirty: bool) -> None:
        super().__init__(k=k, height=height, rows=rows, cols=cols, m=SHAPES[base].m, pad=pad)
        self.k, self.height, self.rows, self.base, self.dirty = k, height, rows, base, dirty

    def _shifted(self, m: Layout) -> Layout:
        return Layout(m.dims, m.extents, (m.index[0] + self.a_size,), m.where)

    @cached_property
    def windows(self) -> tuple[Layout, Layout]:
        """Where the window's elements go in A and in B (ConvStencil, equations 5 and 6)."""
        to = row_major((self.groups, self.stride))
        a = to @ stencil2row_a(self.k, self.groups, self.window[0])
        return a, self._shifted(to @ stencil2row_b(self.k, self.groups, self.window[0]))

    @cached_property
    def operands(self) -> tuple[Layout, Layout]:
        """(product i, fragment row m, column q) to an element of A, and of B: each product moves on by k elements."""
        k, rows, m_rows, stride = self.k, self.rows, SHAPES[self.base].m, self.stride
        dims = {"i": self.products, "m": m_rows, "q": self.depth}
        a = layout(dims, lambda i, m, q: (m + i // rows * m_rows) * stride + i % rows * k + q)
        return a, self._shifted(a)

    def padding(self) -> Any:
        """Elements of A and B that a product reads and no copy writes: they must be zero (0 * NaN is NaN)."""
        read = np.unique(np.concatenate([m.tables()[0].ravel() for m in self.operands]))
        written = np.concatenate([m.tables()[0][m.mask()] for m in self.windows])
        return np.setdiff1d(read, written).astype(np.int32)

    def lookup(self) -> Any:
        """For each element of the window: its places in A and B (low, high half), and its (row, column) alike."""
        spare = 2 * self.a_size if self.dirty else NOWHERE
        a, b = (np.where(m.mask(), m.tables()[0], spare) for m in self.windows)
        r, c = np.indices(a.shape)
        return np.stack([a | b << 16, r << 16 | c], axis=-1).astype(np.uint32).ravel()

    def triangular(self, taps: Iterable[o.Tap]) -> Any:
        """W_A and W_B of a plane's taps (the last two axes of their offsets count), [2, depth, 8 * blocks].

        Row i*k + j, column c is w[i, j-c] for j >= c, and w[i, j-c+k] for j < c.
        """
        k = self.k
        w = np.zeros((self.height, k))
        for offset, value in taps:
            w[offset[-2] + self.height // 2, offset[-1] + k // 2] = value
        out = np.zeros((2, self.depth, 8 * self.blocks))
        for i in range(self.height):
            for j in range(k):
                for c in range(k + 1):
                    if j >= c:
                        out[0, i * k + j, c] = w[i, j - c]
                    elif j - c + k >= 0:
                        out[1, i * k + j, c] = w[i, j - c + k]
        return out

    def fragments(self, triangles: Any) -> Any:
        """W_A and W_B in the order of operand B's fragments: register block * slices + slice of each lane."""
        lane = np.arange(32)
        slices = triangles.reshape(2 * self.depth // 4, 4, self.blocks, 8)  # slice, q, block, column
        return slices[:, lane % 4, :, lane // 4].transpose(2, 1, 0).ravel()
