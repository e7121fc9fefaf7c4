"""Bitmap tiles as our kernels read them: one 32-bit mask a lane, values in byte planes.

A tile is 16 rows x 64 columns: four A fragments of mma.m16n8k16 side by side. Lane (g, t) = (lane / 4, lane % 4) owns
eight elements of fragment f: of the rows g and g + 8 the columns 16 f + 4 t + j, j < 4. (The mma's own order of k
differs, which is free as long as x is read in the same order.) ``TILE`` is this map, ``MASK`` says which bit of the
lane's mask an element has, ``ORDER`` how the values follow one another.

Because an element of fragment f is one bit of a nibble, ``(mask >> f) & 0x11111111`` is one nibble an element, from
which a multiplication makes the selector of PRMT that spreads packed bytes; hence the byte planes.

Tiles come slab by slab (a slab is 64 columns), inside a slab strip by strip (16 rows):

- ``index`` uint32 [slabs * strips + 1, 4]: where the values of each fragment begin, counted from the first chunk in
  bytes of two-byte values (a chunk is eight); the last row is the end of the last tile.  So a tile's first chunk is
  word 0 / 8, and where the next one begins it ends.
- ``masks`` uint32 [slabs, strips, 32]: each lane's mask (``MASK``).
- ``values`` uint64 [chunks + 4]: the kept values of a tile in ``ORDER``, four of them a chunk {4 low bytes, 4 high
  bytes}. A tile starts at a new chunk; what is left of its last one is 0, and so are the last four chunks.

Elements of 8 bits (i8, e4m3, e5m2) have one plane: a chunk is eight of them, and the index counts their bytes. Integers
are stored as v + 128, which needs one instruction less to become f16; the last four chunks are 0 as they are.

torch holds the same bits in signed integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from sparsegen.formats.axes import Dense, Mask, Pointers, Stored
from sparsegen.formats.blocks import Blocked
from sparsegen.formats.format import Format
from sparsegen.formats.library import Library
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.layout import Layout, layout
from sparsegen.ir.numbers import bitmap as numbers
from sparsegen.ir.types import DType, u32, u64

#: (row, col) of an element in its tile -> (fragment, lane, element of the lane's eight).
TILE: Final[Layout] = layout(
    {"row": 16, "col": 64}, lambda row, col: (col // 16, row % 8 * 4 + col % 16 // 4, row // 8 * 4 + col % 4)
)
#: -> its place among the tile's values, were all of them kept.
ORDER: Final[Layout] = layout({"f": 4, "lane": 32, "e": 8}, lambda f, lane, e: f * 256 + lane * 8 + e)
#: -> its bit in the lane's mask: row g in the upper half.
MASK: Final[Layout] = layout({"f": 4, "e": 8}, lambda f, e: f + e % 4 * 4 + (1 - e // 4) * 16)
#: (value of a chunk, its byte) -> byte of the chunk.
CHUNK: Final[Layout] = layout({"value": 4, "byte": 2}, lambda value, byte: byte * 4 + value)

SLACK: Final = 4  #: chunks of zeros behind the last one: a copy may run over the end by so much


@cache
def bitmap(dtype: DType) -> Format:
    """The format for f16, bf16 or elements of 8 bits."""
    each, item = values_of(dtype), dtype.nbytes
    masks = Mask(
        "element",
        Stored("masks", u32),
        Pointers("index", u32, align=each, unit=item, parts=4),
        layout({"f": 4, "lane": 32, "e": 8}, lambda f, lane, e: (lane, MASK(f, e))),
    )
    axes, planes = (Dense("slab"), Dense("strip"), masks), CHUNK if item == 2 else None
    blocks = Blocked(16, 64, ORDER @ TILE)
    return Format("bitmap", dtype, blocks, axes, u64, planes, each * SLACK, excess=dtype.is_int)


def values_of(dtype: DType) -> int:
    """Values of a chunk."""
    return numbers.CHUNK // dtype.nbytes


class Bitmap(SparseMatrix):
    """A matrix in bitmap tiles, with what products ask of it."""

    @property
    def masks(self) -> Any:
        return self.arrays["masks"]

    @property
    def values(self) -> Any:
        return self.arrays["values"]

    @property
    def index(self) -> Any:
        return self.arrays["index"]

    def widest(self, rows: int) -> int:
        """The most chunks that any ``rows`` adjacent strips of one slab hold (all strips, if there are fewer)."""
        if rows < 1:
            raise ValueError(f"a run has at least one strip, not {rows}")
        return Tiles.of(self).widest(rows)


@dataclass(frozen=True, eq=False)
class Tiles:
    """Where the chunks of each tile begin, and those of the last one end: ``starts`` int64 [slabs * strips + 1].

    ``grid``: strips and slabs.
    """

    library: Library
    grid: tuple[int, int]
    starts: Any

    @staticmethod
    def of(w: SparseMatrix) -> Tiles:
        """The tiles of a matrix that may be in some; where it is in another format they are counted, not encoded."""
        lib, spec = w.library, bitmap(w.kind)
        assert spec.sparse.ptr is not None
        with lib.active():
            index = lib.wide(w.arrays["index"]) if isinstance(w, Bitmap) else spec.sparse.ptr.of(lib, _fragments(w))
            return Tiles(lib, spec.blocks.grid(w.shape), index[:, 0] >> 3)

    @property
    def chunks(self) -> int:
        """Chunks of all tiles, without those behind the last one."""
        return int(self.starts[-1])

    def widest(self, rows: int) -> int:
        """The most chunks of any ``rows`` adjacent strips of one slab."""
        strips, slabs = self.grid
        run = min(rows, strips)
        with self.library.active():
            here, later = (self.starts[at : at + slabs * strips].reshape(slabs, -1) for at in (0, 1))
            return int((later[:, run - 1 :] - here[:, : strips - run + 1]).max())


def _fragments(w: SparseMatrix) -> Any:
    """The elements of each fragment of each tile, int64 [slabs * strips, 4]."""
    lib, (strips, slabs) = w.library, bitmap(w.kind).blocks.grid(w.shape)
    counts = lib.zeros((strips, slabs * 4), "int64")
    for band, window in w.spec.bands(w.shape, lib.band):
        (rows, cols), (top, left) = (cut.stop - cut.start for cut in window), (cut.start // 16 for cut in window)
        down, across = -(-rows // 16), -(-cols // 16)
        piece = lib.zeros((down * 16, across * 16), w.spec.raw)
        w.spec.restore(lib, w.arrays, band, piece[:rows, :cols], w.shape)
        some = (piece != 0).reshape(down, 16, across * 16).sum(1).reshape(down, across, 16).sum(2)
        counts[top : top + down, left : left + across] = some
    return lib.transpose(counts.reshape(strips, slabs, 4), (1, 0, 2)).reshape(-1, 4)


def tiled(w: SparseMatrix) -> Bitmap:
    """A matrix of elements that bitmap tiles may hold in such tiles: itself, or encoded again, once, where it is."""
    lib, spec = w.library, bitmap(w.kind)
    if isinstance(w, Bitmap):
        return w
    return w.once("bitmap", lambda: Bitmap.encode(spec, lib, lib.view(w.to_dense(), spec.raw)))
