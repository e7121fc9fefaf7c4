"""Derivatives of fields, coefficients and formulas: their coefficients, their order, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.dsl.differences import central
from sparsegen.dsl.trace import stencil

H = 0.25  # exact in binary, so that tables can be compared exactly


def weights(function: Callable[[Any], Any], *spacing: float) -> Any:
    """The weights of a linear function of one field on a grid."""

    def one(u: Any) -> Any:
        return function(u)

    one.__annotations__["u"] = sg.Field(spacing=spacing)
    made = stencil(one)
    assert isinstance(made, sg.Stencil)
    return made.weights


# ------------------------------------------------------------------------------------------------ known tables
# Source: B. Fornberg, Generation of finite difference formulas on arbitrarily spaced grids, Math. Comp. 51, 1988.
FIRST = {
    2: [-1 / 2, 0, 1 / 2],
    4: [1 / 12, -2 / 3, 0, 2 / 3, -1 / 12],
    6: [-1 / 60, 3 / 20, -3 / 4, 0, 3 / 4, -3 / 20, 1 / 60],
    8: [1 / 280, -4 / 105, 1 / 5, -4 / 5, 0, 4 / 5, -1 / 5, 4 / 105, -1 / 280],
}
SECOND = {
    2: [1, -2, 1],
    4: [-1 / 12, 4 / 3, -5 / 2, 4 / 3, -1 / 12],
    6: [1 / 90, -3 / 20, 3 / 2, -49 / 18, 3 / 2, -3 / 20, 1 / 90],
    8: [-1 / 560, 8 / 315, -1 / 5, 8 / 5, -205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560],
}
HALF = {2: [0, -1, 1], 4: [0, 1 / 24, -9 / 8, 9 / 8, -1 / 24]}


@pytest.mark.parametrize("order", [2, 4, 6, 8])
def test_tables(order: int) -> None:
    assert weights(lambda u: u.dx(order), H).tolist() == [w / H for w in FIRST[order]]
    assert weights(lambda u: u.dxx(order=order), H).tolist() == [w / H**2 for w in SECOND[order]]


@pytest.mark.parametrize("order", [2, 4])
def test_staggered_tables(order: int) -> None:
    right, left = (weights(lambda u, at=at: u.dx(order=order, at=at), H) for at in (+0.5, -0.5))
    assert right.tolist() == [w / H for w in HALF[order]]
    assert left.tolist() == (-right[::-1]).tolist()


@given(st.sampled_from([1, 2]), st.integers(1, 8).map(lambda i: 2 * i), st.sampled_from([-1, 0, 1]))
def test_polynomials_are_exact_up_to_the_order(degree: int, order: int, twice: int) -> None:
    at = Fraction(twice, 2)
    line = central(degree, order, at)

    def error(power: int) -> Fraction:
        exact = {1: power, 2: power * (power - 1)}[degree] * (at ** (power - degree) if power >= degree else 0)
        return sum((Fraction(int(w.p), int(w.q)) * d**power for d, w in line.items()), Fraction(0)) - exact

    assert not any(error(power) for power in range(order + degree))
    assert error(order + degree) != 0  # and no better: the order is what it says


# ------------------------------------------------------------------------------------------------ what is written
def test_values_are_of_order_2_and_axes_have_names() -> None:
    assert np.array_equal(weights(lambda u: u.dx, 1, H), weights(lambda u: u.dx(order=2, at=0), 1, H))
    assert weights(lambda u: u.dy, H, 1).tolist() == [[-0.5 / H], [0], [0.5 / H]]
    assert weights(lambda u: u.dz, H, 1, 1).shape == (3, 1, 1)
    cross = [[0, 1, 0], [1, -4, 1], [0, 1, 0]]
    assert weights(lambda u: u.laplace, H, H).tolist() == (np.array(cross) / H**2).tolist()
    assert np.array_equal(weights(lambda u: u.laplace(order=8), 1, 2), weights(lambda u: u.dxx(8) + u.dyy(8), 1, 2))
    assert weights(lambda u: u.laplace, 1, 1, 1)[1, 1, 1] == -6


def test_mixed_derivatives() -> None:
    assert weights(lambda u: u.dxy, H, 2).tolist() == [[0.5, 0, -0.5], [0, 0, 0], [-0.5, 0, 0.5]]
    for name, axes in (("dxz", (0, 2)), ("dyz", (0, 1))):
        shape = np.array(weights(lambda u, name=name: getattr(u, name)(order=4), 1, 1, 1).shape)
        assert [axis for axis in range(3) if shape[axis] == 5] == list(axes)
    assert np.array_equal(weights(lambda u: u.dxy(4), 1, 1), weights(lambda u: u.dy(4).dx(4), 1, 1))


def test_sums_of_derivatives_are_stencils_with_exact_weights() -> None:
    """Each weight is rounded once: with a third of a spacing of a tenth, all of them rationals."""

    def heat(u: Any) -> Any:
        return u[0] + u.dxx(order=4) * Fraction(1, 3000) - u.dx / 50

    heat.__annotations__["u"] = sg.Field(spacing=Fraction(1, 10))
    made = stencil(heat)
    second = [Fraction(-1, 12), Fraction(4, 3), Fraction(-5, 2), Fraction(4, 3), Fraction(-1, 12)]
    exact = [w * 100 / 3000 for w in second]
    exact[1], exact[2], exact[3] = exact[1] + Fraction(1, 10), exact[2] + 1, exact[3] - Fraction(1, 10)
    assert isinstance(made, sg.Stencil) and made.weights.tolist() == [float(w) for w in exact]


def test_derivatives_of_formulas_are_those_of_their_values() -> None:
    """``(c u_x)_x`` on a staggered grid is the flux's difference; u_xx twice is the fourth derivative."""
    assert weights(lambda u: u.dxx.dxx, 1).tolist() == [1, -4, 6, -4, 1]
    assert weights(lambda u: u.dx(at=0.5).dx(at=-0.5), 1).tolist() == [1, -2, 1]

    @sg.stencil
    def flux(u: Annotated[sg.Field, sg.Field(spacing=(H,))], c: sg.Coef) -> sg.Value:
        return u[0] + ((c[0] + c[1]) / 2 * u.dx(at=0.5)).dx(at=-0.5) / 64

    rng = np.random.default_rng(0)
    u, c = rng.random(24), rng.random(24)
    flow = (c + np.roll(c, -1)) / 2 * (np.roll(u, -1) - u) / H
    found = sg.compile(flux, (24,), steps=1, backend="reference", device="h200")(u=u, c=c)
    assert np.allclose(found, u + (flow - np.roll(flow, 1)) / H / 64, rtol=1e-14)


def test_coefficients_and_second_fields_take_the_first_ones_spacing() -> None:
    @sg.stencil
    def f(u: sg.Field(spacing=(H,)), v: Any, c: sg.Coef, d: sg.Coef(spacing=(1,))) -> Any:  # type: ignore[valid-type]
        return u[0] * c.dx, v.dxx * d.dx

    @sg.stencil
    def by_hand(u: Any, v: Any, c: sg.Coef, d: sg.Coef) -> Any:
        return u[0] * ((c[1] - c[-1]) * (0.5 / H)), (v[-1] + v[1] - 2 * v[0]) * (1 / H**2) * ((d[1] - d[-1]) * 0.5)

    assert f == by_hand


def test_one_spacing_for_all_axes_that_reads_tell() -> None:
    def f(u: sg.Field(spacing=H)) -> Any:  # type: ignore[valid-type]
        return u[0, 0] + 0.01 * u.laplace  # type: ignore[index, attr-defined]

    assert np.array_equal(stencil(f).weights, weights(lambda u: u[0, 0] + 0.01 * u.laplace, H, H))  # type: ignore[union-attr]


def test_a_spacing_says_nothing_of_the_update() -> None:
    def plain(u: sg.Field, v: sg.Field) -> Any:
        return u[0] * v[0], v[0]

    def spaced(u: sg.Field(spacing=0.5, dt=1), v: sg.Field) -> Any:  # type: ignore[valid-type]
        return u[0] * v[0], v[0]  # type: ignore[index]

    assert stencil(plain) == stencil(spaced) and hash(stencil(plain)) == hash(stencil(spaced))


# ------------------------------------------------------------------------------------------------ order of convergence
@pytest.mark.parametrize(
    ("function", "order", "exact"),
    [
        (lambda u: u.dx, 2, lambda y, x: np.cos(x) * np.sin(2 * y)),
        (lambda u: u.dy(order=4), 4, lambda y, x: 2 * np.sin(x) * np.cos(2 * y)),
        (lambda u: u.laplace(order=6), 6, lambda y, x: -5 * np.sin(x) * np.sin(2 * y)),
        (lambda u: u.dxy(order=4), 4, lambda y, x: 2 * np.cos(x) * np.cos(2 * y)),
        (lambda u: u.dx(order=4, at=0.5), 4, None),
        (lambda u: (u[0, 0] ** 2).dx, 2, lambda y, x: 2 * np.sin(x) * np.cos(x) * np.sin(2 * y) ** 2),
    ],
)
def test_order_of_convergence(function: Any, order: int, exact: Any) -> None:
    errors = []
    for n in (24, 48):
        h = 2 * np.pi / n

        def one(u: Any) -> Any:
            return function(u)

        one.__annotations__["u"] = sg.Field(spacing=(h, h))
        y, x = np.mgrid[0:n, 0:n] * h
        found = sg.compile(stencil(one), (n, n), steps=1, backend="reference", device="h200")(np.sin(x) * np.sin(2 * y))
        there = np.cos(x + h / 2) * np.sin(2 * y) if exact is None else exact(y, x)
        errors.append(np.abs(found - there).max())
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15)


# ------------------------------------------------------------------------------------------------ what is refused
@pytest.mark.parametrize(
    ("field", "function", "words"),
    [
        ({}, lambda u: u.dx, ("u has no spacing", "sg.Field(spacing=(0.1, 0.1))")),
        ({}, lambda u: u[0, 0] + u.dx, ("but u has no spacing", "sg.Field(spacing=(0.1, 0.1))")),
        ({"spacing": 0.1}, lambda u: u.laplace, ("one spacing for all its axes", "on each axis")),
        ({"spacing": (1, 1)}, lambda u: u.dz, ("dz of u[0, 0], which has 2 axes and no z", "x is the last axis")),
        ({"spacing": (1,)}, lambda u: u.dxy, ("which has 1 axis and no y",)),
        ({"spacing": (1,)}, lambda u: u[0, 0] + u.dx, ("u[0] has 1 offsets, but u[0, 0]",)),
        ({"spacing": (1,)}, lambda u: u[0, 0], ("spacing of u has 1 numbers, but there are 2 axes", "for each axis")),
        ({"spacing": (1,)}, lambda u: u.dx(order=3), ("a derivative of order 3", "order=2, 4, 6")),
        ({"spacing": (1,)}, lambda u: u.dx(order=True), ("a derivative of order True",)),
        ({"spacing": (1,)}, lambda u: u.dx(order=34), ("reads 17 cells away", "lower order")),
        ({"spacing": (1,)}, lambda u: u.dx(at=0.3), ("a derivative at 0.3", "at=-0.5 or at=+0.5")),
        ({"spacing": (1, 1)}, lambda u: u.laplace(at=0.5), ("laplace is taken at=0.5", "u.dx(at=0.5).dy(at=0.5)")),
        ({"spacing": (1, 1)}, lambda u: u.dxy(at=0.5), ("dxy is taken at=0.5", "u.dx(at=0.5).dy(at=0.5)")),
        ({"spacing": (1,)}, lambda u: u[16].dx, ("reads u[17], over the limit of 16", "lower order")),
        ({"spacing": (0,)}, lambda u: u.dx, ("the spacing of u on axis 0 is 0", "a finite number above 0")),
        ({"spacing": "h"}, lambda u: u.dx, ("the spacing of u is 'h'",)),
        ({"spacing": ()}, lambda u: u.dx, ("the spacing of u has 0 numbers", "one for each axis")),
        ({"dt": -1}, lambda u: u[0], ("the time step of u is -1",)),
        ({"spacing": (1,)}, lambda u: u.dw, ("u.dw: a field has no such attribute", "its derivatives are dx")),
        ({"spacing": (1,)}, lambda u: u.dx if u.dx else 0, ("used as a truth value",)),
    ],
)
def test_refusals(field: dict[str, Any], function: Any, words: tuple[str, ...]) -> None:
    def one(u: Any) -> Any:
        return function(u)

    one.__annotations__["u"] = sg.Field(**field)
    with pytest.raises(sg.StencilError) as caught:
        stencil(one)
    assert caught.value.loc is not None and caught.value.loc.file == __file__
    for word in words:
        assert word in str(caught.value)


def test_spacings_that_differ_are_not_mixed() -> None:
    def f(u: sg.Field(spacing=(1,)), c: sg.Coef(spacing=(2,))) -> Any:  # type: ignore[valid-type]
        return (c[0] * u[0]).dx  # type: ignore[index]

    with pytest.raises(sg.StencilError, match="have other spacings"):
        stencil(f)

    def axes(u: sg.Field(spacing=(1,)), c: sg.Coef(spacing=(2, 2))) -> Any:  # type: ignore[valid-type]
        return u[0] * c[0]  # type: ignore[index]

    with pytest.raises(sg.StencilError, match="the spacing of c has 2 numbers, but there are 1 axes"):
        stencil(axes)
