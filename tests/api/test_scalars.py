"""Numbers that calls give for each time step: the same on every schedule, and as those that are part of a formula."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.ir.errors import ArrayError, StencilError
from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_module

STEPS = 7
SCHEDULES = {
    1: ("direct", "stream levels=4 cols=4", "tiled levels=3 cols=4 warps=1 rows=1", "resident tiles=6 cols=4 every=2"),
    2: (
        "direct block=32x8 column=2",
        "stream levels=3 cols=4",
        "tiled levels=2 rows=4 cols=1",
        "resident tiles=2x2 rows=5 cols=3 warps=5 every=2",
    ),
    3: (
        "direct",
        "column levels=1 lines=1",
        "column levels=2 lines=2 warps=8 planes=10",
        "tiled levels=2 cols=1 rows=2 planes=8 warps=4",
        "resident tiles=5x2x2 planes=6 rows=2 cols=2 warps=8 every=1",
    ),
}
SHAPES = {1: (700,), 2: (41, 150), 3: (20, 25, 70)}


def driven(axes: int, boundary: Any, dtype: str) -> Any:
    """Diffusion with a coefficient ``a``, and a source that swings in time."""

    def near(u: Any) -> Any:
        ends = [tuple(s * (i == axis) for i in range(axes)) for axis in range(axes) for s in (-1, 1)]
        return sum(u[end] for end in ends) - len(ends) * u[(0,) * axes]

    @sg.stencil(dtype=dtype, boundary=boundary)
    def heat(u: sg.Field, a: sg.Coef, dt: sg.Scalar, t: sg.Time, power: sg.Scalar) -> sg.Value:
        here = (0,) * axes
        return u[here] + dt * (a[here] * near(u) + power * sg.sin(t))

    return heat


def arrays(axes: int, dtype: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(axes)
    kind = {"f64": np.float64, "f32": np.float32, "f16": np.float16}[dtype]
    return rng.random(SHAPES[axes]).astype(kind), rng.random(SHAPES[axes]).astype(kind)


@pytest.mark.parametrize("boundary", [sg.periodic, sg.neumann, sg.frozen, sg.dirichlet(0.5)], ids=str)
@pytest.mark.parametrize(("axes", "line"), [(axes, line) for axes, lines in SCHEDULES.items() for line in lines])
def test_every_schedule_has_the_scalars_of_its_steps(axes: int, line: str, boundary: Any) -> None:
    update, (u, a) = driven(axes, boundary, "f64"), arrays(axes, "f64")
    kernel = sg.compile(update, u.shape, STEPS, "h200", schedule=line, backend="emulator")
    plain = sg.compile(update, u.shape, STEPS, schedule="direct", backend="reference")
    for numbers in (
        {"dt": 0.1, "power": 0.5},
        {"dt": np.linspace(0.01, 0.12, STEPS), "t": -1.5, "power": list(range(STEPS))},
        {"dt": 0.05, "t": np.linspace(3, 2, STEPS), "power": np.float32(0.25)},
    ):
        got, want = kernel(u, a, **numbers), plain(u, a, **numbers)
        assert np.abs(got - want).max() <= 1e-14
    assert not kernel.check().errors


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
def test_a_scalar_is_as_a_constant(dtype: str) -> None:
    """Also of 16 bits, which are worked out in f32."""
    u, a = arrays(2, dtype)
    step = 0.3

    @sg.stencil(dtype=dtype)
    def one(u: sg.Field, a: sg.Coef) -> sg.Value:
        return u[0, 0] + step * (a[0, 0] * (u[0, 1] - u[0, 0]))

    @sg.stencil(dtype=dtype)
    def other(u: sg.Field, a: sg.Coef, rate: sg.Scalar) -> sg.Value:
        return u[0, 0] + rate * (a[0, 0] * (u[0, 1] - u[0, 0]))

    for backend in ("emulator", "reference"):
        made = [sg.compile(k, u.shape, 4, schedule="stream levels=2 cols=8", backend=backend) for k in (one, other)]
        assert np.array_equal(made[0](u, a), made[1](u, a, rate=step))


def test_one_launch_makes_any_number_of_steps() -> None:
    """It reads a table of the steps of the call, whose length alone differs; rows are worked out in f32 for f16."""
    update, (u, a) = driven(2, sg.neumann, "f16"), arrays(2, "f16")
    kernel = sg.compile(update, u.shape, 2, "h200", schedule="resident tiles=2x2 rows=6 every=3", backend="emulator")
    plain = sg.compile(update, u.shape, 2, backend="reference")
    for steps in (1, 2, 8):
        numbers = {"dt": np.linspace(0.01, 0.1, steps), "power": 0.5}
        got, want = kernel(u, a, steps=steps, **numbers), plain(u, a, steps=steps, **numbers)
        assert np.abs(got.astype(float) - want).max() <= 2.0**-9
    assert "const float* __restrict__ scalars" in kernel.source() and kernel.counts().steps == 2
    chosen = sg.compile(driven(2, sg.periodic, "f64"), (512, 512), 1000, "h200", backend="emulator").schedule
    assert chosen.family == "resident"


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0.001, 0.2), min_size=1, max_size=9), st.floats(-5, 5))
def test_the_time_is_the_sum_of_the_steps_before(dts: list[float], start: float) -> None:
    @sg.stencil
    def clock(u: sg.Field, dt: sg.Scalar, t: sg.Time) -> sg.Value:
        return 0 * u[0] + t + 0 * dt

    kernel = sg.compile(clock, (64,), len(dts), backend="emulator", schedule="direct")
    got = kernel(np.zeros(64), dt=dts, t=start)
    assert np.allclose(got, start + sum(dts[:-1]), atol=1e-14)
    longer = sg.compile(clock, (64,), 3, backend="reference")
    assert np.allclose(longer(np.zeros(64), steps=5, dt=0.5), 2.0)  # of other steps than compiled


def test_numbers_that_nothing_varies_with_need_no_field() -> None:
    """What has one value for all cells is worked out once, and costs no cell an instruction."""

    @sg.stencil
    def shaken(u: sg.Field, t: sg.Time) -> sg.Value:
        return u[0, 0] + sg.sin(t) * sg.exp(-t)

    kernel = sg.compile(shaken, (64, 64), 4, backend="emulator", schedule="direct block=32x8 column=4")
    assert str(kernel.source()).count("sin(") == 1  # no border: one way through for all cells
    u, times = np.zeros((64, 64)), np.array([0.1, 0.2, 0.3, 0.4])
    assert np.allclose(kernel(u, t=times), (np.sin(times) * np.exp(-times)).sum(), rtol=1e-15)


def test_the_text_of_a_program_has_them() -> None:
    update, _ = driven(2, sg.periodic, "f64"), None
    kernel = sg.compile(update, (64, 64), 3, backend="emulator", schedule="stream levels=3 cols=4")
    for level in ("op", "tile", "warp"):
        text = str(kernel.ir(level))
        assert print_module(parse_module(text)) == text


def test_frames_of_a_run_have_those_of_their_steps() -> None:
    update, (u, a) = driven(2, sg.neumann, "f64"), arrays(2, "f64")
    kernel = sg.compile(update, u.shape, 12, schedule="stream levels=3 cols=4", backend="emulator")
    numbers = {"dt": np.linspace(0.01, 0.1, 12), "power": np.arange(12.0), "t": 0.5}
    frames = list(kernel.run(u, a, every=5, progress=False, **numbers))
    assert [frame.step for frame in frames] == [5, 10, 12]
    assert np.array_equal(frames[-1]["u"], kernel(u, a, **numbers))


def test_a_resumed_run_goes_on_with_the_scalars_of_its_steps(tmp_path: Path) -> None:
    update, (u, a) = driven(2, sg.neumann, "f64"), arrays(2, "f64")
    kernel = sg.compile(update, u.shape, 12, schedule="stream levels=3 cols=4", backend="emulator")
    dts, powers, file = np.linspace(0.01, 0.1, 12), np.arange(12.0), tmp_path / "run.npz"
    for steps in (5, 12):
        given = {"dt": dts[:steps], "power": powers[:steps], "t": 0.5}
        *_, last = kernel.run(u, a, steps=steps, progress=False, checkpoint=file, resume=True, **given)
    assert np.array_equal(last["u"], kernel(u, a, dt=dts, power=powers, t=0.5))


def test_measurements_take_any() -> None:
    update = driven(2, sg.periodic, "f64")
    kernel = sg.compile(update, (64, 64), 3, backend="emulator", schedule="direct")
    assert kernel.bench(repeats=1).median > 0
    assert kernel.counts().steps == 3
    assert kernel(**kernel.random()).shape == (64, 64)
    assert "with a, dt, t, power" in str(update) and str(update.expr).count("dt")


def test_what_is_missing_or_of_the_wrong_length() -> None:
    update, (u, a) = driven(2, sg.periodic, "f64"), arrays(2, "f64")
    kernel = sg.compile(update, u.shape, STEPS, backend="reference")
    for numbers, what in (
        ({"dt": 0.1}, "no number for power"),
        ({"dt": [0.1, 0.2], "power": 1}, r"dt is an array of shape \[2\]"),
        ({"dt": "fast", "power": 1}, "dt is 'fast'"),
        ({"dt": 0.1j, "power": 1}, "dt is "),
        ({"dt": 0.1, "power": 1, "speed": 2}, "speed is no parameter"),
        ({"dt": 0.1, "power": 1, "t": np.zeros((STEPS, 1))}, r"t is an array of shape \[7, 1\]"),
    ):
        with pytest.raises(ArrayError, match=what) as found:
            kernel(u, a, **numbers)
        assert found.value.hint

    @sg.stencil
    def timed(u: sg.Field, t: sg.Time) -> sg.Value:
        return u[0] + t

    with pytest.raises(ArrayError, match="no scalar dt that the time advances by"):
        sg.compile(timed, (64,), 2, backend="reference")(np.zeros(64), t=1.0)


def test_what_is_refused_where_it_is_described() -> None:
    with pytest.raises(StencilError, match="never reads its scalar c"):

        @sg.stencil
        def idle(u: sg.Field, c: sg.Scalar) -> sg.Value:
            return u[1] + u[-1]

    with pytest.raises(StencilError, match="at least one of them a field"):

        @sg.stencil
        def alone(c: sg.Scalar) -> sg.Value:
            return c * 2
