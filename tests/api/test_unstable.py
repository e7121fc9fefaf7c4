"""The warning of a time step that is too large: when, of what, once, and never of what it does not know."""

from __future__ import annotations

import re
import warnings
from typing import Annotated, Any

import numpy as np
import pytest

import sparsegen as sg

ZERO = np.zeros((16, 16))
Plane = Annotated[sg.Field, sg.Field(spacing=(0.5, 0.5))]


def plane(dt: float) -> Any:
    return Annotated[sg.Field, sg.Field(spacing=(0.5, 0.5), dt=dt)]


def compiled(function: Any, **options: Any) -> Any:
    return sg.compile(sg.stencil(**options)(function), (16, 16), backend="reference", device="h200")


def said(attempt: Any) -> list[str]:
    """What an attempt warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        attempt()
    assert all(each.category is sg.UnstableWarning and each.filename == __file__ for each in caught)
    return [str(each.message) for each in caught]


def spread(u: Plane, dt: sg.Scalar) -> sg.Value:
    return sg.solve(sg.Eq(u.dt, u.laplace), u.next)


def test_a_step_that_derivatives_have_is_judged_when_compiled() -> None:
    def heat(u: Any) -> Any:
        return sg.solve(sg.Eq(u.dt, u.laplace), u.next)

    for dt, told in ((0.0625, []), (0.1, ["dt=0.1 is beyond 0.0625, the largest stable time step of heat"])):
        heat.__annotations__["u"] = plane(dt)
        found = said(lambda: compiled(heat))
        assert [text.partition(": ")[0] for text in found] == told
    assert found[0].endswith("errors grow 2.2 times in each")
    assert sg.stencil(heat).stepped.dt == 0.1 and sg.stencil(heat) != sg.stencil(spread)


def test_a_step_of_a_call_is_judged_once() -> None:
    k = compiled(spread)
    assert not said(lambda: [k(ZERO, dt=dt) for dt in (0.01, 0.02, np.array([0.06]), 0.0625)])
    assert len(said(lambda: [k(ZERO, dt=dt) for dt in (0.07, 0.08, 0.01)])) == 1
    assert not said(lambda: k(ZERO, dt=0.09))
    (text,) = said(lambda: compiled(spread)(ZERO, steps=3, dt=[0.01, 0.2, 0.01]))
    assert "dt=0.2 is beyond 0.0625" in text


def test_a_run_says_so_too() -> None:
    k = compiled(spread)
    assert len(said(lambda: list(k.run(ZERO, steps=3, every=1, progress=False, dt=0.07)))) == 1


def test_coefficients_are_those_of_the_first_call() -> None:
    """The largest step is that of sg.growth, for which calls give it."""

    def wave(u: Any, s: sg.Coef, d: sg.Coef) -> Any:
        return sg.solve(sg.Eq(u.dt2 + d[0, 0] * u.dtc, s[0, 0] ** 2 * u.laplace), u.next)

    def stepped(u: Any, s: sg.Coef, d: sg.Coef, dt: sg.Scalar) -> Any:
        return wave(u, s, d)

    wave.__annotations__["u"] = sg.Field(levels=2, spacing=(1, 1), dt=0.5)
    stepped.__annotations__["u"] = sg.Field(levels=2, spacing=(1, 1))
    slow, fast = np.full((16, 16), 1.0), np.linspace(1, 2, 256).reshape(16, 16)
    k = compiled(wave)
    assert not said(lambda: [k((ZERO, ZERO), s, ZERO) for s in (slow, fast)])
    (text,) = said(lambda: compiled(wave)((ZERO, ZERO), fast, ZERO))
    limit = sg.growth(sg.stencil(stepped), s=fast, d=0.0).limit
    assert limit == pytest.approx(0.5**0.5 / 2, rel=1e-6)
    assert float(re.findall("beyond ([0-9.]+),", text)[0]) == pytest.approx(limit, rel=2e-4)
    zero = np.zeros((16, 16), np.float32)
    assert len(said(lambda: compiled(wave, dtype="f32")((zero, zero), fast.astype(np.float32), zero))) == 1


def test_walls_do_not_count() -> None:
    def heat(u: Plane, solid: sg.Mask, dt: sg.Scalar) -> sg.Value:
        return sg.solve(sg.Eq(u.dt, u.walled(solid).laplace), u.next)

    k = compiled(heat)
    assert not said(lambda: k(ZERO, ZERO > 0, dt=0.06)) and len(said(lambda: k(ZERO, ZERO > 0, dt=0.07))) == 1
    assert sg.growth(k.update).limit == pytest.approx(0.0625) and not k.stability(dt=0.07).stable
    assert k.stability(dt=0.07, solid=1).stable  # where nothing is free, nothing moves


@pytest.mark.parametrize("rate", [2.0, 0.3, 1e-3, 1e-5, 1e-9])
def test_growth_of_the_equation_itself_is_none_of_the_step(rate: float) -> None:
    def breed(u: Plane, r: sg.Coef, dt: sg.Scalar) -> sg.Value:
        return sg.solve(sg.Eq(u.dt, u.laplace + r[0, 0] * u[0, 0]), u.next)

    k, r = compiled(breed), np.full((16, 16), rate)
    assert not said(lambda: [k(ZERO, r, dt=dt) for dt in (1e-6, 1e-3, 0.05)])
    (text,) = said(lambda: k(ZERO, r, dt=0.2))
    assert "dt=0.2 is beyond 0.0" in text


def test_what_is_not_judged() -> None:
    def square(u: Plane, dt: sg.Scalar) -> sg.Value:
        return sg.solve(sg.Eq(u.dt, (u[0, 0] ** 2).laplace), u.next)

    def driven(u: Plane, dt: sg.Scalar, t: sg.Time) -> sg.Value:
        return sg.solve(sg.Eq(u.dt, (1 + sg.sin(t)) * u.laplace), u.next)

    def still(u: plane(9.0)) -> sg.Value:  # type: ignore[valid-type]
        return (u[0, 1] + u[0, -1]) / 2  # type: ignore[index]

    def coupled(u: plane(9.0), v: plane(8.0)) -> Any:  # type: ignore[valid-type]
        return sg.solve(sg.Eq(u.dt, u.laplace), u.next), sg.solve(sg.Eq(v.dt, v.laplace), v.next)  # type: ignore[attr-defined]

    def many(u: Plane, a: sg.Coef, b: sg.Coef, dt: sg.Scalar) -> sg.Value:
        return sg.solve(sg.Eq(u.dt, a[0, 0] / b[0, 0] * u.laplace), u.next)

    assert not said(lambda: compiled(square)(ZERO, dt=9.0))
    assert not said(lambda: compiled(driven)(ZERO, dt=9.0))  # the call says no time
    assert not said(lambda: compiled(still)(ZERO))
    assert not said(lambda: compiled(coupled)(ZERO, ZERO))
    assert not said(lambda: compiled(many)(ZERO, ZERO + 1, ZERO, dt=9.0))  # a coefficient is infinite
    assert not said(lambda: compiled(spread)(ZERO, dt=np.nan)) and not said(lambda: compiled(spread)(ZERO, dt=-1.0))


def test_warnings_are_silenced_as_pythons_are() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(sg.UnstableWarning):
            compiled(spread)(ZERO, dt=0.2)
        warnings.filterwarnings("ignore", category=sg.UnstableWarning)
        compiled(spread)(ZERO, dt=0.2)


def test_tensors_are_looked_at_where_they_are() -> None:
    torch = pytest.importorskip("torch")

    def heat(u: Plane, c: sg.Coef, dt: sg.Scalar) -> sg.Value:
        return sg.solve(sg.Eq(u.dt, c[0, 0] * u.laplace), u.next)

    zero = torch.zeros(16, 16, dtype=torch.float64)
    (text,) = said(lambda: compiled(heat)(zero, zero + 2, dt=torch.tensor([0.04])))
    assert "beyond 0.03125" in text
