"""The numbers of sampled products: strips of columns that stay in shared memory, tasks, tiles of gathered columns."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ..types import DType, u16, u32
from .arithmetic import up

#: Rows of the result of a task: the n of the mma.
GROUP: Final = 8
#: Vectors of a tile, the m of the mma, and those that a phase of ``ldmatrix`` reads at once.
TILE, PHASE = 16, 8
#: Columns of a strip.
STRIPS: Final = (32, 64, 128, 256)
#: Bytes of a 16-byte piece, and of those of a chunk: k of one mma of bytes.
PIECE, CHUNK = 16, 32
#: Registers of a lane, at most, for a task's rows of a.
MOST_OWN: Final = 64


class Cut(NamedTuple):
    """How rows of a and of b's columns are cut: ``parts`` launches take ``slices`` x ``width`` bytes each."""

    parts: int
    slices: int
    width: int

    @property
    def nbytes(self) -> int:
        """Bytes of a part of a row."""
        return self.slices * self.width


def own(nbytes: int, bits: int) -> int:
    """Registers of a lane for so many bytes of the rows of a: digits of 4 bits have bytes of their own."""
    return nbytes // PIECE * (2 if bits == 4 else 1)


def cut(nbytes: int, bits: int, least: int = 1) -> Cut:
    """The cut of rows of so many bytes, of numbers of so many bits, in ``least`` parts or more."""
    width = next(w for w in (32, 64, 128) if w >= min(nbytes, 128) and w >= CHUNK * (bits // 8 or 1))
    most = max(n for n in range(1, 9) if own(n * width, bits) <= MOST_OWN)
    slices = -(-nbytes // width)
    each = -(-slices // max(least, -(-slices // most)))
    return Cut(-(-slices // each), each, width)


def tiles(vectors: Any) -> Any:
    """Tiles of so many vectors."""
    return (vectors + (TILE - 1)) // TILE


def chunks(nbytes: int, bits: int) -> int:
    """Chunks of a row that are multiplied: of 16 bits two at a time."""
    return up(-(-nbytes // CHUNK), 2 if bits == 16 else 1)


def sums(bits: int) -> int:
    """Sums of a lane: of two tiles turn about, or of three pairs of digits."""
    return 12 if bits == 16 else 8


def bits_of(rows: int) -> int:
    """Bits of a column of a strip, and of a vector's place."""
    return (rows - 1).bit_length()


def entry_bits(rows: int, height: int) -> int:
    """Bits of an entry: the column in its strip of so many, the vector's place in its vector row there, and which
    vector row of the group, or one more for none."""
    return 2 * bits_of(rows) + (0 if height == GROUP else (GROUP // height).bit_length())


def entry_type(rows: int, height: int) -> DType:
    """The type of entries."""
    return u16 if entry_bits(rows, height) <= 16 else u32


def no_vector(rows: int, height: int, count: Any) -> Any:
    """What an entry without a vector has above its column, in a task of ``count`` vectors: as their place ``count``, or
    a vector row beyond the group's."""
    return count if height == GROUP else GROUP // height * rows


def length(groups: int, lists: int, warps: int) -> int:
    """Tasks of a warp, of so many groups of rows that lists of so many warps share."""
    return max(1, -(-groups // (lists * warps)))


def shared_bytes(rows: int, warps: int, c: Cut) -> int:
    """Bytes of a block: the strip, the buffers of the warps, an mbarrier."""
    return (rows + GROUP * warps) * c.nbytes + 8
