"""How rows of unequal length are dealt to warps: records for ``tile.each_task``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from heapq import heappop, heapreplace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparsegen.ir.tile_tasks import RECORD

Records = npt.NDArray[np.int32]
#: (steps, rows that have so many), ascending.
Loads = Sequence[tuple[int, int]]
#: Slots of a list over its share of all pieces.
SPARE_SLOTS: Final = 1.25


class Pieces(NamedTuple):
    """Rows cut into pieces of some steps: the ``row`` of each piece and its steps, and for each row, for
    ``tile.sum_pieces``, the first of its ``slots`` (or 0), how many pieces it has, its first step, and its steps.

    With lists the slots of each list begin at 0, and ``list`` is that of each piece."""

    row: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    cuts: npt.NDArray[np.int32]
    slots: int
    list: npt.NDArray[np.int64] | None = None


def pieces(begin: npt.NDArray[Any], end: npt.NDArray[Any], most: int) -> Pieces:
    """Rows of more than ``most`` steps cut as evenly as they come."""
    each = np.maximum(-(-np.asarray(end - begin, dtype=np.int64) // most), 1)
    slots = np.where(each > 1, each, 0)
    return _pieces(begin, end, each, np.cumsum(slots) - slots, int(slots.sum()))


def slots_of(loads: Loads, most: int, lists: int) -> int:
    """Slots of a list for the pieces of rows of more than ``most`` steps.

    Lists have an equal share of them and a quarter more, since rows are dealt by their steps; a row's whole number of
    them at least.  0 where no row is so long.
    """
    found = [(-(-steps // most), rows) for steps, rows in loads if steps > most]
    if not found:
        return 0
    every = sum(each * rows for each, rows in found)
    return max(found[-1][0], math.ceil(SPARE_SLOTS * every / lists))


def loads_of(steps: npt.NDArray[np.int64]) -> Loads:
    """How many rows have so many steps each."""
    kinds, rows = np.unique(steps, return_counts=True)
    return list(zip(kinds.tolist(), rows.tolist(), strict=True))


def pieces_of_lists(
    begin: npt.NDArray[Any], end: npt.NDArray[Any], most: int, lists: int, room: int, of_row: float
) -> Pieces:
    """The same with each row's pieces in one of ``lists`` lists, which all have about as many steps, counting
    ``of_row`` for a row besides its own.

    A list has ``room`` slots at most: its longest rows take them, and what finds no place is not cut.
    """
    steps = np.asarray(end - begin, dtype=np.int64)
    order = np.argsort(-steps, kind="stable")
    of = np.empty(len(steps), np.int64)
    of[order] = _evenly(steps[order] + of_row, lists, len(steps))[1]
    each = np.maximum(-(-steps // most), 1)
    slots = np.where(each > 1, each, 0)
    ranked = np.lexsort((-steps, of))  # list by list, the longest rows first
    upto = np.cumsum(slots[ranked])
    start = np.searchsorted(of[ranked], of[ranked])
    number = np.empty(len(steps), np.int64)
    number[ranked] = upto - slots[ranked] - (upto - slots[ranked])[start]
    each[number + slots > room] = 1
    found = _pieces(begin, end, each, number, room)
    return found._replace(list=of[found.row])


def _pieces(
    begin: npt.NDArray[Any], end: npt.NDArray[Any], each: npt.NDArray[np.int64], number: npt.NDArray[np.int64],
    slots: int,
) -> Pieces:  # fmt: skip
    """Rows in ``each`` pieces, whose slots begin at ``number``."""
    steps = np.asarray(end - begin, dtype=np.int64)
    row = np.repeat(np.arange(len(each)), each)
    before, of = np.arange(len(row)) - np.repeat(np.cumsum(each) - each, each), each[row]
    first, after = (begin[row] + steps[row] * (before + i) // of for i in (0, 1))
    cuts = np.stack([np.where(each > 1, number, 0), each, begin, np.maximum(steps, 1)], axis=1).astype(np.int32)
    return Pieces(row, first, after, cuts, slots)


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


def deal_lists(found: Pieces, words: npt.NDArray[Any], lists: int, warps: int, of_row: float) -> Records:
    """The same of pieces whose lists are known: in each the next longest goes to the warp with the fewest steps."""
    of, steps = found.list, found.end - found.begin
    assert of is not None
    order = np.lexsort((-steps, of))
    bounds = np.searchsorted(of[order], np.arange(lists + 1))
    places = [_evenly(steps[order[a:b]] + of_row, warps, b - a) for a, b in itertools.pairwise(bounds.tolist())]
    length = 1 + max((int(level.max(initial=0)) for level, _ in places), default=0)
    made = np.zeros((lists, length, warps, RECORD), dtype=np.int32)
    made[..., 0] = len(found.cuts)
    records = np.stack([found.row, found.begin, found.end, words], axis=1)[order]
    level, warp = (np.concatenate([place[i] for place in places]) for i in (0, 1))
    made[of[order], level, warp] = records
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
