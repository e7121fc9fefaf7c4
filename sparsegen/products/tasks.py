"""How rows of unequal length are dealt to warps: records for ``tile.each_task``."""

from __future__ import annotations

from heapq import heappop, heapreplace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparsegen.ir.tile_tasks import RECORD

Records = npt.NDArray[np.int32]


class Pieces(NamedTuple):
    """Rows cut into pieces of some steps: the ``row`` of each piece and its steps, and for each row, for
    ``tile.sum_pieces``, the first of its ``slots`` (or 0), how many pieces it has, its first step, and its steps."""

    row: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    cuts: npt.NDArray[np.int32]
    slots: int


def pieces(begin: npt.NDArray[Any], end: npt.NDArray[Any], most: int) -> Pieces:
    """Rows of more than ``most`` steps cut as evenly as they come."""
    steps = np.asarray(end - begin, dtype=np.int64)
    each = np.maximum(-(-steps // most), 1)
    row = np.repeat(np.arange(len(each)), each)
    before, of = np.arange(len(row)) - np.repeat(np.cumsum(each) - each, each), each[row]
    slots = np.where(each > 1, each, 0)
    number = np.where(each > 1, np.cumsum(slots) - slots, 0)
    first, after = (begin[row] + steps[row] * (before + i) // of for i in (0, 1))
    cuts = np.stack([number, each, begin, np.maximum(steps, 1)], axis=1).astype(np.int32)
    return Pieces(row, first, after, cuts, int(slots.sum()))


def deal(
    begin: npt.NDArray[Any], end: npt.NDArray[Any], words: npt.NDArray[Any], lists: int, warps: int,
    row: npt.NDArray[Any] | None = None, rows: int = 0, spare: int = 0, of_row: float = 0.0,
) -> Records:  # fmt: skip
    """Records [lists, length, warps, 4] of rows whose steps are ``begin`` to before ``end``: (row, begin, end, word).

    The longest come first, dealt to and fro (in snake order), so that warps, and lists, have about as many steps.
    ``row``: which of ``rows`` rows each is a piece of, by default each is one.  ``spare``: with so many records more a
    warp, each row goes to the warp that has the fewest steps so far, counting ``of_row`` for a row besides its own.
    Records of row R, of R rows, only fill up.
    """
    count, slots = len(begin), lists * warps
    row, rows = (np.arange(count), count) if row is None else (row, rows)
    length = max(1, -(-count // slots)) + spare
    order = np.argsort(begin - end, kind="stable")
    level, place = np.divmod(np.arange(count), slots)
    place = np.where(level % 2, slots - 1 - place, place)
    if spare:
        level, place = _evenly((end - begin)[order] + of_row, slots, length)
    made = np.zeros((lists, length, warps, RECORD), dtype=np.int32)
    made[..., 0] = rows
    found = np.stack([row[order], begin[order], end[order], words[order]], axis=1)
    made[place % lists, level, place // lists] = found
    return made


def _evenly(steps: npt.NDArray[Any], slots: int, most: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each row, which come by falling ``steps``, how many its slot has before it, and its slot: the one with the
    fewest steps so far, of those with fewer than ``most`` rows."""
    level, place, had = np.zeros(len(steps), np.int64), np.zeros(len(steps), np.int64), [0] * slots
    heap = [(0.0, slot) for slot in range(slots)]
    for at, own in enumerate(steps.tolist()):
        total, slot = heap[0]
        level[at], place[at] = had[slot], slot
        had[slot] += 1
        if had[slot] < most:
            heapreplace(heap, (total + own, slot))
        else:
            heappop(heap)
    return level, place
