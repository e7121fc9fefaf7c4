"""The order in which rows that are read at once lie in different banks: a slot each, and hardly a pass too many."""

from __future__ import annotations

import numpy as np
import pytest

from sparsegen.products.banks import SLOTS, slots


def passes(slot: np.ndarray, number: np.ndarray, phases: int) -> int:
    """Passes of all phases: each as many as it has rows of one class, and one at least."""
    met = np.zeros((phases, SLOTS), np.int64)
    np.add.at(met, (slot // SLOTS, number % SLOTS), 1)
    return int(np.maximum(met.max(1), 1).sum())


@pytest.mark.parametrize("unit", [2, 4])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.5, 1.0])
def test_passes_are_hardly_more_than_there_must_be(share: float, unit: int) -> None:
    """The least is what the largest class of a task needs, or its phases."""
    kept = np.random.default_rng(unit).random((200, 256)) < share
    kept[3], kept[5, 1:] = False, False
    task, number = np.nonzero(kept)
    phases = -(-kept.sum(1) // (SLOTS * unit)) * unit
    slot = slots(task, number, phases)
    assert len(np.unique(slot)) == len(slot)
    owner = np.repeat(np.arange(len(phases)), phases * SLOTS)
    assert np.array_equal(owner[slot], task)
    largest = np.array([np.bincount(np.flatnonzero(row) % SLOTS, minlength=SLOTS).max() for row in kept])
    assert passes(slot, number, int(phases.sum())) <= 1.03 * np.maximum(largest, phases).sum()


def test_rows_of_one_class_alone() -> None:
    """Each eighth row: eight passes a phase, but every one has a slot."""
    number = np.arange(0, 800, 8)
    slot = slots(np.zeros(100, np.int64), number, np.array([13]))
    assert len(np.unique(slot)) == 100 and np.bincount(slot // SLOTS).tolist() == [4, *[8] * 12]


def test_no_vectors() -> None:
    none = np.zeros(0, np.int64)
    assert slots(none, none, np.array([0, 0])).size == 0
