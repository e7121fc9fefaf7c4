"""General updates: random formulas, levels, boundaries, shapes; the emulator finds no fault, the reference agrees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.dsl.update import Update
from sparsegen.pipelines import lower
from sparsegen.problems.update import UpdateProblem
from sparsegen.schedule import UpdateSchedule
from tests.updates import H200, NAMED, agree, emulated_pass, random_update, reads_back, wider

UPDATES = st.integers(0, 2**32 - 1).map(random_update)

LINES = ["direct", "direct block=32x1 column=2", "direct block=64x2 column=4", "direct block=16x4 column=3"]
BOUNDARIES = [sg.periodic, sg.frozen, sg.neumann, sg.dirichlet(0.25)]


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize("name", NAMED)
def test_named_cases(name: str, boundary: Any, dtype: str) -> None:
    make, shape = NAMED[name]
    agree(make(boundary=boundary, dtype=dtype), shape, UpdateSchedule(column=2))


@given(data=st.data(), update=UPDATES)
def test_random_updates(data: st.DataObject, update: Update) -> None:
    most = {1: 300, 2: 70, 3: 20}[update.ndim]
    shape = tuple(data.draw(st.integers(n, max(n, most))) for n in update.extents)
    line = data.draw(st.sampled_from(LINES))
    note(f"{update} on {shape}\n{update.code}")
    agree(update, shape, UpdateSchedule.parse(line), seed=data.draw(st.integers(0, 99)))


@given(update=UPDATES, extra=st.lists(st.integers(0, 9), min_size=12, max_size=12))
def test_rows_of_any_pitch(update: Update, extra: list[int]) -> None:
    shape = tuple(n + 3 for n in update.extents)
    agree(update, shape, UpdateSchedule(), wider(update, shape, extra))


@given(update=UPDATES)
def test_every_level_reads_back_as_it_prints(update: Update) -> None:
    reads_back(update, tuple(n + 1 for n in update.extents), UpdateSchedule(column=2))


def test_life_lives_exactly() -> None:
    make, _ = NAMED["life"]
    update = make(boundary=sg.dirichlet(0.0))
    glider = np.zeros((12, 12))
    glider[1, 2] = glider[2, 3] = glider[3, 1] = glider[3, 2] = glider[3, 3] = 1
    program, cells = lower(UpdateProblem(update, glider.shape), UpdateSchedule(column=3), H200), glider
    for _ in range(8):
        cells = emulated_pass(update, program, {"u": cells})[0]["u", 0]
    assert np.array_equal(cells, np.roll(glider, (2, 2), (0, 1)))
