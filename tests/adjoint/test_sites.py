"""Adjoints with sites: what sources add is recorded there, what receivers record is added, before each step back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.ir.errors import ArrayError, IRError
from sparsegen.ir.kernels.stored_sites import StoredSites
from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_module
from tests.api.test_shots import flat
from tests.api.test_sites import SCHEDULES, SHAPES

STEPS = 5
BOUNDARIES = (sg.periodic, sg.neumann, sg.frozen, sg.dirichlet(0.0))
CASES = [(axes, line) for axes, lines in SCHEDULES.items() for line in (*lines, "reference")]


def survey(axes: int, boundary: Any, dtype: str = "f64") -> Any:
    """Two linear fields that drive one another, one of two levels, with skew weights and a coefficient read beside a
    cell; sources and receivers of both, between cells, on them, and two at one place."""
    here, east = (0,) * axes, (*(0,) * (axes - 1), 1)

    @sg.stencil(boundary=boundary, dtype=dtype)
    def step(u: sg.Field, v: sg.Field(levels=2), c: sg.Coef, gain: sg.Scalar) -> Any:  # type: ignore[valid-type]
        now: Any = v
        return u[here] + gain * u[east] - 0.1 * now.prev[here] * c[here], (
            1.3 * now[here] - 0.5 * now.prev[here] + gain * c[east] * (u[here] - now[east])
        )

    top, rng = np.array(SHAPES[axes]) - 1, np.random.default_rng(axes)
    ends = np.stack([np.zeros(axes), top, top])
    return step.with_sites(
        shot=sg.Source(rng.random((3, axes)) * top, field="v"), first=sg.Source(ends, field="u"),
        a=sg.Receiver(rng.random((4, axes)) * top, "u"), b=sg.Receiver(np.floor(rng.random((2, axes)) * top), "v"),
    )  # fmt: skip


def drawn(kernel: Any, steps: int, seed: int = 1) -> Any:
    """What a call is given, and weights of all that it gives back."""
    rng = np.random.default_rng(seed)
    shared = kernel.problem.batch.shared if kernel.batch else ()
    x = sg.compile(kernel.update, kernel.shape, steps, "h200", "reference", batch=kernel.batch, shared=shared).random()
    x["gain"] = rng.random(steps) * 0.3
    return x, [rng.standard_normal(a.shape) for a in flat(kernel(**x, steps=steps))]


def back_of(back: Any, x: Any, y: Any, steps: int) -> list[Any]:
    """The adjoint for weights of a call's results: by u, both levels of v, and both signals."""
    u, now, before, a, b = y
    return flat(back(u=u, v=(now, before), c=x["c"], gain=x["gain"], a=a, b=b, steps=steps))


def dots(kernel: Any, back: Any, steps: int) -> tuple[float, float]:
    """The two products that are one."""
    x, y = drawn(kernel, steps)
    given = (x["u"], *x["v"], x["shot"], x["first"])
    left = sum(float(np.vdot(a, b)) for a, b in zip(flat(kernel(**x, steps=steps)), y, strict=True))
    made = back_of(back, x, y, steps)
    assert [a.shape for a in made] == [a.shape for a in given]
    return left, sum(float(np.vdot(a, b)) for a, b in zip(made, given, strict=True))


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize(("axes", "line"), CASES)
def test_the_dot_products_agree(axes: int, line: str, boundary: Any) -> None:
    """On every schedule; calls of another number of steps, which is no multiple of a pass, too."""
    where = "reference" if line == "reference" else "emulator"
    forward = sg.compile(survey(axes, boundary), SHAPES[axes], STEPS, "h200", "reference")
    kernel = sg.compile(survey(axes, boundary), SHAPES[axes], STEPS, "h200", where)
    back = kernel.adjoint("auto" if line == "reference" else line)
    for steps in (STEPS, 2 * STEPS - 2):
        left, right = dots(forward, back, steps)
        assert left == pytest.approx(right, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize(("axes", "line"), [(1, SCHEDULES[1][1]), (2, SCHEDULES[2][2]), (3, SCHEDULES[3][2])])
def test_the_emulator_checks_it_and_gives_the_references_numbers(axes: int, line: str) -> None:
    kernel = sg.compile(survey(axes, sg.frozen), SHAPES[axes], STEPS, "h200", "emulator")
    back, plain = kernel.adjoint(line), sg.compile(kernel.update, kernel.shape, STEPS, "h200", "reference").adjoint()
    x, y = drawn(kernel, STEPS)
    for a, b in zip(back_of(back, x, y, STEPS), back_of(plain, x, y, STEPS), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
    assert not back.check().errors
    text = str(back.ir("op"))
    assert str(print_module(parse_module(text))) == text and "backwards" in text
    assert "its sources are at the receivers" in str(back.source())


def test_a_pulse_at_a_receiver_comes_back_at_the_source_at_the_step_that_sent_it() -> None:
    """Without a step between them, sources and receivers see the same step: a number of 1 goes to 1/4 of four cells."""

    @sg.stencil(boundary=sg.neumann)
    def kept(u: sg.Field) -> Any:
        return u[0, 0]

    points = [[20.5, 30.5]]
    update = kept.with_sites(shot=sg.Source(points), heard=sg.Receiver(points))
    back = sg.compile(update, (48, 70), 4, "h200", "emulator").adjoint("stream levels=2 cols=4")
    heard = np.zeros((4, 1))
    heard[2] = 1.0
    u, shot = back(np.zeros((48, 70)), heard=heard)
    assert shot[:, 0].tolist() == [0.25, 0.25, 0.25, 0.0]
    assert u.sum() == 1.0 and np.array_equal(u[20:22, 30:32], np.full((2, 2), 0.25))


def test_the_adjoint_of_a_batch_has_the_signals_of_each_item() -> None:
    update = survey(2, sg.neumann)
    for line in ("tiled levels=2 rows=4 cols=1", "stream levels=3 cols=4"):
        kernel = sg.compile(update, SHAPES[2], STEPS, "h200", "emulator", batch=2, shared="c")
        back = kernel.adjoint(line)
        left, right = dots(kernel, back, STEPS + 2)
        assert left == pytest.approx(right, rel=1e-11)
    shared = sg.compile(update, SHAPES[2], STEPS, "h200", "reference", batch=2, shared=("c", "shot"))
    x, y = drawn(kernel, STEPS)
    assert back_of(shared.adjoint(), x, y, STEPS)[3].shape == (2, STEPS, 3)


def test_frames_of_a_run_back_have_the_records_in_the_order_of_the_forward_steps() -> None:
    update = survey(2, sg.dirichlet(0.0))
    back = sg.compile(update, SHAPES[2], 3, "h200", "emulator").adjoint("stream levels=3 cols=4")
    kernel = sg.compile(update, SHAPES[2], 11, "h200", "reference")
    x, y = drawn(kernel, 11)
    u, now, before, a, b = y
    given = {"u": u, "v": (now, before), "c": x["c"], "gain": x["gain"], "a": a, "b": b}
    *_, last = back.run(**given, steps=11, every=4, progress=False)
    want = back_of(kernel.adjoint(), x, y, 11)
    assert [last.step, last.records["shot"].shape] == [11, (11, 3)]
    np.testing.assert_allclose(last["u"], want[0], rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(last.records["shot"], want[3], rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(last.records["first"], want[4], rtol=1e-11, atol=1e-12)


def test_what_is_refused() -> None:
    kernel = sg.compile(survey(2, sg.periodic), SHAPES[2], 2, "h200", "reference")
    back = kernel.adjoint()
    given = back.random()
    with pytest.raises(ArrayError, match=r"no signal for a"):
        back(**{name: value for name, value in given.items() if name != "a"})
    with pytest.raises(IRError, match="act on what a step reads"):
        StoredSites().run(back.problem.describe())
