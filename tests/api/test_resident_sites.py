"""Sources and receivers of fields that stay on chip: wherever they are, the numbers of one step a launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.ir.errors import ArrayError, ScheduleError
from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_module
from tests.api.test_shots import flat
from tests.api.test_sites import SHAPES, two

#: Blocks that exchange by way of images, cell by cell, and whole lines; rounds of one step and of more.
HOW = {
    "images": ("resident tiles=2x3 rows=3 cols=2 warps=9 every=2", (41, 150), {}),
    "rounds of three": ("resident tiles=2x3 rows=4 cols=2 warps=7 every=3", (41, 150), {}),
    "cells": ("resident tiles=3x3 rows=1 cols=2 warps=16 every=1", (41, 150), {}),
    "lines": ("resident tiles=3x1 rows=3 cols=2 warps=6 every=1", (40, 64), {1: sg.periodic}),
    "one block": ("resident tiles=1x1 rows=3 cols=1 warps=7 every=1", (21, 32), {}),
}


def survey(shape: tuple[int, ...], boundary: Any, dtype: str = "f64") -> Any:
    """Sources of both fields, and receivers: where blocks meet, beside it, at the ends, several in one cell."""
    ends = np.array(shape) - 1.0
    meet = np.array([[n * i / 2 for n in shape] for i in (0.5, 1.0, 1.5)])
    near = np.concatenate([meet - by for by in ([0, 0], [0.25, 0.25], [1.5, 0.75], [0, -1], [-2, -0.5])])
    corners = np.array([[0, 0], [0, ends[1]], [ends[0], 0], ends])
    return two(2, boundary, dtype).with_sites(
        shot=sg.Source(np.concatenate([near, corners, near[:2]]), field="v"),
        more=sg.Source(near[3:6] + 0.125, field="v"),
        pump=sg.Source(corners, field="u"), heard=sg.Receiver(np.concatenate([near, corners]), field="v"),
        seen=sg.Receiver(np.stack([np.full(shape[1] - 1, 7.5), np.arange(shape[1] - 1) + 0.5], 1), field="u"),
    )  # fmt: skip


def compiled(update: Any, shape: Any, line: str, steps: int = 4, **options: Any) -> Any:
    return sg.compile(update, shape, steps, "h200", "emulator", schedule=line, **options)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
@pytest.mark.parametrize("how", HOW)
def test_numbers_are_those_of_one_step_a_launch(how: str, dtype: str) -> None:
    """Calls of any number of steps, one after the other."""
    line, shape, wraps = HOW[how]
    update = survey(shape, {0: (sg.neumann, sg.dirichlet(0.5)), 1: sg.frozen} | wraps, dtype)
    k, single = compiled(update, shape, line), compiled(update, shape, "direct")
    for steps in (4, 1, 2, 7):
        plain = sg.compile(update, shape, steps, backend="reference")
        given = plain.random()
        made = flat(k(**given, steps=steps))
        for a, b in zip(made, flat(single(**given, steps=steps)), strict=True):
            assert np.array_equal(a, b)
    assert not k.check().errors


@pytest.mark.parametrize("how", HOW)
def test_adjoints_are_those_of_one_step_a_launch(how: str) -> None:
    """There what happens at sites comes before a step, in rows from the last one to the first."""
    line, shape, wraps = HOW[how]
    update = survey(shape, {0: sg.periodic, 1: sg.dirichlet(0.0)} | wraps)

    @sg.stencil(boundary={0: sg.periodic, 1: sg.dirichlet(0.0)} | wraps)
    def one(u: sg.Field(levels=2), c: sg.Coef) -> Any:  # type: ignore[valid-type]
        return 1.5 * u[0, 0] - 0.5 * u.prev[0, 0] + c[0, 0] * (u[0, 1] + u[1, 0] - 2 * u[0, 0])  # type: ignore[attr-defined,index]

    points = {group.name: group.points[:6] for group in update.sites}
    linear = one.with_sites(shot=sg.Source(points["shot"]), heard=sg.Receiver(points["heard"]))
    k = sg.compile(linear, shape, 5, "h200", "emulator", schedule="direct")
    back, single = k.adjoint(line), k.adjoint("tiled levels=1 rows=2 warps=4")
    assert back.schedule.family == "resident"
    rng = np.random.default_rng(0)
    for steps in (5, 2):
        state, residual = rng.random((2, *shape)), rng.random((steps, len(points["heard"])))
        made, want = (
            flat(x(u=tuple(state), c=np.full(shape, 0.2), heard=residual, steps=steps)) for x in (back, single)
        )
        assert all(np.array_equal(a, b) for a, b in zip(made, want, strict=True))


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_random_sites_on_random_blocks(data: Any) -> None:
    sides = st.sampled_from([sg.periodic, sg.neumann, sg.frozen, sg.dirichlet(0.5)])
    boundary = {0: data.draw(sides), 1: data.draw(sides)}
    tiles, every = data.draw(st.tuples(*[st.integers(1, 3)] * 2)), data.draw(st.integers(1, 3))
    shape = data.draw(st.tuples(st.integers(24, 40), st.integers(64, 90)))
    place = st.tuples(*(st.floats(0, n - 1) | st.sampled_from([n // 2, n / 2 - 0.5, n / 3, 0, n - 1]) for n in shape))
    sources, receivers = (data.draw(st.lists(place, min_size=1, max_size=6)) for _ in range(2))
    update = two(2, boundary).with_sites(shot=sg.Source(sources, field="v"), heard=sg.Receiver(receivers, field="v"))
    try:
        k = compiled(update, shape, f"resident tiles={tiles[0]}x{tiles[1]} every={every}")
    except ScheduleError:  # windows that do not fit the field
        return
    steps = data.draw(st.integers(1, 6))
    given = sg.compile(update, shape, steps, backend="reference").random()
    made, want = (flat(x(**given, steps=steps)) for x in (k, compiled(update, shape, "direct")))
    assert all(np.array_equal(a, b) for a, b in zip(made, want, strict=True))


def waves() -> Any:
    @sg.stencil(dtype="f32", boundary=sg.dirichlet(0.0))
    def waves(p: sg.Field(levels=2), c: sg.Coef) -> Any:  # type: ignore[valid-type]
        around = p[0, 1] + p[0, -1] + p[1, 0] + p[-1, 0]  # type: ignore[index]
        return 2 * p[0, 0] - p.prev[0, 0] + c[0, 0] * (around - 4 * p[0, 0])  # type: ignore[attr-defined,index]

    return waves


def test_auto_takes_it_for_small_fields_and_says_what_sites_cost() -> None:
    line = np.stack([np.full(200, 8.0), np.linspace(1, 1022, 200)], 1)
    surveyed = waves().with_sites(shot=sg.Source([[500.5, 500.25]]), heard=sg.Receiver(line))
    k = sg.compile(surveyed, (1024, 1024), 1000, "h100", "emulator")
    alone = sg.compile(waves(), (1024, 1024), 1000, "h100", "emulator", schedule=str(k.schedule))
    assert k.schedule.family == "resident"
    assert k.cost.time - alone.cost.time == pytest.approx(k.cost.values["sites"], rel=1e-6)
    assert 0 < k.cost.values["sites"] < 0.5 * alone.cost.time
    assert "between steps, and making the records" in str(k.explain())
    large = sg.compile(surveyed, (2048, 2048), 1000, "h100", "emulator")
    assert large.schedule.family == "stream"


def test_more_sites_in_a_thread_cost_more() -> None:
    def cost(**sites: Any) -> float:
        k = sg.compile(waves().with_sites(**sites), (256, 256), 100, "h100", "emulator", schedule="resident")
        return float(k.cost.values["sites"])

    one = cost(shot=sg.Source([[100.0, 100.0]]))
    assert cost(shot=sg.Source([[100.0, 100.0], [10.0, 200.0]])) == one  # other threads' at the same time
    assert cost(shot=sg.Source([[100.0, 100.0]] * 5)) > 3 * one
    assert cost(shot=sg.Source([[100.0, 100.0]]), heard=sg.Receiver([[10.0, 10.0]])) > one


def test_a_run_in_parts_has_the_signal_of_its_steps_and_all_records() -> None:
    line, shape, _ = HOW["images"]
    update = survey(shape, sg.neumann)
    k, plain = compiled(update, shape, line), sg.compile(update, shape, 9, backend="reference")
    given = plain.random()
    *_, last = k.run(**given, steps=9, every=4, progress=False)
    fields, *records = plain(**given)
    for name, want in zip(("heard", "seen"), records, strict=True):
        assert np.abs(last.records[name] - want).max() <= 1e-12
    assert np.abs(last["u"] - fields[0]).max() <= 1e-12


def test_programs_are_text_that_is_read_again() -> None:
    k = compiled(survey((41, 150), sg.neumann), (41, 150), HOW["images"][0])
    for level in ("op", "tile", "warp"):
        text = str(k.ir(level))
        assert str(print_module(parse_module(text))) == text


def test_calls_of_some_more_steps_have_workspaces_of_the_same_size() -> None:
    """Each size has counters of its own."""
    k = compiled(survey((41, 150), sg.neumann), (41, 150), HOW["images"][0])
    sizes = {steps: dict(k._plan(steps).workspaces) for steps in (5, 8, 9)}
    assert sizes[5] == sizes[8] != sizes[9]
    assert {name for name in sizes[8] if sizes[8][name] != sizes[9][name]} == {
        "workspace.steps.heard", "workspace.steps.seen"
    }  # fmt: skip


def test_more_rows_than_indices_reach() -> None:
    k = compiled(survey((41, 150), sg.neumann), (41, 150), HOW["images"][0])
    with pytest.raises(ArrayError, match="indices are 32 bits wide"):
        k._plan(1 << 24)


def test_names_that_a_kernel_has_itself() -> None:
    """Groups may be called as buffers and tables of kernels are."""
    shape, where = SHAPES[2], [[20.0, 70.5]]
    update = two(2, sg.neumann).with_sites(
        cells=sg.Source(where, field="u"), edges=sg.Source(where, field="v"), epoch=sg.Receiver(where, "u"),
        facts=sg.Receiver(where, "v"),
    )  # fmt: skip
    plain = sg.compile(update, shape, 3, backend="reference")
    given = plain.random()
    for line in (HOW["images"][0], "tiled levels=3 rows=4 cols=2"):
        for a, b in zip(flat(compiled(update, shape, line, 3)(**given)), flat(plain(**given)), strict=True):
            assert np.abs(a - b).max() <= 1e-12
