"""The numbers of products of several matrices with columns of their own: how many tiles of columns there may be."""

from __future__ import annotations

from typing import Final

#: What a block finds out of its task: the expert, its tile's first column, and where the expert's columns end.
TASK: Final = 3


def most_tiles(n: int, experts: int, cols: int) -> int:
    """Tiles of ``cols`` columns that so many runs of ``n`` columns in all have at most, however they are cut."""
    return (n + min(n, experts) * (cols - 1)) // cols
