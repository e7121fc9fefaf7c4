"""General updates of several time steps a pass: random formulas, borders, shapes, schedules; the reference agrees."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.dsl.update import Update
from sparsegen.families.update.base import family
from sparsegen.pipelines import lower
from sparsegen.problems.update import UpdateProblem
from sparsegen.schedule import UpdateSchedule
from tests.updates import (
    H200,
    NAMED,
    agree,
    emulated_pass,
    made,
    random_update,
    reads_back,
    reference_pass,
    wider,
)

FLAT = st.integers(0, 2**32 - 1).map(random_update).filter(lambda update: update.ndim < 3)
BOUNDARIES = [sg.periodic, sg.frozen, sg.neumann, sg.dirichlet(0.25)]


def drawn(update: Update, draw: random.Random) -> tuple[tuple[int, ...], UpdateSchedule]:
    """A shape and a schedule that can run there; the example is given up where they cannot."""
    most = {1: (300,), 2: (40, 200)}[update.ndim]
    shape = tuple(draw.randint(n, max(n, m)) for n, m in zip(update.extents, most, strict=True))
    s = UpdateSchedule(
        "stream", levels=draw.randint(1, 4), cols=draw.choice((4, 8) if update.dtype == "f32" else (2, 4, 6, 8)),
        rows=draw.choice((5, 16, 40)), warps=draw.choice((1, 2, 3)), stages=draw.choice((2, 3, 4)),
    )  # fmt: skip
    assume(family(s).misfit(update, shape, s, H200) is None)
    return shape, s


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize("name", ["wave", "gray_scott", "life"])
def test_named_cases(name: str, boundary: Any, dtype: str) -> None:
    make, _ = NAMED[name]
    cols = 8 if dtype.endswith("16") else 4
    agree(make(boundary=boundary, dtype=dtype), (37, 150), UpdateSchedule("stream", levels=3, cols=cols, rows=16))


@given(update=FLAT, seed=st.integers(0, 2**32 - 1))
def test_random_updates(update: Update, seed: int) -> None:
    shape, s = drawn(update, random.Random(seed))
    note(f"{update} on {shape}: {s}\n{update.code}")
    agree(update, shape, s, seed=seed % 100)


@given(update=FLAT, extra=st.lists(st.integers(0, 9), min_size=12, max_size=12), seed=st.integers(0, 2**32 - 1))
def test_rows_of_any_pitch(update: Update, extra: list[int], seed: int) -> None:
    shape, s = drawn(update, random.Random(seed))
    agree(update, shape, s, wider(update, shape, extra))


@pytest.mark.parametrize("boundary", [*BOUNDARIES, {0: (sg.neumann, sg.dirichlet(1.0)), 1: (sg.frozen, sg.neumann)}])
@pytest.mark.parametrize(("name", "dtype"), [("wave", "f64"), ("gray_scott", "f32")])
@pytest.mark.parametrize("columns", [69, 149, 233])
def test_pieces_across_a_border(columns: int, name: str, dtype: str, boundary: Any) -> None:
    """Rows that whole pieces do not fill, at aligned addresses; fewer columns than a strip has, and more."""
    make, _ = NAMED[name]
    update, shape = make(boundary=boundary, dtype=dtype), (37, columns)
    s = UpdateSchedule("stream", levels=3, cols=4, rows=16, unroll=2)
    agree(update, shape, s, wider(update, shape, [3] * 12))


@given(update=FLAT, seed=st.integers(0, 2**32 - 1))
def test_every_level_reads_back_as_it_prints(update: Update, seed: int) -> None:
    shape, s = drawn(update, random.Random(seed))
    reads_back(update, shape, s)


def test_one_sided_reads_and_four_levels() -> None:
    """Images below the last row are asked for by reads that go down only; an older level may be read anywhere."""
    down = made(lambda u: 0.5 * u[0, 0] + 0.25 * u[2, 0] + 0.25 * u[1, 1] * u[0, -1], boundary=sg.neumann)
    agree(down, (30, 100), UpdateSchedule("stream", levels=3, rows=10))

    def four(u: sg.Field(levels=4)) -> Any:  # type: ignore[valid-type]
        oldest = u.prev.prev.prev  # type: ignore[attr-defined]
        return 0.25 * (u[0, 0] + u.prev[1, 0] + u.prev.prev[0, -1] + oldest[-1, 1])  # type: ignore[index, attr-defined]

    for boundary in (sg.frozen, sg.dirichlet(2.0)):
        for levels in (1, 2, 5):
            agree(made(four, boundary=boundary), (33, 90), UpdateSchedule("stream", levels=levels, rows=11))


def test_a_division_by_a_field_that_holds_zero_does_as_numpy() -> None:
    update = made(lambda u: u[0, 0] / u[0, 1], boundary=sg.periodic)
    u = np.array([[1.0, 0.0, -2.0, 4.0] * 40] * 12)
    program = lower(UpdateProblem(update, u.shape), UpdateSchedule("stream", levels=2, rows=12), H200, 2)
    got, _ = emulated_pass(update, program, {"u": u})
    assert np.array_equal(got["u", 0], reference_pass(update, {"u": u}, 2)["u", 0], equal_nan=True)
    assert np.isinf(got["u", 0]).any() or np.isnan(got["u", 0]).any()
