"""Bitmap tiles as our kernels read them: one 32-bit mask a lane, values in byte planes.

A tile is 16 rows x 64 columns: four A fragments of mma.m16n8k16 side by side. Lane (g, t) = (lane / 4, lane % 4) owns
eight elements of fragment f: of the rows g and g + 8 the columns 16 f + 4 t + j, j < 4. (The mma's own order of k
differs, which is free as long as x is read in the same order.) ``TILE`` is this map, ``MASK`` says which bit of the
lane's mask an element has, ``ORDER`` how the values follow one another.

Because an element of fragment f is one bit of a nibble, ``(mask >> f) & 0x11111111`` is one nibble an element, from
which a multiplication makes the selector of PRMT that spreads packed bytes; hence the byte planes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np

from sparsegen.formats.library import Library
from sparsegen.formats.matrix import Arrays, SparseMatrix, limit
from sparsegen.formats.nest import Nest
from sparsegen.ir.errors import FormatError
from sparsegen.ir.layout import Layout, layout

#: (row, col) of an element in its tile -> (fragment, lane, element of the lane's eight).
TILE: Final[Layout] = layout(
    {"row": 16, "col": 64}, lambda row, col: (col // 16, row % 8 * 4 + col % 16 // 4, row // 8 * 4 + col % 4)
)
#: -> its place among the tile's values, were all of them kept.
ORDER: Final[Layout] = layout({"f": 4, "lane": 32, "e": 8}, lambda f, lane, e: f * 256 + lane * 8 + e)
#: -> its bit in the lane's mask: row g in the upper half.
MASK: Final[Layout] = layout({"f": 4, "e": 8}, lambda f, e: f + e % 4 * 4 + (1 - e // 4) * 16)

SLACK: Final = 4  #: chunks of zeros behind the last one: a copy may run over the end by so much

_EVEN_BYTES: Final = 0x00FF00FF00FF00FF
_EVEN_PAIRS: Final = 0x0000FFFF0000FFFF
_LOW: Final = 0xFFFFFFFF


class Bitmap(SparseMatrix):
    """Tiles of 16 x 64, slab by slab (a slab is 64 columns), inside a slab strip by strip (16 rows).

    - ``masks`` uint32 [slabs, strips, 32]: each lane's mask (``MASK``).
    - ``values`` uint64 [chunks + 4]: the kept values of a tile in ``ORDER``, four of them a chunk {4 low bytes, 4 high
      bytes}. A tile starts at a new chunk; what is left of its last one is 0, and so are the last four chunks.
    - ``index`` uint32 [slabs * strips + 1, 4]: where the values of each fragment begin, counted from the first chunk in
      bytes of two-byte values (a chunk is eight); the last row is the end of the last tile.  So a tile's first chunk is
      word 0 / 8, and where the next one begins it ends.

    torch holds the same bits in signed integers.
    """

    format: ClassVar[str] = "bitmap"
    nest: ClassVar[Nest] = Nest(
        rows=(("h", 2), ("g", 8)), quads=(("f", 4), ("t", 4)), order=("slab", "strip", "f", "g", "t", "h"), align=4
    )
    parts: ClassVar[Mapping[str, str]] = {"masks": "uint32", "values": "uint64", "index": "uint32"}

    @property
    def masks(self) -> Any:
        return self.arrays["masks"]

    @property
    def values(self) -> Any:
        return self.arrays["values"]

    @property
    def index(self) -> Any:
        return self.arrays["index"]

    @property
    def strips(self) -> int:
        """Rows of tiles."""
        return self.nest.grid(self.shape)[0]

    @property
    def slabs(self) -> int:
        """Columns of tiles."""
        return self.nest.grid(self.shape)[1]

    def widest(self, rows: int) -> int:
        """The most chunks that any ``rows`` adjacent strips of one slab hold (all strips, if there are fewer)."""
        if rows < 1:
            raise ValueError(f"a run has at least one strip, not {rows}")
        with self.library.active():
            begins = self.library.wide(self.index)[:, 0] >> 3
            run = min(rows, self.strips)
            here, later = (begins[at : at + self.slabs * self.strips].reshape(self.slabs, -1) for at in (0, 1))
            return int((later[:, run - 1 :] - here[:, : self.strips - run + 1]).max())

    # ------------------------------------------------------------------------------------------------------- encoding
    @classmethod
    def _words(cls, lib: Library, octets: Any) -> tuple[Any, Any]:
        octets = octets.reshape(-1, 4, 32)
        # An octet's byte e is 0 or 1: the four fragments share the bytes, bit f of each.
        x = octets[:, 0] | octets[:, 1] << 1 | octets[:, 2] << 2 | octets[:, 3] << 3
        x = (x | x >> 4) & _EVEN_BYTES
        x = (x | x >> 8) & _EVEN_PAIRS  # row g in bits 0-15, row g + 8 in bits 32-47
        mask = (x << 16 | x >> 32) & _LOW
        return lib.narrow(mask), cls._counts(lib, mask)

    @staticmethod
    def _counts(lib: Library, mask: Any) -> Any:
        """The values of each fragment, int64 [tiles, 4], from masks [tiles, 32] as int64."""
        counts = lib.zeros((mask.shape[0], 4), "int64")
        for f in range(4):
            # The top nibble of the product is the sum of the eight nibbles, 0 or 1 each.
            lane = ((mask >> f & 0x11111111) * 0x11111111 >> 28) & 15
            counts[:, f] = lane.sum(-1)
        return counts

    @staticmethod
    def _index(lib: Library, counts: Any) -> Any:
        """The index, int64 [tiles + 1, 4], from the values of each fragment."""
        tiles = counts.shape[0]
        ends = lib.cumsum((counts.sum(-1) + 3) >> 2)
        index = lib.zeros((tiles + 1, 4), "int64")
        index[1:, 0] = 8 * ends
        index[tiles] = 8 * ends[-1]
        for f in (1, 2, 3):
            index[:tiles, f] = index[:tiles, f - 1] + 2 * counts[:, f - 1]
        return index

    @classmethod
    def _stream(cls, lib: Library, values: Any) -> Any:
        x = lib.view(values, "int64")
        return _gather_bytes(x) | _gather_bytes(x >> 8) << 32

    @classmethod
    def _assemble(cls, lib: Library, grid: tuple[int, int], words: Any, counts: Any, streams: list[Any]) -> Arrays:
        strips, slabs = grid
        values = lib.concatenate([*streams, lib.zeros((SLACK,), "int64")])
        limit("chunks of four values", int(values.shape[0]), 29)
        return {
            "masks": words.reshape(slabs, strips, 32),
            "values": lib.word(values),
            "index": lib.narrow(cls._index(lib, counts)),
        }

    # ------------------------------------------------------------------------------------------------------- decoding
    def _band(self, first: int, last: int) -> tuple[Any, Any, Any]:
        lib = self.library
        mask = lib.wide(self.masks.reshape(-1, 32)[first:last])
        x = mask >> 16 | (mask & 0xFFFF) << 32
        x = (x | x << 8) & _EVEN_BYTES
        x = (x | x << 4) & 0x0F0F0F0F0F0F0F0F
        octets = lib.zeros((last - first, 4, 32), "int64")
        for f in range(4):
            octets[:, f] = x >> f & 0x0101010101010101
        begin, end = (int(lib.wide(self.index[at : at + 1])[0, 0]) >> 3 for at in (first, last))
        chunks = lib.view(self.values[begin:end], "int64")
        values = _spread_bytes(chunks & _LOW) | _spread_bytes(chunks >> 32 & _LOW) << 8
        counts = self._counts(lib, mask).sum(-1)
        return octets.reshape(-1, 128), counts, lib.view(values, "int16")

    def check(self) -> None:
        lib = self.library
        self._expect({"masks": (self.slabs, self.strips, 32), "index": (self.slabs * self.strips + 1, 4)})
        tiles = self.slabs * self.strips
        counts = self._counts(lib, lib.wide(self.masks.reshape(tiles, 32)))
        index = self._index(lib, counts)
        self._expect({"values": ((int(index[-1, 0]) >> 3) + SLACK,)})
        if not np.array_equal(lib.narrow(index).reshape(self.index.shape), self.index) or counts.sum() != self.nnz:
            raise FormatError("the index contradicts the masks", hint="encode the matrix anew with sparsegen.sparse")


def _gather_bytes(x: Any) -> Any:
    """The low bytes of an int64's four 16-bit parts, side by side in its low half."""
    x = x & _EVEN_BYTES
    x = (x | x >> 8) & _EVEN_PAIRS
    return (x | x >> 16) & _LOW


def _spread_bytes(x: Any) -> Any:
    """The inverse: four bytes of the low half to the low bytes of the 16-bit parts."""
    x = (x | x << 16) & _EVEN_PAIRS
    return (x | x << 8) & _EVEN_BYTES
