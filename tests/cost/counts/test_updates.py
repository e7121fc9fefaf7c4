"""General updates: all counts of a launch by formula equal the emulator's."""

from __future__ import annotations

import random
import time

import pytest

import sparsegen as sg
from sparsegen.updates.counts import launch
from sparsegen.updates.kernel import UpdateKernel
from sparsegen.updates.schedule import UpdateSchedule
from tests.updates import NAMED, random_update

SHAPES = {1: ((6, 700),), 2: ((6, 60), (6, 90)), 3: ((4, 12), (4, 20), (4, 50))}
BLOCKS = ((32, 8), (64, 4), (32, 4), (128, 2), (40, 4), (8, 8), (96, 1))


def differences(update: sg.dsl.update.Update, shape: tuple[int, ...], schedule: UpdateSchedule) -> list[str]:
    """What the formula counts otherwise than the emulator."""
    kernel = sg.compile(update, shape=shape, backend="emulator", device="h200", schedule=schedule)
    assert isinstance(kernel, UpdateKernel)
    theirs, mine = kernel.counts().launches[0].counts, launch(update, shape, schedule).counts
    return [
        f"{name}: formula {mine.get(name, 0)}, emulator {theirs.get(name, 0)}"
        for name in sorted({*mine, *theirs})
        if mine.get(name, 0) != theirs.get(name, 0)
    ]


@pytest.mark.parametrize("part", range(3))
def test_random_cases(part: int) -> None:
    for seed in range(12 * part, 12 * part + 12):
        draw, update = random.Random(seed), random_update(seed)
        shape = tuple(draw.randint(*size) for size in SHAPES[update.ndim])
        schedule = UpdateSchedule(block=draw.choice(BLOCKS), column=draw.choice((1, 2, 3, 8)))
        assert not differences(update, shape, schedule), (seed, update, shape, schedule)


@pytest.mark.parametrize("boundary", [sg.periodic, sg.frozen, sg.dirichlet(0.5)])
@pytest.mark.parametrize("name", NAMED)
def test_named_cases(name: str, boundary: sg.Boundary) -> None:
    make, shape = NAMED[name]
    for column in (1, 4):
        assert not differences(make(boundary=boundary), shape, UpdateSchedule(column=column))


@pytest.mark.parametrize("name", NAMED)
def test_a_large_field_takes_no_time(name: str) -> None:
    make, small = NAMED[name]
    shape = {1: (10**8 + 7,), 2: (10239, 10237), 3: (511, 512, 509)}[len(small)]
    begin = time.perf_counter()
    launch(make(boundary=sg.frozen), shape, UpdateSchedule(column=4))
    assert time.perf_counter() - begin < 1
