"""Counts of general updates from one block of each class are those of whole runs."""

from __future__ import annotations

import random

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.pipelines import lower
from sparsegen.problems.update import UpdateProblem
from sparsegen.schedule import UpdateSchedule
from tests.counts.kit import H200, whole, wrong
from tests.updates import NAMED, random_update

SHAPES = {1: ((600, 6000),), 2: ((30, 120), (100, 400)), 3: ((6, 16), (12, 40), (40, 120))}
BLOCKS = ((32, 8), (64, 4), (32, 4), (128, 2), (40, 4), (8, 8), (96, 1))


@pytest.mark.parametrize("part", range(3))
def test_random_cases(part: int) -> None:
    for seed in range(6 * part, 6 * part + 6):
        draw, update = random.Random(seed), random_update(seed)
        shape = tuple(draw.randint(*size) for size in SHAPES[update.ndim])
        schedule = UpdateSchedule(block=draw.choice(BLOCKS), column=draw.choice((1, 2, 3, 8)))
        arrays = len(lower(UpdateProblem(update, shape), schedule, H200).op.funcs[0].pitch)  # type: ignore[attr-defined]
        pitch = tuple(shape[-1] + draw.choice((0, 0, 3)) for _ in range(arrays))
        assert not wrong(lower(UpdateProblem(update, shape), schedule, H200, 1, pitch)), (seed, update, shape, schedule)


@pytest.mark.parametrize("steps", [1, 5])
def test_a_call_is_all_its_launches(steps: int) -> None:
    make, _ = NAMED["wave"]
    k = sg.compile(make(boundary=sg.frozen), (48, 101), steps, device="h200", backend="emulator")
    counts, made = k.counts(), k._plan(steps).programs
    assert counts.steps == steps and [c.times for c in counts.launches] == [n for _, n in made]
    total = sum(n * found["sectors.global.read"] for program, n in made for found in whole(program, {}).values())
    assert counts["sectors.global.read"] == total


@pytest.mark.parametrize("name", NAMED)
def test_large_fields(name: str) -> None:
    make, small = NAMED[name]
    update, shape = make(boundary=sg.frozen), {1: (10**8 + 7,), 2: (10239, 10237), 3: (511, 512, 509)}[len(small)]
    k = sg.compile(update, shape, device="h200", backend="emulator", schedule=UpdateSchedule(column=4))
    for launch in k.counts().launches:
        assert launch.counts["bytes.global.write"] == 8 * np.prod(shape) * len(update.fields)
