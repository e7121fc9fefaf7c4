"""A matrix whose rows are in an order, cut into tiles: those that hold enough are kept whole, the rest by rows.

Which tile each entry lies in depends on the order alone, so thresholds are tried without sorting again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparsegen.formats.csr import Csr
from sparsegen.formats.library import Library
from sparsegen.formats.rows import Rows
from sparsegen.ir.types import DType, s32
from sparsegen.reordering.blocks import first_of_runs


@dataclass(frozen=True, eq=False)
class Tiled:
    """The entries of a matrix in a new order of rows, and the tiles tau x tau that they lie in.

    ``order``: new -> old, int64 [rows].  Of each entry ``row`` (its new one), ``col`` and ``bits``.  ``by_tile``: the
    entries tile by tile; ``keys``: the tiles that hold any, strip * across + slab, ascending; ``starts``: where those
    of each tile begin in ``by_tile``, and at the end how many there are.
    """

    library: Library
    shape: tuple[int, int]
    tile: int
    order: Any
    row: Any
    col: Any
    bits: Any
    by_tile: Any
    keys: Any
    starts: Any

    @staticmethod
    def of(matrix: Csr, permutation: Any, tile: int) -> Tiled:
        """A matrix in an order (new -> old) given in NumPy."""
        rows, bits = Rows.of(matrix), matrix.library.view(matrix.arrays["values"], matrix.spec.raw)
        lib = rows.library
        order = lib.constant(permutation)
        ptr, entry = moved(rows, order)
        row, col = lib.fibers(ptr, rows.nnz), rows.idx[entry]
        keys = row // tile * -(-rows.shape[1] // tile) + col // tile
        by_tile = lib.order(keys)
        begins = first_of_runs(lib, keys[by_tile])
        starts = lib.zeros((int(begins.shape[0]) + 1,), "int64")
        starts[:-1], starts[-1:] = begins, rows.nnz
        return Tiled(lib, rows.shape, tile, order, row, col, bits[entry], by_tile, keys[by_tile[begins]], starts)

    def dense(self, delta: float) -> int:
        """How many tiles hold more than the share ``delta`` of their elements."""
        return int(self._full(delta).sum())

    def _full(self, delta: float) -> Any:
        return self.starts[1:] - self.starts[:-1] > delta * self.tile**2

    def cut(self, delta: float, dtype: DType) -> tuple[Mapping[str, Any], int]:
        """The arrays of :mod:`sparsegen.formats.hybrid` with values of a dtype, and the elements kept."""
        lib, tile, entries = self.library, self.tile, int(self.row.shape[0])
        strips, across = (-(-extent // tile) for extent in self.shape)
        full = self._full(delta)
        run = lib.zeros((entries,), "int64")  # of each entry the tile that it lies in, of those that have any
        run[self.by_tile] = lib.fibers(self.starts, entries)
        inside = full[run]
        tiles = self.keys[full]
        place = ((lib.cumsum(full) - 1)[run] * tile + self.row % tile) * tile + self.col % tile
        values = lib.zeros((int(tiles.shape[0]) * tile**2,), f"int{dtype.bits}")
        values[place[inside]] = self.bits[inside]
        return {
            "order": lib.cast(self.order, s32),
            "ptr": lib.cast(pointers(lib, tiles // across, strips), s32),
            "idx": lib.cast(tiles % across, s32),
            "values": lib.view(values, dtype),
            "rest_ptr": lib.cast(pointers(lib, self.row[~inside], self.shape[0]), s32),
            "rest_idx": lib.cast(self.col[~inside], s32),
            "rest_values": lib.view(self.bits[~inside], dtype),
        }, int((values != 0).sum()) + int((~inside).sum())


def moved(rows: Rows, order: Any) -> tuple[Any, Any]:
    """Of rows in an order (new -> old): where they begin, and which old entry each new one is."""
    lib = rows.library
    lengths = (rows.ptr[1:] - rows.ptr[:-1])[order]
    ptr = lib.zeros((rows.shape[0] + 1,), "int64")
    ptr[1:] = lib.cumsum(lengths)
    row = lib.fibers(ptr, rows.nnz)
    return ptr, lib.arange(rows.nnz) + (rows.ptr[:-1][order] - ptr[:-1])[row]


def pointers(lib: Library, fiber: Any, count: int) -> Any:
    """Where each of so many fibers begins, from the fiber of each entry: int64 [count + 1]."""
    ptr = lib.zeros((count + 1,), "int64")
    ptr[1:] = lib.cumsum(lib.xp.bincount(fiber, minlength=count))
    return ptr
