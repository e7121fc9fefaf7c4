"""Nested tiles: how the elements of a matrix follow one another in storage, and how the absent ones are left out.

Both formats are a ``Nest``: blocks of a fixed size, an order of digits inside a block, and an alignment of each block's
values. The unit that moves is a quad, four adjacent 16-bit elements of a row, which is an int64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from sparsegen.formats.library import Library
from sparsegen.ir.expr import Const, Expr
from sparsegen.ir.layout import Layout, layout

Digits = tuple[tuple[str, int], ...]

TAIL: Final = 8  #: elements behind each block in a buffer: where zeros stand that fill the block up to its alignment


@dataclass(frozen=True)
class Nest:
    """Blocks of nested tiles.

    ``rows`` and ``quads`` are the digits (name, radix) of a row, and of a quad of columns, inside a block, outermost
    first. ``order`` names all digits in storage order, slowest first, with ``strip`` for the row of blocks and ``slab``
    for the column of blocks. ``align``: each block's values start at a multiple of so many (a power of two).
    """

    rows: Digits
    quads: Digits
    order: tuple[str, ...]
    align: int

    @property
    def height(self) -> int:
        """Rows of a block."""
        return prod(n for _, n in self.rows)

    @property
    def width(self) -> int:
        """Columns of a block."""
        return 4 * prod(n for _, n in self.quads)

    @property
    def size(self) -> int:
        """Elements of a block."""
        return self.height * self.width

    def grid(self, shape: tuple[int, int]) -> tuple[int, int]:
        """(strips, slabs): blocks down and across that cover a matrix."""
        return -(-shape[0] // self.height), -(-shape[1] // self.width)

    def layout(self) -> Layout:
        """(row, col) of an element in its block -> its position among all the block's elements."""
        radix = dict((*self.rows, *self.quads))

        def position(row: Expr, col: Expr) -> Expr:
            digit: dict[str, Expr] = {}
            for value, digits in ((row, self.rows), (col // 4, self.quads)):
                below = 1
                for name, n in reversed(digits):
                    digit[name] = value // below % n
                    below *= n
            at: Expr = Const(0)
            for name in self.order[2:]:
                at = at * radix[name] + digit[name]
            return at * 4 + col % 4

        return layout({"row": self.height, "col": self.width}, position)

    # ------------------------------------------------------------------------------------------------------- bands
    def bands(self, shape: tuple[int, int], elements: int) -> Iterator[tuple[int, int]]:
        """Ranges of the slowest block axis with about so many elements each: storage in order, piece by piece."""
        strips, slabs = self.grid(shape)
        outer, inner = (slabs, strips) if self.order[0] == "slab" else (strips, slabs)
        step = max(1, elements // (inner * self.size))
        for first in range(0, outer, step):
            yield first, min(outer, first + step)

    def _window(self, shape: tuple[int, int], band: tuple[int, int]) -> tuple[slice, slice]:
        """The rows and columns of the matrix that a band covers, cut at its edges."""
        along, (first, last) = self.order[0] == "slab", band
        unit, extent = (self.width, shape[1]) if along else (self.height, shape[0])
        cut = slice(first * unit, min(last * unit, extent))
        return (slice(0, shape[0]), cut) if along else (cut, slice(0, shape[1]))

    def _split(self, strips: int, slabs: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The quads of a window digit by digit: extents in the matrix's order, in storage order, the permutation."""
        names = ["strip", *(d for d, _ in self.rows), "slab", *(d for d, _ in self.quads)]
        extents = (strips, *(n for _, n in self.rows), slabs, *(n for _, n in self.quads))
        axes = tuple(names.index(name) for name in self.order)
        return extents, tuple(extents[a] for a in axes), axes

    def gather(self, lib: Library, bits: Any, band: tuple[int, int]) -> Any:
        """A band of a matrix (int16 bits, any strides) block by block: int16 [blocks, size + TAIL], zeros behind."""
        rows, cols = self._window(tuple(bits.shape), band)
        inside = (rows.stop - rows.start, cols.stop - cols.start)
        strips, slabs = self.grid(inside)
        window = lib.zeros((strips * self.height, slabs * self.width), "int16")
        window[: inside[0], : inside[1]] = bits[rows, cols]
        extents, stored, axes = self._split(strips, slabs)
        out = lib.zeros((strips * slabs, (self.size + TAIL) // 4), "int64")
        # A view (the last axis alone is split, and the first): so this writes into ``out``.
        nested = out[:, : self.size // 4].reshape(stored)
        nested[...] = lib.transpose(lib.view(window, "int64").reshape(extents), axes)
        return lib.view(out, "int16")

    def scatter(self, lib: Library, blocks: Any, out: Any, band: tuple[int, int]) -> None:
        """The inverse of ``gather``: write a band's blocks to where they belong in ``out`` (int16, packed)."""
        rows, cols = self._window(tuple(out.shape), band)
        inside = (rows.stop - rows.start, cols.stop - cols.start)
        strips, slabs = self.grid(inside)
        extents, stored, axes = self._split(strips, slabs)
        nested = lib.view(blocks, "int64")[:, : self.size // 4].reshape(stored)
        window = lib.zeros(extents, "int64")
        lib.transpose(window, axes)[...] = nested
        flat = lib.view(window, "int16").reshape(strips * self.height, slabs * self.width)
        out[rows, cols] = flat[: inside[0], : inside[1]]

    # -------------------------------------------------------------------------------------------------- kept elements
    def octets(self, lib: Library, present: Any) -> Any:
        """Eight elements as the eight bytes (0 or 1) of an int64, the first lowest: [blocks, size / 8]."""
        return lib.view(present, "int64")[:, : self.size // 8]

    def from_octets(self, lib: Library, octets: Any) -> Any:
        """The inverse of ``octets``; the tail is False."""
        out = lib.zeros((octets.shape[0], (self.size + TAIL) // 8), "int64")
        out[:, : self.size // 8] = octets
        return lib.view(out, "bool")

    def fill(self, lib: Library, present: Any, counts: Any) -> None:
        """Mark as many zeros of each block's tail as fill its ``counts`` (int64) values up to the alignment."""
        present[:, self.size :] = lib.arange(TAIL) < (-counts & (self.align - 1)).reshape(-1, 1)
