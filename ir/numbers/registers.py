"""Registers of threads on Hopper: what a launch gives each of them, and how warpgroups may share them out anew."""

from __future__ import annotations

from typing import Final

#: 32-bit registers of a multiprocessor, and the most of a thread; they are given out in units.
ALL, MOST, UNIT = 1 << 16, 255, 8
#: What a thread may set: multiples of a unit in this range.
SET: Final = range(24, 257, UNIT)


def at_launch(threads: int, blocks: int) -> int:
    """Registers of each thread of a kernel that is bounded to ``blocks`` blocks of ``threads`` a multiprocessor.

    As many as fit, to a whole unit; 255 where that is no bound.  nvcc gives a kernel that sets registers all of them.
    """
    fit = ALL // (threads * blocks) // UNIT * UNIT
    return fit if fit <= MOST else MOST


def rest(threads: int, keepers: int, keep: int) -> int:
    """Registers of each of a block's ``threads``, but for ``keepers``, which keep ``keep`` of them."""
    own = at_launch(threads, 1)
    more = (own - keep) * keepers // (threads - keepers)
    return min(SET[-1] - UNIT, (own + more) // UNIT * UNIT)
