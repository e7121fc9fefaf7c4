"""Adjoints of linear updates: several fields and levels, coefficients; what is refused; derivatives by coefficients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.adjoint.derivative import derivatives
from sparsegen.backends.reference.update import run
from sparsegen.dsl.update import Update
from sparsegen.problems.update import UpdateProblem
from tests.updates import made

H200: Any = {"device": "h200", "backend": "reference", "schedule": "direct"}
SHAPE = (7, 9)
BOUNDARIES = (
    sg.periodic, sg.neumann, sg.dirichlet(0.0), sg.frozen,
    {0: (sg.frozen, sg.neumann), 1: (sg.neumann, sg.dirichlet(0.0))},
)  # fmt: skip


def wave(u: Annotated[sg.Field, sg.Field(levels=2)], c: sg.Coef) -> Any:
    around = u[0, 1] + u[0, -1] + u[1, 0] + u[-1, 0] - 4 * u[0, 0]
    return 2 * u[0, 0] - u.prev[0, 0] + c[0, 0] * around


def flux(c: sg.Coef, u: sg.Field) -> Any:
    """Read beside the cell, not symmetric, and the coefficient comes first."""
    east, west = (c[0, 0] + c[0, 1]) * (u[0, 1] - u[0, 0]), (c[0, 0] + c[0, -1]) * (u[0, 0] - u[0, -1])
    return u[0, 0] + east - west + sg.exp(c[1, 0]) * (u[-1, 0] - 0.3 * u[1, 0])


def pair(u: Annotated[sg.Field, sg.Field(levels=3)], v: sg.Field, c: sg.Coef, free: sg.Coef) -> Any:
    """Fields that drive one another, chosen by a coefficient, and one called as a table would be."""
    new = sg.where(c[0, 0] > 0.5, u[0, 2], 0.4 * u.prev.prev[1, 0]) + v[1, -1] / (1 + c[-1, 0])
    return new, 0.3 * u.prev[0, 1] - v[0, 0] * c[0, 0] * free[0, 0] + 0.2 * u[1, 0]


def flat(value: Any) -> Iterator[Any]:
    """The arrays of a call or a result."""
    if isinstance(value, tuple):
        for each in value:
            yield from flat(each)
    else:
        yield value


def dot(a: Any, b: Any) -> float:
    return float(sum(np.vdot(x, y) for x, y in zip(flat(a), flat(b), strict=True)))


def drawn(update: Update, seed: int, *, positive: bool = False) -> dict[str, Any]:
    """Random arrays for each parameter."""
    rng = np.random.default_rng(seed)
    one = rng.random if positive else rng.standard_normal
    fields = {name: tuple(one(SHAPE) for _ in range(n)) for name, n in update.fields}
    return {p.name: rng.random(SHAPE) if p.coef else fields[p.name] for p in update.parameters}


def called(values: dict[str, Any]) -> dict[str, Any]:
    """As a call has them: fields of one level are arrays."""
    return {name: v[0] if isinstance(v, tuple) and len(v) == 1 else v for name, v in values.items()}


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize("function", [wave, flux, pair])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_the_dot_products_agree(function: Any, boundary: Any, steps: int) -> None:
    """Over all levels of all fields; the adjoint takes what the kernel takes, and levels come in its order."""
    update = made(function, boundary=boundary)
    k = sg.compile(update, SHAPE, steps=steps, **H200)
    x, y = drawn(update, 1), {**drawn(update, 2), **{c: a for c, a in drawn(update, 1).items() if c in update.coefs}}
    forward, back = k(**called(x)), k.adjoint("direct")(**called(y))
    fields = [name for name, _ in update.fields]
    wanted = dot(forward, tuple(y[name] for name in fields))
    assert wanted == pytest.approx(dot(tuple(x[name] for name in fields), back), rel=1e-11)


@pytest.mark.parametrize("schedule", ["direct", "stream levels=2 cols=2", "tiled levels=3 cols=2", "resident"])
def test_a_wave_on_the_emulator(schedule: str) -> None:
    update, shape = made(wave, boundary=sg.frozen), (40, 80)
    rng = np.random.default_rng(3)
    x, y, c = rng.standard_normal((2, *shape)), rng.standard_normal((2, *shape)), rng.random(shape) / 4
    adjoint = sg.compile(update, shape, steps=6, device="h200", backend="emulator").adjoint(schedule)
    forward = sg.compile(update, shape, steps=6, **H200)(tuple(x), c)
    assert dot(forward, tuple(y)) == pytest.approx(dot(tuple(x), adjoint(tuple(y), c)), rel=1e-11)
    adjoint.check().raise_if_errors()


def test_sources_have_no_part_in_it() -> None:
    """Of an affine step the linear part is transposed; a coefficient that only adds is no parameter then."""

    def driven(u: sg.Field, f: sg.Coef) -> Any:
        return 0.5 * u[0, 1] + u[0, 0] / 4 + 2 * f[0, 0] + 1

    k = sg.compile(made(driven, boundary=sg.dirichlet(2.0)), SHAPE, steps=3, **H200)
    adjoint = k.adjoint("direct")
    x, y, f = np.random.default_rng(4).standard_normal((3, *SHAPE))
    assert np.vdot(k(x, f) - k(0 * x, f), y) == pytest.approx(np.vdot(x, adjoint(y)), rel=1e-12)
    assert "that add to a field alone have no part in it" in str(adjoint.explain())
    with pytest.raises(sg.ArrayError, match="f is no parameter of driven_adjoint"):
        adjoint(y, f=f)


def test_what_is_not_linear() -> None:
    def burgers(u: sg.Field) -> Any:
        return u[0] - u[0] * (u[1] - u[-1])

    def limited(u: sg.Field, c: sg.Coef) -> Any:
        return sg.min(u[0], c[0])

    def ratio(u: sg.Field, c: sg.Coef) -> Any:
        return c[0] / u[0]

    for function, what in ((burgers, "a product is taken of u"), (limited, "'min'"), (ratio, "a quotient")):
        k = sg.compile(made(function), (9,), **H200)
        with pytest.raises(sg.StencilError, match=what) as said:
            k.adjoint()
        assert "linearise it" in str(said.value) and said.value.loc


def test_fields_with_other_kinds_of_sides() -> None:
    """Frozen and dirichlet may stand side by side, both are zeros outside; mirrors may not, nor who reads what is
    beyond a frozen side, where its edge cell is."""

    def swapped(u: sg.Field, v: sg.Field) -> Any:
        return v[0, 1] + u[0, 0] / 2, u[0, -2] - v[1, 0]

    zero = sg.dirichlet(0.0)
    good = made(swapped, boundary={"u": {0: sg.frozen, 1: (zero, sg.frozen)}, "v": zero})
    k = sg.compile(good, SHAPE, steps=3, **H200)
    x, y = drawn(good, 5), drawn(good, 6)
    assert dot(k(**called(x)), tuple(y.values())) == pytest.approx(
        dot(tuple(x.values()), k.adjoint("direct")(**called(y))), rel=1e-12
    )
    for sides, what in (
        (sg.neumann, "the boundaries of u and v differ in kind"),
        (sg.frozen, "v reads beyond u's frozen"),
    ):
        with pytest.raises(sg.BoundaryError, match=what):
            sg.compile(made(swapped, boundary={"u": sides, "v": zero}), SHAPE, **H200).adjoint()


def test_a_shape_too_small_for_the_coefficients() -> None:
    def far(u: sg.Field, c: sg.Coef) -> Any:
        return u[2] * c[-2] + u[-2] * c[2]

    with pytest.raises(sg.StencilError, match="5 cells on axis 0, but far_adjoint is 9 cells wide"):
        sg.compile(made(far), (5,), **H200).adjoint()


@pytest.mark.parametrize("boundary", [sg.periodic, sg.dirichlet(0.5)], ids=str)
def test_derivatives_by_coefficients(boundary: Any) -> None:
    """Of every function, against differences; those of all reads together are what a change everywhere makes."""

    def mixed(u: sg.Field, c: sg.Coef) -> Any:
        a, b = c[0, 0] + 0.5, c[0, 1] * 2 + 0.1
        one = sg.sqrt(a) * u[0, 0] - sg.exp(-b) * u[0, 1] + sg.log(a) + sg.sin(b) * u[1, 0] / (a * a)
        two = sg.cos(a) * sg.tanh(b) * u[-1, 0] + sg.pow(a, 1.5) * u[0, -1] + sg.pow(a, b) + sg.abs(c[0, 0] - 0.3)
        return one + two - sg.min(a, b) * u[0, 0] + sg.max(a, u[0, 0]) + sg.where(a < b, a * u[0, 0], b)

    update = made(mixed, boundary=boundary)
    rng = np.random.default_rng(7)
    u, c, h = rng.random(SHAPE), rng.random(SHAPE), 1e-6

    def new(of: Update, c: Any) -> Any:
        op: Any = UpdateProblem(of, SHAPE).describe().funcs[0]
        return run(op, {"u": (u,)}, dict.fromkeys(of.coefs, c), 1)["u"][0]

    found = derivatives(update, "c")
    assert set(found) == {(0, 0), (0, 1)}
    difference = (new(update, c + h) - new(update, c - h)) / (2 * h)
    assert np.abs(sum(new(of, c) for of in found.values()) - difference).max() < 1e-7


@pytest.mark.parametrize("schedule", ["direct", "stream levels=2 cols=2"])
def test_levels_and_fields_that_nobody_reads(schedule: str) -> None:
    """Of what they hold nothing comes through: their adjoints are zero."""

    def aside(u: Annotated[sg.Field, sg.Field(levels=3)], v: sg.Field, u_1: sg.Field) -> Any:
        return 0.5 * u[0, 1] + u.prev[1, 0], 2 * u[0, 0], u_1[0, 0] - u[0, -1]

    update, shape = made(aside, boundary=sg.neumann), (24, 64)
    k = sg.compile(update, shape, steps=4, device="h200", backend="emulator", schedule="direct")
    rng = np.random.default_rng(8)
    x, y = ((tuple(rng.standard_normal((3, *shape))), *rng.standard_normal((2, *shape))) for _ in "xy")
    back = k.adjoint(schedule)(*y)
    assert not back[1].any() and back[0][1].any()
    assert dot(k(*x), y) == pytest.approx(dot(x, back), rel=1e-11)


@pytest.mark.parametrize("shape", [(40,), (6, 7, 8)])
def test_other_numbers_of_axes(shape: tuple[int, ...]) -> None:
    def along(u: Annotated[sg.Field, sg.Field(levels=2)], c: sg.Coef) -> Any:
        return 2 * u[0] - u.prev[0] + c[1] * (u[1] - u[0]) + c[-1] * (u[-2] - u[0])

    def within(u: Annotated[sg.Field, sg.Field(levels=2)], c: sg.Coef) -> Any:
        return u[0, 0, 0] - u.prev[0, 1, -1] + c[1, 0, 0] * (u[1, 0, 1] - u[0, -2, 0]) / 3

    update = made(along if len(shape) == 1 else within, boundary=sg.neumann)
    k, rng = sg.compile(update, shape, steps=5, **H200), np.random.default_rng(9)
    x, y, c = tuple(rng.standard_normal((2, *shape))), tuple(rng.standard_normal((2, *shape))), rng.random(shape)
    assert dot(k(x, c), y) == pytest.approx(dot(x, k.adjoint("direct")(y, c)), rel=1e-10)


def swaying(u: sg.Field, c: sg.Coef, dt: sg.Scalar, t: sg.Time, power: sg.Scalar) -> Any:
    """A wind that changes with the time, and a source, which has no part in the adjoint."""
    return u[0, 0] + dt * (c[0, 0] * sg.cos(t) * (u[0, 1] - 0.3 * u[1, 0]) + power * sg.sin(t))


@pytest.mark.parametrize("schedule", ["direct", "stream levels=2 cols=4", "resident tiles=2x1 rows=5 cols=3 warps=4"])
def test_the_adjoint_has_the_scalars_of_its_steps(schedule: str) -> None:
    """Given as those of the forward steps; also of frames on the way back, and without what has no part in it."""
    shape, steps = (24, 96), 7
    k = sg.compile(made(swaying, boundary=sg.neumann), shape, steps, **H200)
    back = sg.compile(made(swaying, boundary=sg.neumann), shape, steps, "h200", "emulator").adjoint(schedule)
    x, y, c = np.random.default_rng(5).standard_normal((3, *shape))
    dts, power = np.linspace(0.05, 0.3, steps), np.arange(1.0, steps + 1)
    for numbers in ({"dt": dts}, {"dt": dts, "t": 2.0}, {"dt": 0.2, "t": dts[::-1]}):
        forward = k(x, c, power=power, **numbers) - k(0 * x, c, power=power, **numbers)
        made_back = back(y, c, **numbers)
        assert np.vdot(forward, y) == pytest.approx(np.vdot(x, made_back), rel=1e-11)
        assert np.array_equal(made_back, back(y, c, power=power, **numbers))
    *_, last = back.run(y, c, every=3, progress=False, **numbers)
    assert np.allclose(last["u"], made_back, rtol=1e-13)
    assert back(**back.random()).shape == shape and not back.check().errors
    assert "from the last one to the first" in str(back.explain())
    with pytest.raises(sg.ArrayError, match="no number for dt"):
        back(y, c, t=1.0)


def test_scalars_of_sources_alone() -> None:
    """The adjoint needs none of them, and may be given them."""

    @sg.stencil
    def shaken(u: sg.Field, t: sg.Time, power: sg.Scalar) -> sg.Value:
        return u[1] / 2 + power * sg.sin(t)

    back = sg.compile(shaken, (64,), 3, backend="reference").adjoint()
    y = np.random.default_rng(0).random(64)
    assert np.array_equal(back(y), back(y, t=np.arange(3.0), power=1)) and np.array_equal(back(y), np.roll(y, 3) / 8)


def test_derivatives_by_scalars() -> None:
    update = made(swaying)
    (found,) = derivatives(update, "dt").values()
    assert {p.name for p in found.parameters} == {"u", "c", "t", "power"}
    (by_power,) = derivatives(update, "power").values()
    assert {p.name for p in by_power.parameters} == {"u", "dt", "t"}
