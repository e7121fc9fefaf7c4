"""General updates on three axes plane by plane, of one time step a pass and of several: the reference agrees.

Formulas, borders, shapes and schedules are random.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.dsl.update import Update
from sparsegen.families.update.base import family
from sparsegen.schedule import UpdateSchedule
from tests.updates import H200, NAMED, agree, made, random_update, reads_back, wider

DEEP = st.integers(0, 2**32 - 1).map(random_update).filter(lambda update: update.ndim == 3)
BOUNDARIES = [
    sg.periodic,
    sg.frozen,
    sg.neumann,
    sg.dirichlet(0.25),
    {0: sg.dirichlet(1.0), 1: sg.dirichlet(-2.0), 2: sg.frozen},
]


def drawn(update: Update, draw: random.Random, levels: int = 1) -> tuple[tuple[int, ...], UpdateSchedule]:
    """A shape and a schedule that can run there; the example is given up where they cannot."""
    shape = tuple(draw.randint(n, max(n, most)) for n, most in zip(update.extents, (12, 20, 150), strict=True))
    s = UpdateSchedule(
        "column", levels=levels, lines=draw.choice((1, 2, 3)), planes=draw.choice((3, 5, 12)),
        warps=draw.choice((1, 2, 4)) + levels - 1, stages=draw.choice((2, 3, 4)),
    )  # fmt: skip
    assume(family(s).misfit(update, shape, s, H200) is None)
    return shape, s


def star(radius: int, **options: Any) -> Update:
    """A wave whose speed varies, of so many points on each axis."""

    def star(u: sg.Field(levels=2), c: sg.Coef) -> Any:  # type: ignore[valid-type]
        far = [(k, axis, sign) for k in range(1, radius + 1) for axis in range(3) for sign in (-1, 1)]
        around = sum(u[tuple(sign * k * (a == axis) for a in range(3))] / (1 + k) for k, axis, sign in far)  # type: ignore[index]
        return 2 * u[0, 0, 0] - u.prev[0, 0, 0] + 0.1 * c[0, 0, 0] * (around - 3 * u[0, 0, 0])  # type: ignore[index, attr-defined]

    return made(star, **options)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
def test_named_cases(boundary: Any, dtype: str) -> None:
    make, _ = NAMED["heat"]
    agree(make(boundary=boundary, dtype=dtype), (9, 21, 150), UpdateSchedule("column", planes=4, warps=3))
    agree(star(4, boundary=boundary, dtype=dtype), (11, 13, 140), UpdateSchedule("column", planes=6, warps=2))


@given(update=DEEP, seed=st.integers(0, 2**32 - 1))
def test_random_updates(update: Update, seed: int) -> None:
    shape, s = drawn(update, random.Random(seed))
    note(f"{update} on {shape}: {s}\n{update.code}")
    agree(update, shape, s, seed=seed % 100)


@given(update=DEEP, extra=st.lists(st.integers(0, 9), min_size=12, max_size=12), seed=st.integers(0, 2**32 - 1))
def test_rows_of_any_pitch(update: Update, extra: list[int], seed: int) -> None:
    shape, s = drawn(update, random.Random(seed))
    agree(update, shape, s, wider(update, shape, extra))


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("columns", [69, 141])
def test_pieces_across_a_border(columns: int, levels: int, boundary: Any) -> None:
    """Rows that whole pieces do not fill, at aligned addresses; more of them than a window has, and fewer."""
    make, _ = NAMED["heat"]
    update, shape = make(boundary=boundary, dtype="f64"), (6, 9, columns)
    agree(update, shape, UpdateSchedule("column", levels=levels, planes=4, warps=3), wider(update, shape, [3] * 12))


@given(update=DEEP, seed=st.integers(0, 2**32 - 1))
def test_every_level_reads_back_as_it_prints(update: Update, seed: int) -> None:
    shape, s = drawn(update, random.Random(seed))
    reads_back(update, shape, s)


@pytest.mark.parametrize(("levels", "dtype"), [(2, "f64"), (3, "f64"), (3, "f32"), (2, "f16"), (3, "bf16")])
@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
def test_several_steps_of_named_cases(levels: int, boundary: Any, dtype: str) -> None:
    """Two fields, a coefficient that is read beside the cell, older time levels; a radius of 2."""
    make, _ = NAMED["heat"]
    line = UpdateSchedule("column", levels=levels, planes=6, warps=4, stages=2)
    agree(reaction(boundary=boundary, dtype=dtype), (9, 13, 150), line)
    if not dtype.endswith("16"):
        agree(make(boundary=boundary, dtype=dtype), (9, 11, 130), line)
        agree(star(1, boundary=boundary, dtype=dtype), (11, 9, 75), line.but(lines=1, warps=7))
        agree(star(2, boundary=boundary, dtype=dtype), (11, 15, 70), line.but(lines=3, warps=5))


def reaction(**options: Any) -> Update:
    """Two substances that react and spread."""

    def reaction(u: Any, v: Any) -> Any:
        def spread(w: Any) -> Any:
            sides = [(k, 0, 0) for k in (-1, 1)] + [(0, k, 0) for k in (-1, 1)] + [(0, 0, k) for k in (-1, 1)]
            return sum(w[side] for side in sides) - 6 * w[0, 0, 0]

        both = u[0, 0, 0] * v[0, 0, 0] ** 2
        return (
            u[0, 0, 0] + 0.1 * spread(u) - both + 0.06 * (1 - u[0, 0, 0]),
            v[0, 0, 0] + 0.05 * spread(v) + both - 0.122 * v[0, 0, 0],
        )

    return made(reaction, **options)


@given(update=DEEP, levels=st.integers(2, 4), seed=st.integers(0, 2**32 - 1))
def test_several_steps_of_random_updates(update: Update, levels: int, seed: int) -> None:
    """In f64: what is rounded otherwise may fall on the other side of a comparison, and steps make much of it."""
    update = dataclasses.replace(update, dtype="f64")
    shape, s = drawn(update, random.Random(seed), levels)
    note(f"{update} on {shape}: {s}\n{update.code}")
    agree(update, shape, s, seed=seed % 100)
    agree(update, shape, s, wider(update, shape, [random.Random(seed).randint(0, 9) for _ in range(12)]))
    reads_back(update, shape, s)


def test_one_sided_reads_of_several_steps() -> None:
    """Images beyond a border are asked for by reads in one direction only, or farther than a step is behind another."""
    down = made(lambda u: 0.5 * u[0, 0, 0] + 0.25 * u[2, 0, 0] + 0.25 * u[1, 1, 0] * u[0, 0, -1], boundary=sg.neumann)
    up = made(lambda u: 0.5 * u[0, 0, 0] + 0.25 * u[-2, -1, 1] + 0.25 * u[0, -2, 0] * u[0, 0, 2], boundary=sg.neumann)
    still = made(lambda u: 0.5 * u[0, 0, 0] + 0.25 * u[0, 0, 0] ** 2)
    for update in (down, up, still):
        agree(update, (9, 14, 70), UpdateSchedule("column", levels=3, planes=4, warps=5))


def test_passes_of_several_steps_and_one_of_the_rest() -> None:
    for steps in (4, 5, 7):
        line = "column levels=3 warps=4"
        k = sg.compile(star(1), (8, 9, 40), steps, device="h200", backend="emulator", schedule=line)
        assert k.check().ok
        assert [program.steps for program, _ in k._plan(steps).programs] == ([steps % 3] if steps % 3 else []) + [3]


def test_what_cannot_be_a_column_is_refused() -> None:
    wide, flat = star(4), NAMED["wave"][0]()
    for update, shape, line, what in (
        (flat, (64, 64), "column", "3 axes"),
        (wide, (32, 32, 64), "column lines=8", "registers a thread"),
        (wide, (32, 32, 64), "column lines=2 warps=8 stages=8", "bytes of shared memory"),
        (wide, (32, 32, 64), "column levels=2 lines=1 warps=4", "leave nothing of a window of 4 rows"),
        (star(1), (32, 32, 64), "column levels=4 lines=3 warps=16", "registers a thread"),
        (star(1), (32, 32, 64), "column levels=4 warps=16 stages=4", "bytes of shared memory"),
        (star(1), (32, 3, 64), "column levels=4", "past the field"),
    ):
        with pytest.raises(sg.ScheduleError, match=what) as refused:
            sg.compile(update, shape, 4, device="h200", backend="emulator", schedule=line)
        assert refused.value.hint
