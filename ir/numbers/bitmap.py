"""The numbers of ``bitmap``: what a slot of a warp's ring holds, and the sums that a lane keeps."""

from __future__ import annotations

from typing import Any, Final

#: 32-bit words of a tile's index and of its masks; bytes of a chunk of values, which the index counts in.
INDEX: Final = 4
MASKS: Final = 32
CHUNK: Final = 8


def slot_words(rows: int, chunks: int) -> int:
    """32-bit words of a slot: index and masks of ``rows`` tiles, and ``chunks`` chunks of values."""
    return rows * (INDEX + MASKS) + chunks * CHUNK // 4


def lane_sums(one: bool, cols: Any) -> Any:
    """Sums of a lane for a strip and ``cols`` columns (an array of them, too), or ``one`` column on CUDA cores."""
    return 2 if one else cols // 2
