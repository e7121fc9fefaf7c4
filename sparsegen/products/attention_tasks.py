"""Tables of sparse attention: which keys a task has, where they lie in shared memory, and which warp has which task.

A task is a vector row in a part of the keys.  Eight rows of keys are read at once, so a task's keys stand in the order
of ``banks``: eight by eight of different banks, as far as it has such.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparsegen.formats.bcrs import Bcrs
from sparsegen.ir.numbers.attention import PIECE, SECOND, STEP, blocks_of, own_slot, part_keys
from sparsegen.ir.swizzle import swizzled
from sparsegen.products.banks import SLOTS, slots
from sparsegen.products.tasks import deal

Table = npt.NDArray[Any]


class Cut(NamedTuple):
    """How tasks are cut and dealt: parts of the keys, groups of rows, warps of a block, steps of 32 keys of a block."""

    parts: int
    groups: int
    warps: int
    steps: int
    d: int


def counted(w: Bcrs, parts: int) -> Table:
    """The keys of each task, [parts, vector rows]."""

    def count() -> Table:
        row, part, _ = _entries(w, parts)
        return np.bincount(part * w.strips + row, minlength=parts * w.strips).reshape(parts, w.strips)

    return w.once(("attention keys", parts), count)


def records(w: Bcrs, cut: Cut) -> Table:
    """Records of all tasks, s32, for each part and group: (row, first block, the one after the last, 0)."""
    return np.concatenate([
        deal(first, first + each, np.zeros_like(first), cut.groups, cut.warps)
        for first, each in zip(*_blocks(w, cut), strict=True)
    ]).reshape(-1)  # fmt: skip


def places(w: Bcrs, cut: Cut) -> Table:
    """Words of the places of all blocks, those of one part after those of another."""
    row, part, key = _entries(w, cut.parts)
    _, each = _blocks(w, cut)
    place = swizzled(part_keys(w.shape[1], cut.parts), cut.d, cut.d, 1)
    starts = np.array([place(r, 0).lo for r in range(place.extents[0])])
    made: list[Table] = []
    for p, eights in enumerate(each * (cut.steps * STEP // SLOTS)):
        here = part == p
        keys = np.full(int(eights.sum()) * SLOTS, -1, np.int64)
        keys[slots(row[here], key[here], eights)] = key[here]
        made.append(_words(keys.reshape(-1, SLOTS), eights, cut, starts))
    words = np.concatenate(made)
    return words if len(words) else np.zeros(cut.steps * STEP, np.uint32)  # an array has elements


def _entries(w: Bcrs, parts: int) -> tuple[Table, Table, Table]:
    """The vector row of each vector, its part of the keys, and the number of its key there."""
    host = w.to_host()
    starts = host.spec.starts(host.library, host.arrays, 0, host.strips)
    column, size = host.library.wide(host.arrays["idx"]), part_keys(w.shape[1], parts)
    return host.library.fibers(starts, len(column)), column // size, column % size


def _blocks(w: Bcrs, cut: Cut) -> tuple[Table, Table]:
    """The first block of each task, and how many it has."""
    each = blocks_of(counted(w, cut.parts), cut.steps)
    return (np.cumsum(each) - each.reshape(-1)).reshape(each.shape), each


def _words(keys: Table, eights: Table, cut: Cut, starts: Table) -> Table:
    """The words of a part's blocks.

    ``keys``: eight by eight, -1 where there is none; ``eights``: how many of them each task has; ``starts``: the bytes
    at which rows of keys begin in shared memory.
    """
    some = keys.max(1, initial=-1)  # fills the free slots of its eight: what is read twice at once meets in no bank
    of = np.repeat(np.arange(len(eights)), eights)
    task = np.full(len(eights), -1, np.int64)
    np.maximum.at(task, of, some)
    there = keys >= 0
    filled = np.where(there, keys, np.where(some >= 0, some, task[of])[:, None])
    place = starts[filled].reshape(-1, cut.steps, STEP)
    lane = np.arange(STEP)
    slot, piece = lane % SLOTS + lane // (2 * SLOTS) * SLOTS, lane // SLOTS % 2 * PIECE
    found = there.reshape(-1, cut.steps, STEP)[..., [own_slot(n) for n in lane.tolist()]]
    words = (place[..., slot] ^ piece) | (place[..., slot + STEP // 2] ^ piece) << SECOND | found
    made: Table = words.transpose(0, 2, 1).astype(np.uint32).reshape(-1)
    return made
