"""General updates on three axes plane by plane: random formulas, borders, shapes, schedules; the reference agrees."""

from __future__ import annotations

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


def drawn(update: Update, draw: random.Random) -> tuple[tuple[int, ...], UpdateSchedule]:
    """A shape and a schedule that can run there; the example is given up where they cannot."""
    shape = tuple(draw.randint(n, max(n, most)) for n, most in zip(update.extents, (12, 20, 150), strict=True))
    s = UpdateSchedule(
        "column", lines=draw.choice((1, 2, 3)), planes=draw.choice((3, 5, 12)), warps=draw.choice((1, 2, 4)),
        stages=draw.choice((2, 3, 4)),
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


@given(update=DEEP, seed=st.integers(0, 2**32 - 1))
def test_every_level_reads_back_as_it_prints(update: Update, seed: int) -> None:
    shape, s = drawn(update, random.Random(seed))
    reads_back(update, shape, s)


def test_what_cannot_be_a_column_is_refused() -> None:
    wide, flat = star(4), NAMED["wave"][0]()
    for update, shape, line, what in (
        (flat, (64, 64), "column", "3 axes"),
        (wide, (32, 32, 64), "column lines=8", "registers a thread"),
        (wide, (32, 32, 64), "column lines=2 warps=8 stages=8", "bytes of shared memory"),
        (wide, (32, 32, 64), "column levels=2", "means nothing|levels"),
    ):
        with pytest.raises(sg.ScheduleError, match=what) as refused:
            sg.compile(update, shape, device="h200", backend="emulator", schedule=line)
        assert refused.value.hint
