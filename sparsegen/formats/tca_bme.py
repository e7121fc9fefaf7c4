"""Nested bitmap tiles as in SpInfer (TCA-BME): a 64-bit bitmap for each 8 x 8 tile, values in the order of the bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np

from sparsegen.formats.library import Library
from sparsegen.formats.matrix import Arrays, SparseMatrix, limit
from sparsegen.formats.nest import Nest
from sparsegen.ir.errors import FormatError
from sparsegen.ir.layout import Layout, layout

#: (row, col) of an element in its 8 x 8 tile -> its bit in the bitmap.
BIT: Final[Layout] = layout({"row": 8, "col": 8}, lambda row, col: row * 8 + col)


class TcaBme(SparseMatrix):
    """Three levels: 8 x 8 bitmap tiles; 2 x 2 of them, column by column, for the registers of one A fragment of
    mma.m16n8k16; 4 x 4 of those, row by row, in a group of 64 x 64. Groups follow one another row by row.

    - ``offsets`` uint32 [groups + 1]: the first value of each group, counted in values; at the end, all of them.
    - ``bitmaps`` uint64 [groups * 64]: ``BIT`` of each tile.
    - ``values`` uint16: the kept values' bits, tile after tile; each group is filled with zeros up to 16 bytes.

    torch holds the same bits in signed integers.
    """

    format: ClassVar[str] = "tca_bme"
    nest: ClassVar[Nest] = Nest(
        rows=(("down", 4), ("lower", 2), ("row", 8)),
        quads=(("across", 4), ("right", 2), ("quad", 2)),
        order=("strip", "slab", "down", "across", "right", "lower", "row", "quad"),
        align=8,
    )
    parts: ClassVar[Mapping[str, str]] = {"offsets": "uint32", "bitmaps": "uint64", "values": "uint16"}

    @property
    def offsets(self) -> Any:
        return self.arrays["offsets"]

    @property
    def bitmaps(self) -> Any:
        return self.arrays["bitmaps"]

    @property
    def values(self) -> Any:
        return self.arrays["values"]

    @property
    def groups(self) -> int:
        """Groups of 64 x 64 (the paper's NGT)."""
        strips, slabs = self.nest.grid(self.shape)
        return strips * slabs

    @property
    def nbytes_formula(self) -> int:
        """The paper's count, 4 (NGT + 1) + 8 NBT + 2 NNZ: less than ``nbytes`` by what fills the groups up."""
        return 4 * (self.groups + 1) + 8 * 64 * self.groups + 2 * self.nnz

    # ------------------------------------------------------------------------------------------------------- encoding
    @classmethod
    def _words(cls, lib: Library, octets: Any) -> tuple[Any, Any]:
        # Byte i of an octet, 0 or 1, becomes bit 56 + i of the product; an octet is a tile's row.
        rows = (octets * 0x0102040810204080 >> 56) & 0xFF
        low = lib.view(lib.packed(rows), "uint8").reshape(-1, 8)[:, 0]
        bitmaps = lib.view(lib.packed(low), "int64").reshape(-1, 64)
        return lib.word(bitmaps), cls._counts(bitmaps)

    @staticmethod
    def _counts(bitmaps: Any) -> Any:
        """The values of each tile, from bitmaps as int64 of any shape."""
        x = bitmaps - (bitmaps >> 1 & 0x5555555555555555)
        x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333)
        x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0F
        return (x * 0x0101010101010101 >> 56) & 0xFF

    @staticmethod
    def _stored(counts: Any) -> Any:
        """Values that are stored for each group, from the counts of its tiles: a multiple of 8."""
        return (counts.sum(-1) + 7) & -8

    @classmethod
    def _stream(cls, lib: Library, values: Any) -> Any:
        return values

    @classmethod
    def _assemble(cls, lib: Library, grid: tuple[int, int], words: Any, counts: Any, streams: list[Any]) -> Arrays:
        values = lib.concatenate(streams)
        limit("values", int(values.shape[0]), 32)
        ends = lib.cumsum(cls._stored(counts))
        offsets = lib.concatenate([lib.zeros((1,), "int64"), ends])
        return {"offsets": lib.narrow(offsets), "bitmaps": words.reshape(-1), "values": lib.word(values)}

    # ------------------------------------------------------------------------------------------------------- decoding
    def _band(self, first: int, last: int) -> tuple[Any, Any, Any]:
        lib = self.library
        bitmaps = lib.view(self.bitmaps[64 * first : 64 * last], "int64").reshape(-1, 64)
        x = lib.wide(lib.view(bitmaps, "uint8"))
        x = (x | x << 28) & 0x0000000F0000000F
        x = (x | x << 14) & 0x0003000300030003
        octets = (x | x << 7) & 0x0101010101010101
        offsets = lib.wide(self.offsets[first : last + 1])
        values = lib.view(self.values[int(offsets[0]) : int(offsets[-1])], "int16")
        return octets, self._counts(bitmaps).sum(-1), values

    def check(self) -> None:
        lib = self.library
        self._expect({"offsets": (self.groups + 1,), "bitmaps": (64 * self.groups,)})
        counts = self._counts(lib.view(self.bitmaps, "int64").reshape(-1, 64))
        ends = lib.cumsum(self._stored(counts))
        self._expect({"values": (int(ends[-1]),)})
        if self.offsets[0] != 0 or not np.array_equal(ends, self.offsets[1:]) or counts.sum() != self.nnz:
            raise FormatError("the offsets contradict the bitmaps", hint="encode the matrix anew with sparsegen.sparse")
