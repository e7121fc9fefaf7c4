"""The order of vectors in which the eight rows that lanes read at once lie in different banks, as far as can be.

Rows that swizzled shared memory holds lie in different banks if their numbers differ modulo 8.  Eight slots are a
*phase*; a phase takes as many passes of shared memory as it has vectors of one class modulo 8.  So the vectors of a
task need as many passes as its largest class has vectors, and phases are as many as hold all: it takes no fewer than
the larger of the two, and mostly no more than here.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[Any]

#: Slots of a phase, and the classes of rows that lie in different banks.
SLOTS: Final = 8


def slots(task: Ints, number: Ints, phases: Ints) -> Ints:
    """The slot of each vector: tasks one after another, of each its phases of 8 slots.

    ``task`` and ``number``, the row that is read, of each vector, by tasks and ascending; ``phases`` of each task, with
    room for its vectors.

    Phase i takes the vector number i of every class, the class with the most vectors first.  What classes have beyond
    the last phase goes to slots that are still free, of the last phases first: there are the most of them, and few
    phases then take a pass more.
    """
    count, tasks = len(task), len(phases)
    group = task * SLOTS + number % SLOTS
    sizes = np.bincount(group, minlength=tasks * SLOTS)
    order = np.argsort(group, kind="stable")
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    by_size = np.argsort(-sizes.reshape(tasks, SLOTS), axis=1, kind="stable")
    place = np.empty_like(by_size)
    np.put_along_axis(place, by_size, np.arange(SLOTS)[None], axis=1)
    place = place.reshape(-1)[group]
    first = np.cumsum(phases) - phases
    slot: Ints = (first[task] + rank) * SLOTS + place
    beyond = np.flatnonzero(rank >= phases[task])
    free = np.ones(int(phases.sum()) * SLOTS, bool)
    free[np.delete(slot, beyond)] = False
    room = np.bincount(np.repeat(np.arange(tasks), phases * SLOTS)[free], minlength=tasks)
    beyond = beyond[np.lexsort((place[beyond], rank[beyond], task[beyond]))]
    late = np.bincount(task[beyond], minlength=tasks)
    turn = np.arange(len(beyond)) - np.repeat(np.cumsum(late) - late, late)
    slot[beyond] = np.flatnonzero(free)[np.cumsum(room)[task[beyond]] - 1 - turn]
    return slot
