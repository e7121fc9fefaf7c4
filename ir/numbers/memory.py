"""How rows lie in memory, whatever is in them."""

from __future__ import annotations

from typing import Final

from .arithmetic import up

#: Bytes that memory moves at once for rows that lie so: what begins elsewhere takes one piece more of each.
LINE: Final = 128


def lead(ghosts: int, nbytes: int) -> int:
    """Elements of ``nbytes`` before the first cell of a row with so many ghosts: the cell begins a line of memory."""
    return up(ghosts, LINE // nbytes)
