"""``sg.solve``: the schemes that equations stand for, and equations that have none."""

from __future__ import annotations

import importlib
from fractions import Fraction
from operator import add, mul, sub
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.backends.reference.update import MEANING
from sparsegen.dsl.trace import stencil
from sparsegen.ir import formula

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_wave_of_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """With cells and steps of 1 it is the very formula that is written by hand there."""
    monkeypatch.syspath_prepend(str(EXAMPLES))

    @sg.stencil(dtype="f64", boundary={0: sg.neumann, 1: sg.dirichlet(0.0)})
    def wave(u: Annotated[sg.Field, sg.Field(levels=2, spacing=(1, 1), dt=1)], c: sg.Coef) -> sg.Value:
        return sg.solve(sg.Eq(u.dt2, c[0, 0] * u.laplace), u.next)

    by_hand = importlib.import_module("wave").wave
    assert wave == by_hand and hash(wave) == hash(by_hand)


def test_an_explicit_equation_of_one_field_is_a_stencil() -> None:
    def heat(u: Annotated[sg.Field, sg.Field(spacing=(0.5, 0.25), dt=0.015625)]) -> sg.Value:
        return sg.solve(sg.Eq(u.dt, 0.25 * u.laplace), u.next)

    def alone(u: Annotated[sg.Field, sg.Field(spacing=(0.5, 0.25), dt=0.015625)]) -> sg.Value:
        return sg.solve(0.25 * u.laplace - u.dt, u.next)

    def turned(u: Annotated[sg.Field, sg.Field(spacing=(0.5, 0.25), dt=0.015625)]) -> sg.Value:
        return sg.solve(sg.Eq(0, (0.25 * u.laplace - u.dt) * 8), u.next)

    across, down, middle = 0.0625, 0.015625, 1 - 2 * (0.0625 + 0.015625)
    expected = [[0, down, 0], [across, middle, across], [0, down, 0]]
    for one in (stencil(heat), stencil(alone), stencil(turned)):
        assert isinstance(one, sg.Stencil) and one.weights.tolist() == expected


def test_steps_cancel_exactly() -> None:
    """A tenth is no binary number, yet u and u.prev keep the factors 2 and 1."""

    @sg.stencil
    def wave(u: Annotated[sg.Field, sg.Field(levels=2, spacing=(0.3,), dt=0.1)], c: sg.Coef) -> sg.Value:
        return sg.solve(sg.Eq(u.dt2, c[0] * u.dxx), u.next)

    assert isinstance(wave, sg.Update)
    numbers = {node[1] for node in wave.code if node[0] == "const"}
    assert 2.0 in numbers and sorted(numbers) == pytest.approx([0.1**2 / 0.3**2, 2.0], rel=1e-15)


def run(update: Any, *levels: Any, **coefs: Any) -> Any:
    given = {"u": levels if len(levels) > 1 else levels[0], **coefs}
    k = sg.compile(update, levels[0].shape, steps=1, backend="reference", device="h200")
    found = k(**given)
    return found[0] if isinstance(found, tuple) else found


def test_the_factor_may_be_a_formula() -> None:
    """A damped wave, heat of a capacity that varies, and a sink that is taken at the new time."""
    rng = np.random.default_rng(1)
    u, prev, c, d = rng.random((4, 20)) + 0.5
    dt, h = 0.1, 0.3
    lap = (np.roll(u, 1) + np.roll(u, -1) - 2 * u) / h**2

    @sg.stencil
    def damped(u: Annotated[sg.Field, sg.Field(levels=2, spacing=(h,), dt=dt)], c: sg.Coef, d: sg.Coef) -> sg.Value:
        return sg.solve(sg.Eq(u.dt2 + d[0] * u.dtc, c[0] * u.laplace), u.next)

    new = (2 * u - prev + d * dt / 2 * prev + dt**2 * c * lap) / (1 + d * dt / 2)
    assert np.allclose(run(damped, u, prev, c=c, d=d), new, rtol=1e-13)

    @sg.stencil
    def capacity(u: Annotated[sg.Field, sg.Field(spacing=(h,), dt=dt)], c: sg.Coef) -> sg.Value:
        return sg.solve(sg.Eq(c[0] * u.dt, u.laplace), u.next)

    assert np.allclose(run(capacity, u, c=c), u + dt * lap / c, rtol=1e-13)

    @sg.stencil
    def sink(u: Annotated[sg.Field, sg.Field(spacing=(h,), dt=dt)], c: sg.Coef) -> sg.Value:
        return sg.solve(sg.Eq(u.dt, u.laplace - sg.exp(c[0]) * u.next[0] + 3), u.next)

    assert np.allclose(run(sink, u, c=c), (u + dt * lap + dt * 3) / (1 + dt * np.exp(c)), rtol=1e-13)

    @sg.stencil
    def stepped(u: Annotated[sg.Field, sg.Field(levels=2, spacing=(h,))], c: sg.Coef) -> sg.Value:
        return sg.solve(sg.Eq(u.dt2(c[0]), u.laplace), u.next)  # a time step that is a value

    assert np.allclose(run(stepped, u, prev, c=c), 2 * u - prev + c**2 * lap, rtol=1e-13)


def equations(known: Any, new: Any) -> st.SearchStrategy[Any]:
    """Functions of what is read that are linear in ``new``."""
    number = st.sampled_from([-3, -0.5, 0.1, 1, 2, Fraction(1, 3)]).map(lambda n: lambda reads: n)
    plain = st.recursive(
        st.one_of(number, known),
        lambda inner: st.builds(
            lambda op, a, b: lambda r: op(a(r), b(r)), st.sampled_from([add, sub, mul]), inner, inner
        ),
        max_leaves=4,
    )
    return st.recursive(
        new,
        lambda inner: st.one_of(
            st.builds(lambda op, a, b: lambda r: op(a(r), b(r)), st.sampled_from([add, sub]), inner, plain),
            st.builds(lambda op, a, b: lambda r: op(b(r), a(r)), st.sampled_from([add, sub, mul]), inner, plain),
            st.builds(lambda a, b: lambda r: a(r) / (2 + b(r)), inner, known),
            st.builds(lambda op, a, b: lambda r: op(a(r), b(r)), st.sampled_from([add, sub]), inner, inner),
            inner.map(lambda a: lambda r: -a(r)),
        ),
        max_leaves=5,
    )


READS = st.sampled_from(["u[0]", "u[1]", "u.prev[0]", "c[0]", "c[-1]"]).map(lambda name: lambda r: r[name])
NEW = st.sampled_from(["u.next[0]", "u.dt", "u.dt2", "u.dtc"]).map(lambda name: lambda r: r[name])


@settings(max_examples=200, deadline=None)
@given(equations(READS, NEW), st.integers(0, 2**32 - 1))
def test_solutions_solve_their_equations(equation: Any, seed: int) -> None:
    kept: list[Any] = []

    def scheme(u: Annotated[sg.Field, sg.Field(levels=2, spacing=(1,), dt=0.3)], c: sg.Coef) -> Any:
        reads = {"u[0]": u[0], "u[1]": u[1], "u.prev[0]": u.prev[0], "c[0]": c[0], "c[-1]": c[-1]}
        reads |= {"u.next[0]": u.next[0], "u.dt": u.dt, "u.dt2": u.dt2, "u.dtc": u.dtc}
        whole = equation(reads)
        kept.extend((whole, u.next[0].place))
        new = sg.solve(whole, u.next)
        kept.append(new)
        return new * c[0]

    try:
        stencil(scheme)
    except sg.StencilError as error:
        reject_if = ("does not depend on u.next", "the solution is u.next = 0")
        assert any(words in str(error) for words in reject_if), error
        return
    whole, unknown, new = kept
    rng = np.random.default_rng(seed)
    values: dict[int, float] = {unknown: 0.0}
    for _ in range(2):  # the solution does not depend on the unknown; then the equation does hold
        for place, node in enumerate(whole.trace.graph.nodes):
            if node[0] == "read":
                values.setdefault(place, float(rng.uniform(0.5, 2)))
            elif node[0] == "const":
                values[place] = float(node[1])
            else:
                with np.errstate(all="ignore"):
                    values[place] = MEANING[node[0]](*(np.float64(values[a]) for a in formula.operands(node)))
        values[unknown] = values[new.place]
    if np.isfinite(values[unknown]) and abs(values[unknown]) < 1e4:
        assert abs(values[whole.place]) < 1e-8


def test_solutions_have_derivatives() -> None:
    """A staggered scheme: the new velocity drives the pressure in the same step."""
    h, dt = 0.5, 0.25

    @sg.stencil
    def sound(p: Annotated[sg.Field, sg.Field(spacing=(h,), dt=dt)], v: sg.Field) -> tuple[sg.Value, sg.Value]:
        new = sg.solve(sg.Eq(v.dt, -p.dx(at=0.5)), v.next)
        return sg.solve(sg.Eq(p.dt, -new.dx(at=-0.5)), p.next), new

    p, v = np.random.default_rng(2).random((2, 16))
    new_v = v - dt / h * (np.roll(p, -1) - p)
    found = sg.compile(sound, (16,), steps=1, backend="reference", device="h200")(p, v)
    assert np.allclose(found[1], new_v, rtol=1e-14)
    assert np.allclose(found[0], p - dt / h * (new_v - np.roll(new_v, 1)), rtol=1e-14)


def test_a_time_step_that_calls_give() -> None:
    @sg.stencil
    def wave(u: Annotated[sg.Field, sg.Field(levels=2, spacing=(0.5,))], c: sg.Coef, dt: sg.Scalar) -> sg.Value:
        return sg.solve(sg.Eq(u.dt2, c[0] * u.laplace), u.next)

    u, prev, c = np.random.default_rng(3).random((3, 20))
    lap = (np.roll(u, 1) + np.roll(u, -1) - 2 * u) * 4
    assert np.allclose(run(wave, u, prev, c=c, dt=0.3), 2 * u - prev + 0.3**2 * c * lap, rtol=1e-13)


def test_earlier_levels_have_derivatives() -> None:
    @sg.stencil
    def f(u: Annotated[sg.Field, sg.Field(levels=2, spacing=(1,), dt=1)]) -> sg.Value:
        return u.prev.laplace + u.prev.dt

    @sg.stencil
    def by_hand(u: Annotated[sg.Field, sg.Field(levels=2)]) -> sg.Value:
        return (u.prev[-1] + u.prev[1] - 2 * u.prev[0]) + (u[0] - u.prev[0])

    assert f == by_hand


@pytest.mark.parametrize(
    ("field", "function", "words"),
    [
        ({}, lambda u: sg.solve(sg.Eq(u.dt * u.dt, u[0]), u.next), ("not linear in u.next", "times what is known")),
        ({}, lambda u: sg.solve(sg.Eq(u.dt, sg.exp(u.next[0])), u.next), ("not linear in u.next: exp(u.next[0])",)),
        ({}, lambda u: sg.solve(sg.Eq(u[0] / u.next[0], 2), u.next), ("not linear in u.next",)),
        ({}, lambda u: sg.solve(sg.Eq(u.dt, sg.where(u[0] > 0, u.next[0], 1)), u.next), ("choose between solutions",)),
        ({}, lambda u: sg.solve(sg.Eq(u.dt, u.next.laplace), u.next), ("the scheme is implicit", "u.laplace")),
        ({}, lambda u: sg.solve(sg.Eq(u.laplace, u[0]), u.next), ("does not depend on u.next", "sg.Eq(u.dt, ...)")),
        ({}, lambda u: sg.solve(u.next[0] - u.next[0] + u[0], u.next), ("does not depend on u.next",)),
        ({}, lambda u: sg.solve(u.next[0], u.next), ("the solution is u.next = 0",)),
        ({}, lambda u: sg.solve(u.dt, u), ("sg.solve for u, which is known", "u.next")),
        ({}, lambda u: sg.solve(u.dt, 3), ("sg.solve for 3, which is known",)),
        ({}, lambda u: sg.solve(sg.Eq(1, 2), u.next), ("which reads no field",)),
        ({}, lambda u: sg.solve(sg.Eq(u, 2), u.next), ("the field u is a side of an equation",)),
        ({}, lambda u: u.dt, ("returns a formula of u.next[0], which is not known yet", "sg.solve(equation, u.next)")),
        ({}, lambda u: sg.Eq(u.dt, 0), ("returns an equation", "return sg.solve(equation, u.next)")),
        ({}, lambda u: u.dt if u.dt == sg.Eq(u.dt, 0) else 0, ("is not a real number",)),
        ({}, lambda u: u[0] if sg.Eq(u.dt, 0) else 0, ("an equation is used as a truth value", "solve it")),
        ({}, lambda u: u.dt2, ("u has no earlier time level", "sg.Field(levels=2)")),
        ({}, lambda u: u.next.next[0], ("no time level is later than u.next",)),
        ({"dt": None}, lambda u: u.dt, ("u.dt: u has no time step", "sg.Field(dt=0.1), or here: u.dt(0.1)")),
        ({}, lambda u: u.dt(0), ("the time step is 0",)),
        ({"dt": 1e-200, "levels": 2}, lambda u: sg.solve(sg.Eq(u.dt2, u.dxx), u.next), ("divided by zero",)),
    ],
)
def test_refusals(field: dict[str, Any], function: Any, words: tuple[str, ...]) -> None:
    def one(u: Any) -> Any:
        return function(u)

    one.__annotations__["u"] = sg.Field(**{"spacing": (1,), "dt": 0.5, **field})
    with pytest.raises(sg.StencilError) as caught:
        stencil(one)
    assert caught.value.loc is not None and caught.value.loc.file == __file__
    for word in words:
        assert word in str(caught.value)


def test_coefficients_do_not_change() -> None:
    def f(u: sg.Field(spacing=(1,), dt=1), c: sg.Coef) -> Any:  # type: ignore[valid-type]
        return u[0] * c.dt  # type: ignore[index, attr-defined]

    with pytest.raises(sg.StencilError, match="the coefficient c does not change in time"):
        stencil(f)
