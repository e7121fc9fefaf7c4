"""The numbers of N:M patterns on CUDA cores: how the entries of a row are cut into chunks, and what x takes of a block.

A row of W keeps n of every window of m columns.  A lane takes a chunk of a row at a time: whole windows, or an even
part of one that keeps more than a chunk holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .arithmetic import PIECE, up

#: Entries of a chunk at most: their values and offsets wait in a lane's registers, twice.
MOST: Final = 32
#: Rows of a tile: a lane each.
LANES: Final = 32


@dataclass(frozen=True)
class Chunks:
    """How rows are cut: a chunk has ``entries`` of ``windows`` windows, or one of ``parts`` parts of a window.

    ``stored``: values that it takes in memory, whole pieces of 16 bytes; ``bits`` of an entry's offset in its window,
    ``words`` of 32 bits for those of a chunk.
    """

    windows: int
    parts: int
    entries: int
    stored: int
    bits: int
    words: int

    def count(self, k: int, m: int) -> int:
        """Chunks of a row of ``k`` columns in windows of ``m``."""
        return -(-k // (m * self.windows)) * self.parts


def chunks(n: int, m: int, item: int) -> Chunks:
    """The chunks of rows that keep ``n`` of ``m`` elements of ``item`` bytes."""
    windows, parts = max(1, MOST // n), -(-n // MOST)
    entries = windows * n if parts == 1 else -(-n // parts)
    bits = max(1, (m - 1).bit_length())
    return Chunks(windows, parts, entries, up(entries, PIECE // item), bits, -(-entries * bits // 32))


def groups(words: int) -> tuple[int, ...]:
    """How many of a lane's words each load takes: 4, 2 and 1."""
    return (4,) * (words // 4) + (2,) * (words % 4 // 2) + (1,) * (words % 2)


def staged(k: int, m: int, c: Chunks) -> int:
    """Rows of x that a block holds: of all windows that the chunks of a row have, some of them beyond ``k``."""
    return -(-k // (m * c.windows)) * c.windows * m


def x_words(columns: int, item: int) -> int:
    """32-bit words of a row of x: two columns of 16 bits share one."""
    return columns // 2 if item == 2 and columns % 2 == 0 else columns


def shared_words(k: int, m: int, c: Chunks, columns: int, item: int, warps: int) -> int:
    """32-bit words of shared memory of a block: x, and after it the sums of all warps."""
    return max(staged(k, m, c) * x_words(columns, item), warps * LANES * columns)
