"""Sources and receivers: what a loop of single steps does by hand, on every schedule; and what is refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.families.update.sites import site_windows
from sparsegen.ir.errors import ArrayError, StencilError
from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_module

STEPS = 5
SCHEDULES = {
    1: (
        "direct", "stream levels=3 cols=4 rows=1", "tiled levels=2 rows=1 cols=4 warps=1",
        "resident tiles=3 cols=4 every=2",
    ),
    2: (
        "direct block=32x8 column=2", "stream levels=3 cols=4", "tiled levels=2 rows=4 cols=1",
        "resident tiles=2x3 rows=3 cols=2 warps=9 every=2", "resident tiles=3x3 rows=1 cols=2 warps=16 every=1",
    ),
    3: (
        "direct", "column levels=1 lines=1", "column levels=2 lines=2 warps=8 planes=10",
        "resident tiles=3x2x3 planes=6 rows=2 cols=1 warps=5 every=1",
    ),
}  # fmt: skip
SHAPES = {1: (300,), 2: (41, 150), 3: (12, 15, 70)}
Array = Any


def near(u: Any, axes: int) -> Any:
    ends = [tuple(s * (i == axis) for i in range(axes)) for axis in range(axes) for s in (-1, 1)]
    return sum(u[end] for end in ends) - len(ends) * u[(0,) * axes]


def two(axes: int, boundary: Any, dtype: str = "f64") -> Any:
    """Two fields, one of two time levels, that drive one another."""
    here = (0,) * axes

    @sg.stencil(boundary=boundary, dtype=dtype)
    def two(u: sg.Field, v: sg.Field(levels=2), dt: sg.Scalar) -> Any:  # type: ignore[valid-type]
        now: Any = v
        return u[here] + dt * near(u, axes) + 0.1 * now[here], (
            1.9 * now[here] - 0.95 * now.prev[here] + dt * near(now, axes) * u[here]
        )

    return two


def corners(point: Array, shape: Any) -> list[tuple[tuple[int, ...], float]]:
    """The cells around a point with their weights; at an end those at the other one."""
    low = np.floor(point).astype(int)
    found = []
    for corner in product((0, 1), repeat=len(shape)):
        weight = float(np.prod([f if c else 1 - f for f, c in zip(point - low, corner, strict=True)]))
        if weight:
            found.append((tuple(int(i) for i in (low + corner) % shape), weight))
    return found


def by_hand(step: Any, state: Any, sources: Array, signal: Array, receivers: Any, **numbers: Any) -> Any:
    """A loop of single steps; receivers are of u and of v."""
    u, levels = state
    records: Any = [[], []]
    for row in signal:
        u, levels = step(u, levels, **numbers)
        for point, number in zip(sources, row, strict=True):
            for cell, weight in corners(point, u.shape):
                levels[0][cell] += weight * number
        for of, points, record in zip((u, levels[0]), receivers, records, strict=True):
            record.append([sum(of[cell] * weight for cell, weight in corners(p, u.shape)) for p in points])
    return u, levels, *map(np.array, records)


@pytest.mark.parametrize("boundary", [sg.periodic, sg.neumann, sg.frozen, sg.dirichlet(0.5)], ids=str)
@pytest.mark.parametrize("axes", SHAPES)
def test_every_schedule_does_at_each_step_what_a_loop_of_steps_does(axes: int, boundary: Any) -> None:
    rng, shape, update = np.random.default_rng(axes), SHAPES[axes], two(axes, boundary)
    top = np.array(shape) - (boundary is not sg.periodic)
    sources, of_u = rng.random((4, axes)) * top, rng.random((6, axes)) * top
    of_u[0], sources[0] = 0, top - (boundary is sg.periodic) * 0.25
    of_v = np.floor(rng.random((3, axes)) * (np.array(shape) - 1))
    signal = rng.standard_normal((STEPS, 4)) * 0.1
    u, v, older = rng.random((3, *shape))
    step = sg.compile(update, shape, backend="reference")
    want = by_hand(step, (u, (v, older)), sources, signal, (of_u, of_v), dt=0.05)
    whole = update.with_sites(shot=sg.Source(sources, field="v"), a=sg.Receiver(of_u, "u"), b=sg.Receiver(of_v, "v"))
    for line in ("reference", *SCHEDULES[axes]):
        where = {"backend": "reference"} if line == "reference" else {"backend": "emulator", "schedule": line}
        kernel = sg.compile(whole, shape, STEPS, **where)  # type: ignore[arg-type]
        (new, (now, before)), *records = kernel(u, (v, older), dt=0.05, shot=signal)
        for got, exact in zip((new, now, before, *records), (want[0], *want[1], *want[2:]), strict=True):
            assert got.shape == exact.shape and np.abs(got - exact).max() <= 1e-14, line
        if line != "reference":
            assert not kernel.check().errors


@pytest.mark.parametrize(("dtype", "off"), [("f32", 1e-6), ("f16", 2e-3)])
def test_narrow_fields_have_wide_records(dtype: str, off: float) -> None:
    update = two(2, sg.neumann, dtype).with_sites(
        shot=sg.Source([[3.5, 7.25]], [0.5] * 3, field="u"), seen=sg.Receiver([[4.5, 9.5]], field="u")
    )
    kind = np.float32 if dtype == "f32" else np.float16
    state = np.random.default_rng(0).random((3, 40, 70)).astype(kind)
    got, want = (
        sg.compile(update, (40, 70), 3, backend=backend)(state[0], (state[1], state[2]), dt=0.05)
        for backend in ("emulator", "reference")
    )
    assert got[1].dtype == np.float32 and np.abs(got[1] - want[1]).max() <= off
    assert np.abs(got[0][0].astype(float) - want[0][0].astype(float)).max() <= off


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_random_sites_on_random_schedules(data: Any) -> None:
    boundary = data.draw(st.sampled_from([sg.periodic, sg.neumann, sg.frozen]))
    shape = data.draw(st.tuples(st.integers(32, 60), st.integers(64, 90)))
    steps = data.draw(st.integers(1, 6))
    place = st.tuples(*(st.floats(0, n - 1) for n in shape))
    sources, receivers = (data.draw(st.lists(place, min_size=1, max_size=4)) for _ in range(2))
    line = data.draw(
        st.sampled_from(["direct", "stream levels=2 cols=4", "tiled levels=3 rows=8 cols=2 warps=4", "auto"])
    )
    if line != "auto" and "levels" in line and steps < int(line.split("levels=")[1][0]):
        line = "direct"
    update = two(2, boundary).with_sites(shot=sg.Source(sources, field="u"), seen=sg.Receiver(receivers, field="u"))
    kernel = sg.compile(update, shape, steps, schedule=line, backend="emulator")
    given = kernel.random()
    got, want = kernel(**given), sg.compile(update, shape, steps, backend="reference")(**given)
    assert np.abs(got[1] - want[1]).max() <= 1e-12 and np.abs(got[0][0] - want[0][0]).max() <= 1e-12


def test_the_same_signal_for_all_points_and_one_that_the_source_has() -> None:
    points, wavelet = [[5.0, 6.0], [20.5, 30.0]], np.arange(4.0)
    update = two(2, sg.periodic)
    kernel = sg.compile(update.with_sites(shot=sg.Source(points, wavelet, "u")), (40, 70), 4, backend="reference")
    given = {**kernel.random(), "dt": 0.1}
    both = np.stack([wavelet, wavelet], axis=1)
    first, *_ = kernel(**{**given, "shot": both})
    del given["shot"]
    assert np.array_equal(kernel(**given)[0], first)


def test_points_are_lengths_where_they_have_a_spacing() -> None:
    heat = sg.Stencil.from_weights(np.full((3, 3), 0.1), sg.neumann)
    update = heat.with_sites(seen=sg.Receiver([[6.0, 0.7], [10.0, 3.0]], spacing=(2.0, 0.1)))
    kernel = sg.compile(update, (20, 40), backend="reference")
    u, record = kernel(np.random.default_rng(1).random((20, 40)))
    assert np.array_equal(record[0], [u[3, 7], u[5, 30]])


def test_a_run_takes_the_signal_of_its_steps_and_frames_have_the_records() -> None:
    update = two(2, sg.neumann).with_sites(
        shot=sg.Source([[9.5, 20.0]], field="u"), seen=sg.Receiver([[3.0, 2.5]], "u")
    )
    kernel = sg.compile(update, (40, 70), 3, backend="emulator", schedule="stream levels=3 cols=4")
    state, signal = np.random.default_rng(2).random((3, 40, 70)), np.random.default_rng(3).random((11, 1))
    given = {"u": state[0], "v": (state[1], state[2]), "dt": 0.05}
    frames = list(kernel.run(**given, shot=signal, steps=11, every=4, progress=False))
    assert [frame.step for frame in frames] == [4, 8, 11]
    for frame in frames:
        part = sg.compile(update, (40, 70), frame.step, backend="reference")
        (u, _), record = part(**given, shot=signal[: frame.step])
        assert frame.records["seen"].shape == (frame.step, 1)
        assert np.abs(frame.records["seen"] - record).max() <= 1e-14 and np.abs(frame["u"] - u).max() <= 1e-14


def test_programs_with_sites_are_text_that_is_read_again() -> None:
    update = two(2, sg.neumann).with_sites(
        shot=sg.Source([[9.5, 20.0]], field="u"), seen=sg.Receiver([[3.0, 2.5]], "u")
    )
    kernel = sg.compile(update, (40, 70), 2, backend="emulator", schedule="tiled levels=2 rows=4")
    for level in ("op", "tile", "warp"):
        text = str(kernel.ir(level))  # type: ignore[arg-type]
        assert str(print_module(parse_module(text))) == text
    assert "sites" in str(kernel.explain()) and "shot" in repr(update)


def test_updates_with_other_sites_are_others() -> None:
    update = two(2, sg.neumann)
    one, same, other = (update.with_sites(at=sg.Receiver([[3.0, x]], field="u")) for x in (1.0, 1.0, 2.0))
    assert one == same != other and one != update and hash(one) == hash(same)


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        ({"dt": sg.Receiver([[1, 2]], "u")}, "a name that is taken"),
        ({"steps": sg.Receiver([[1, 2]], "u")}, "a name that is taken"),
        ({"at": sg.Receiver([[1, 2]])}, "one of several fields"),
        ({"at": sg.Receiver([[1, 2]], "w")}, "of w, which is no field"),
        ({"at": sg.Receiver([[1, 2, 3]], "u")}, "3 coordinates"),
        ({"at": [[1, 2]]}, r"at is \[\[1, 2\]\]"),
    ],
)
def test_sites_that_do_not_fit_an_update(sites: Any, words: str) -> None:
    with pytest.raises(StencilError, match=words):
        two(2, sg.neumann).with_sites(**sites)


def test_a_spacing_of_other_axes() -> None:
    with pytest.raises(StencilError, match="3 numbers for points of 2 coordinates"):
        sg.Receiver([[1, 2]], spacing=(1, 1, 1))


@pytest.mark.parametrize("points", [[], [1.0, 2.0], [[np.nan, 1.0]], "here", [[[1.0]]]])
def test_what_are_no_points(points: Any) -> None:
    with pytest.raises(StencilError, match="points"):
        sg.Receiver(points)


def test_a_point_outside_the_domain() -> None:
    update = two(2, sg.neumann).with_sites(shot=sg.Source([[1, 2], [39.5, 3]], field="u"))
    with pytest.raises(StencilError, match=r"point 1 of shot, at \[39.5, 3.0\] cells, is outside"):
        sg.compile(update, (40, 70), backend="reference")
    periodic = two(2, sg.periodic).with_sites(shot=sg.Source([[39.5, 3]], field="u"))
    sg.compile(periodic, (40, 70), backend="reference")  # between the last cell and the first


def test_signals_that_do_not_fit() -> None:
    update = two(2, sg.neumann).with_sites(shot=sg.Source([[1, 2], [5, 3]], field="u"))
    kernel = sg.compile(update, (40, 70), 3, backend="reference")
    given = kernel.random()
    for signal, words in ((None, "no signal for shot"), (np.zeros((4, 2)), "shot has shape"), (np.zeros(2), "2")):
        with pytest.raises(ArrayError, match=words):
            kernel(**{**given, "shot": signal})
    with pytest.raises(ArrayError, match="shot has shape"):
        kernel.run(**{**given, "shot": np.zeros((4, 2))}, steps=6)


def test_the_cost_of_sites_on_one_axis() -> None:
    """Its term counts windows near the points, however many axes the schedule of the fields has."""
    points = np.linspace(3.0, 3000.0, 40)[:, None]
    kernels = [
        sg.compile(
            two(1, sg.neumann).with_sites(seen=sg.Receiver(some, "u")), (4096,), 4, backend="reference",
            schedule="stream levels=2 cols=4 rows=1",
        )
        for some in (points[:1], points)
    ]  # fmt: skip
    device, update = kernels[1].device, kernels[1].problem.what
    few, many = (k.cost.values["sites"] for k in kernels)
    found = site_windows(update, (4096,), 2, device)
    assert found is not None and few <= many == found.seconds
