"""Blocks of a matrix and the order of the elements in one: a layout, read as digits where it only reorders them.

A layout whose sizes are powers of two mostly moves bits: the position's digits are the digits of row and column in
another order.  Then a whole band of blocks is one transposition, which all array libraries do at memory speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np

from sparsegen.formats.library import Library
from sparsegen.ir.errors import FormatError
from sparsegen.ir.layout import Layout, row_major

Band = tuple[int, int]
#: (weight in row-major order, radix) of each digit of a position, slowest first.
Digits = tuple[tuple[int, int], ...]


def digits(order: Layout) -> Digits | None:
    """The digits of a block's positions, adjacent ones joined; None if the layout does more than reorder bits.

    Row by row they are row and column, whatever the block's size.
    """
    source, (rows, cols) = order.inverse_table().ravel(), order.extents
    if np.array_equal(source, np.arange(source.size)):
        return _row_major(rows, cols)
    found: list[tuple[int, int]] = []
    for at in reversed(range((source.size - 1).bit_length())):
        weight = int(source[1 << at])
        if found and found[-1][0] == 2 * weight != cols:
            found[-1] = (weight, 2 * found[-1][1])
        else:
            found.append((weight, 2))
    rebuilt = np.zeros(1, np.int64)
    for weight, radix in found:
        rebuilt = (rebuilt[:, None] + weight * np.arange(radix)).ravel()
    return tuple(found) if np.array_equal(rebuilt, source) else None


def _row_major(rows: int, cols: int) -> Digits:
    return tuple((weight, radix) for weight, radix in ((cols, rows), (1, cols)) if radix > 1)


@dataclass(frozen=True)
class Blocked:
    """Blocks of ``rows`` x ``cols``; ``order``: (row, col) of an element in its block -> its position, without holes.

    Hence three coordinates of an element: ``strip`` and ``slab``, the block's place down and across, and ``element``,
    the position in it.  At the matrix's edges blocks are filled with zeros.
    """

    rows: int
    cols: int
    order: Layout

    def __post_init__(self) -> None:
        if self.order.extents != (self.rows, self.cols) or (self.order.inverse_table() < 0).any():
            raise FormatError(
                f"{self.order} is no order of the elements of a block {self.rows}x{self.cols}",
                hint="give each (row, col) of the block a position of its own, 0 to rows * cols - 1",
            )

    @staticmethod
    def plain(rows: int, cols: int) -> Blocked:
        """Blocks whose elements stand row by row."""
        return Blocked(rows, cols, row_major((rows, cols), names=("row", "col")))

    @property
    def size(self) -> int:
        """Elements of a block."""
        return self.rows * self.cols

    def grid(self, shape: tuple[int, int]) -> tuple[int, int]:
        """(strips, slabs): blocks down and across that cover a matrix."""
        return -(-shape[0] // self.rows), -(-shape[1] // self.cols)

    @cached_property
    def _digits(self) -> Digits | None:
        return digits(self.order)

    def _nested(self, outer: tuple[str, str], grid: tuple[int, int], itemsize: int) -> _Nested:
        moved = _row_major(self.rows, self.cols) if self._digits is None else self._digits
        adjacent = bool(moved) and moved[-1][0] == 1 < self.cols
        run = gcd(moved[-1][1], 8 // itemsize) if adjacent else 1
        if run > 1:
            moved = (*moved[:-1], *([(run, moved[-1][1] // run)] if moved[-1][1] > run else []))
        place: dict[str | int, int] = {"strip": grid[0], "slab": grid[1], **dict(moved)}
        inside = sorted((weight for weight, _ in moved), reverse=True)
        dense: list[str | int] = [
            "strip",
            *(w for w in inside if w >= self.cols),
            "slab",
            *(w for w in inside if w < self.cols),
        ]
        stored: tuple[str | int, ...] = (*outer, *(weight for weight, _ in moved))
        axes = tuple(dense.index(name) for name in stored)
        return _Nested(run, tuple(place[name] for name in dense), axes)

    def gather(self, lib: Library, window: Any, outer: tuple[str, str], room: tuple[int, int]) -> Any:
        """A window of a matrix (signed bits, any strides) block by block: [outer[0], outer[1], element].

        ``room``: so many zeros more along the last two axes.
        """
        strips, slabs = grid = self.grid(window.shape)
        itemsize = int(window.itemsize)
        full = lib.zeros((strips * self.rows, slabs * self.cols), f"int{8 * itemsize}")
        full[: window.shape[0], : window.shape[1]] = window
        n = self._nested(outer, grid, itemsize)
        word = f"int{8 * itemsize * n.run}"
        first, second = (strips, slabs) if outer[0] == "strip" else (slabs, strips)
        out = lib.zeros((first, second + room[0], (self.size + room[1]) // n.run), word)
        # A view (each axis alone is cut and split), so this writes into ``out``.
        nested = out[:, :second, : self.size // n.run].reshape(n.stored)
        nested[...] = lib.transpose(lib.view(full, word).reshape(n.dense), n.axes)
        out = lib.view(out, f"int{8 * itemsize}")
        if self._digits is None:
            out[..., : self.size] = out[..., lib.constant(self.order.inverse_table().ravel())]
        return out

    def scatter(self, lib: Library, blocks: Any, outer: tuple[str, str], window: Any) -> None:
        """The inverse of ``gather``: write blocks, with room behind or not, to where they belong in ``window``."""
        strips, slabs = grid = self.grid(window.shape)
        itemsize = int(window.itemsize)
        n = self._nested(outer, grid, itemsize)
        word = f"int{8 * itemsize * n.run}"
        second = slabs if outer[0] == "strip" else strips
        if self._digits is None:
            blocks = lib.packed(blocks[..., lib.constant(self.order.tables()[0].ravel())])
        nested = lib.view(blocks, word)[:, :second, : self.size // n.run].reshape(n.stored)
        full = lib.zeros(n.dense, word)
        lib.transpose(full, n.axes)[...] = nested
        flat = lib.view(full.reshape(strips * self.rows, slabs * self.cols // n.run), f"int{8 * itemsize}")
        window[...] = flat[: window.shape[0], : window.shape[1]]


@dataclass(frozen=True)
class _Nested:
    """Blocks digit by digit: ``run`` adjacent elements move as one; extents in the matrix's order; the permutation."""

    run: int
    dense: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def stored(self) -> tuple[int, ...]:
        """The extents in storage order."""
        return tuple(self.dense[axis] for axis in self.axes)
