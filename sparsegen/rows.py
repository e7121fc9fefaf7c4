"""Fields in memory: how many cells they can have, and where the levels between passes have rows of their own pitch."""

from __future__ import annotations

import math

#: Cells of a field that 32-bit index arithmetic reaches.
MAX_CELLS = 2**31 - 2**20
VECTOR, ROW = 16, 128  #: bytes: the widest copy of a thread; what padded rows are a multiple of
PADDED_FROM = 3  #: passes: with fewer, no pass would both read and write padded rows


def padded_pitch(shape: tuple[int, ...], itemsize: int, out: int, passes: int) -> int:
    """Elements from row to row of the two fields that keep the levels between passes; 0 where ``out`` keeps them too.

    ``out``: elements from row to row of the output.  Rows of ``out`` that lie far apart (a block of columns of a wide
    array) are no model for a workspace either: those levels are padded from two passes on.
    """
    cells = ROW // itemsize
    pitch = -(-shape[-1] // cells) * cells
    many = passes >= PADDED_FROM and out * itemsize % VECTOR != 0
    wide = passes > 1 and out > pitch
    fits = pitch * math.prod(shape[:-1]) <= MAX_CELLS
    return pitch if (many or wide) and fits else 0
