"""General updates by windows in registers that overlap: the reference's numbers after several steps of a pass."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.cost.update_windows import reach
from sparsegen.dsl.update import Update
from sparsegen.families.update.base import family
from sparsegen.pipelines import lower
from sparsegen.problems.update import UpdateProblem
from sparsegen.schedule import UpdateSchedule
from tests.property.test_update_resident import BOUNDARIES, DEEP_BOUNDARIES
from tests.updates import (
    H200,
    NAMED,
    TOLERANCE,
    arrays,
    emulated_pass,
    error,
    made,
    random_update,
    reference_pass,
    wider,
)

UPDATES = st.integers(0, 2**32 - 1).map(random_update)
LINE, DEEP = "tiled levels=2 cols=2 rows=3 warps=4", "tiled levels=2 cols=1 rows=3 planes=8 warps=3"


def same(
    update: Update, shape: tuple[int, ...], line: str | UpdateSchedule, *, seed: int = 0, pitch: Any = None
) -> None:
    """A pass makes what the reference makes of its steps; the emulator has nothing to say."""
    s = UpdateSchedule.parse(line) if isinstance(line, str) else line
    assert family(s).misfit(update, shape, s, H200) is None
    program, found = lower(UpdateProblem(update, shape), s, H200, s.levels, pitch), arrays(update, shape, seed)
    got, wrong = emulated_pass(update, program, found, pitch, seed)
    assert not wrong
    want = {key: a for key, a in reference_pass(update, found, s.levels).items() if key[1] < s.levels}
    assert got.keys() == want.keys()
    for key, a in got.items():
        assert error(a, want[key]) <= s.levels * TOLERANCE[update.dtype], key


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize("name", ["wave", "gray_scott", "life"])
def test_named_cases(name: str, boundary: Any, dtype: str) -> None:
    same(NAMED[name][0](boundary=boundary, dtype=dtype), (37, 150), LINE, seed=3)


@pytest.mark.parametrize("dtype", ["f64", "f16"])
@pytest.mark.parametrize("boundary", DEEP_BOUNDARIES, ids=str)
def test_three_axes(boundary: Any, dtype: str) -> None:
    same(NAMED["heat"][0](boundary=boundary, dtype=dtype), (19, 21, 75), DEEP, seed=3)


@pytest.mark.parametrize("boundary", BOUNDARIES[:4], ids=str)
def test_one_axis(boundary: Any) -> None:
    same(NAMED["burgers"][0](boundary=boundary), (271,), "tiled levels=5 cols=2 rows=1 warps=1")


@pytest.mark.parametrize("shape", [(12, 64), (12, 128), (11, 64), (20, 66), (5, 7)], ids=str)
def test_fields_of_one_window_and_a_little_more(shape: tuple[int, ...]) -> None:
    """Where one window is all of an axis its ends are neighbours, or ends of the field; smaller fields wrap."""
    same(NAMED["wave"][0](), shape, LINE)
    if shape[0] >= 12 and shape[1] >= 64:
        same(NAMED["wave"][0](boundary=sg.neumann), shape, LINE)


@given(update=UPDATES, seed=st.integers(0, 2**32 - 1))
def test_random_updates(update: Update, seed: int) -> None:
    draw, ndim = random.Random(seed), update.ndim
    s = UpdateSchedule(
        "tiled", levels=draw.choice((1, 2, 3)), cols=draw.choice((1, 2, 3)),
        rows=draw.choice((2, 3, 5)) if ndim > 1 else 1, planes=draw.choice((4, 7, 9)) if ndim > 2 else 1,
        warps=draw.choice((2, 4, 6)) if ndim > 1 else 1,
    )  # fmt: skip
    windows = (s.planes, s.rows * s.warps, 32 * s.cols)[-ndim:]
    far = reach(update)[-ndim:]
    shape = tuple(draw.randint(max(2, size // 2), 2 * size + 3 * r) for size, r in zip(windows, far, strict=True))
    assume(all(n >= least for n, least in zip(shape, update.extents, strict=True)))
    assume(family(s).misfit(update, shape, s, H200) is None)
    note(f"{update} on {shape}: {s}\n{update.code}")
    same(update, shape, s, seed=seed % 100)


def test_rows_may_lie_apart() -> None:
    update = NAMED["wave"][0]()
    same(update, (37, 150), LINE, pitch=wider(update, (37, 150), (1, 2, 3, 4, 5)))


@pytest.mark.parametrize("levels", [1, 2, 3, 6])
def test_the_newest_levels_are_written(levels: int) -> None:
    def four(u: sg.Field(levels=4)) -> Any:  # type: ignore[valid-type]
        return 0.5 * u[0, 0] + 0.125 * u.prev[1, 0] + 0.25 * u.prev.prev[0, -1] - 0.125 * u.prev.prev.prev[0, 0]

    update = made(four, boundary=sg.dirichlet(0.5))
    same(update, (37, 150), f"tiled levels={levels} cols=2 rows=5 warps=6")
    u = tuple(np.random.default_rng(level).random((37, 150)) for level in range(4))
    k = sg.compile(update, (37, 150), 8, "h200", "emulator", f"tiled levels={levels} cols=2 rows=5 warps=6")
    for got, want in zip(k(u), sg.compile(update, (37, 150), 8, backend="reference")(u), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("tiled levels=6 rows=3 warps=4", "6 steps leave nothing"),
        ("tiled rows=16 warps=4", "do not fit the field"),
        ("tiled planes=2", "of fields of 2 axes"),
        ("tiled rows=30 cols=6", "registers a thread"),
    ],
)
def test_what_does_not_fit(line: str, says: str) -> None:
    with pytest.raises(sg.ScheduleError, match=says) as e:
        sg.compile(NAMED["wave"][0](boundary=sg.frozen), (37, 150), 6, "h200", "emulator", line)
    assert e.value.hint
