"""Tables of sparse attention: which keys a task has, where they lie in shared memory, and which warp has which task.

A task is a vector row in a part of the keys.  Eight rows of keys are read at once, and those whose numbers differ
modulo 8 lie in different banks, so a task's keys are taken eight at a time of different classes, as far as it has such;
where a task does not fill its last block, the last places of eights are left free rather than given to two of a class.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparsegen.formats.bcrs import Bcrs
from sparsegen.ir.numbers.attention import PIECE, SECOND, STEP, blocks_of, own_slot, part_keys
from sparsegen.ir.swizzle import swizzled
from sparsegen.products.tasks import deal

Table = npt.NDArray[Any]
#: Rows of shared memory that are read at once, and classes of rows that lie in different banks.
BANKS: Final = 8


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
    for p, own in enumerate(each * (cut.steps * STEP // BANKS)):
        here = part == p
        made.append(_words(_eights(row[here], key[here], own), own, cut, starts))
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


def _eights(row: Table, key: Table, eights: Table) -> Table:
    """The keys of each row, ``eights[row]`` times eight of them one after the other; -1 where there is none."""
    rows, kind = len(eights), key % BANKS
    order = np.lexsort((key, kind, row))
    left = np.bincount(row * BANKS + kind, minlength=rows * BANKS).reshape(rows, BANKS)
    begin = (np.cumsum(left) - left.reshape(-1)).reshape(rows, BANKS)  # of each class, in order
    key = key[order]
    found = np.full((rows, int(eights.max(initial=0)), BANKS), -1, dtype=np.int64)
    for j in range(found.shape[1]):
        some = np.flatnonzero(eights > j)  # rows that have such an eight
        more = eights[some] - 1 - j  # of which so many follow
        used = np.zeros(len(some), dtype=np.int64)

        def take(which: Table, kinds: Table, j: int = j, some: Table = some, used: Table = used) -> None:
            """One key of a class for some of these rows."""
            at = some[which]
            found[at, j, used[which]] = key[begin[at, kinds]]
            begin[at, kinds] += 1
            left[at, kinds] -= 1
            used[which] += 1

        for k in range(BANKS):
            which = np.flatnonzero(left[some, k] > 0)
            take(which, np.full(len(which), k))
        for _ in range(BANKS - 1):
            most = left[some].argmax(1)
            must = (left[some, most] > more) | (left[some].sum(1) > BANKS * more)
            which = np.flatnonzero(must & (used < BANKS) & (left[some, most] > 0))
            take(which, most[which])
    return found


def _words(found: Table, eights: Table, cut: Cut, starts: Table) -> Table:
    """The words of a part's blocks; ``starts``: the bytes at which rows of keys begin in shared memory."""
    any_key = np.repeat(found.reshape(len(found), -1).max(1, initial=0), eights)[:, None]
    slots = found[np.arange(found.shape[1]) < eights[:, None]]  # eight by eight
    there = slots >= 0
    own = np.where(slots[:, :1] >= 0, slots[:, :1], any_key)  # what is read twice at once meets in no bank
    keys = starts[np.where(there, slots, own)].reshape(-1, cut.steps, STEP)
    lane = np.arange(STEP)
    slot, piece = lane % BANKS + lane // (2 * BANKS) * BANKS, lane // BANKS % 2 * PIECE
    found = there.reshape(-1, cut.steps, STEP)[..., [own_slot(n) for n in lane.tolist()]]
    words = (keys[..., slot] ^ piece) | (keys[..., slot + STEP // 2] ^ piece) << SECOND | found
    made: Table = words.transpose(0, 2, 1).astype(np.uint32).reshape(-1)
    return made
