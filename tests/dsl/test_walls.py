"""Walls inside a domain: what reads find, cell by cell, what is conserved, and what cannot be a wall."""

from __future__ import annotations

from math import gcd
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsegen as sg

Plane = Annotated[sg.Field, sg.Field(spacing=(1.0, 1.0), dt=0.05)]


Rod = Annotated[sg.Field, sg.Field(spacing=(1.0,), dt=0.4)]


def after(update: Any, u: Any, steps: int = 1, **given: Any) -> Any:
    return sg.compile(update, u.shape, steps, backend="reference", device="h200")(u, **given)


def seen(u: Any, at: tuple[int, ...], offset: tuple[int, ...], solid: Any, side: Any) -> float:
    """What a cell of a periodic domain finds at an offset, by walking there."""

    def cell(place: Any) -> tuple[int, ...]:
        return tuple(int(i) % n for i, n in zip(place, u.shape, strict=True))

    kind = "neumann" if side is None else side.kind
    here, far = np.array(at), gcd(*offset)
    if solid[cell(here)]:
        return float(side.value if solid[cell(here)] and kind == "dirichlet" else u[cell(here)])
    step = np.array(offset) // far
    for _ in range(far):
        if not solid[cell(here + step)]:
            here = here + step
        elif kind == "neumann":
            step = -step
        else:
            return float(side.value if kind == "dirichlet" else u[cell(here + step)])
    return float(u[cell(here)])


@settings(max_examples=25, deadline=None)
@given(
    st.tuples(st.integers(-4, 4), st.integers(-4, 4)).filter(any),
    st.sampled_from([None, sg.dirichlet(2.5), sg.frozen]),
    st.integers(0, 99),
)
def test_a_read_walks_to_its_offset(offset: tuple[int, int], side: Any, seed: int) -> None:
    def look(u: sg.Field, solid: sg.Mask) -> sg.Value:
        return u.walled(solid, side)[offset]

    rng = np.random.default_rng(seed)
    u, solid = rng.random((9, 10)), rng.random((9, 10)) < 0.35
    want = [[seen(u, (y, x), offset, solid, side) for x in range(10)] for y in range(9)]
    assert np.array_equal(after(sg.stencil(look), u, solid=solid), want)


@pytest.mark.parametrize("order", [2, 4, 8])
@pytest.mark.parametrize("kind", [sg.neumann, sg.dirichlet(0.25)], ids=str)
def test_a_thick_wall_is_the_border_of_a_domain(order: int, kind: Any) -> None:
    def inside(u: Plane, solid: sg.Mask) -> sg.Value:
        return sg.solve(sg.Eq(u.dt, u.walled(solid, kind).laplace(order=order)), u.next)

    def whole(u: Plane) -> sg.Value:
        return sg.solve(sg.Eq(u.dt, u.laplace(order=order)), u.next)

    u, solid = np.random.default_rng(1).random((30, 32)), np.ones((30, 32), bool)
    box = (slice(5, 25), slice(5, 27))
    solid[box] = False
    got = after(sg.stencil(inside), u, 20, solid=solid)
    want = after(sg.stencil(boundary=kind)(whole), u[box].copy(), 20)
    assert np.allclose(got[box], want, rtol=0, atol=1e-13)
    assert np.allclose(got[solid], u[solid], rtol=0, atol=1e-13)


@settings(max_examples=6, deadline=None)
@given(st.sampled_from([2, 4, 6]), st.sampled_from([sg.neumann, sg.periodic]), st.floats(0.05, 0.6), st.integers(0, 99))
def test_nothing_flows_through_walls(order: int, border: Any, share: float, seed: int) -> None:
    """Of any shape: the sum over free cells stays, and cells in walls stay as they are."""

    @sg.stencil(boundary=border)
    def heat(u: Plane, solid: sg.Mask) -> sg.Value:
        return sg.solve(sg.Eq(u.dt, u.walled(solid).laplace(order=order)), u.next)

    rng = np.random.default_rng(seed)
    u, solid = rng.random((24, 20)), rng.random((24, 20)) < share
    got = after(heat, u, 50, solid=solid)
    assert abs(got[~solid].sum() - u[~solid].sum()) < 1e-11
    assert np.allclose(got[solid], u[solid], rtol=0, atol=1e-13)
    assert np.ptp(got[~solid]) < np.ptp(u[~solid])


def test_fluxes_and_formulas_have_walls() -> None:
    """A flux with a conductivity half way, and the derivative of a formula; both lose nothing."""

    @sg.stencil(boundary=sg.neumann)
    def conduct(u: Plane, solid: sg.Mask, c: sg.Coef) -> sg.Value:
        w = u.walled(solid)
        right, down = (c[0, 0] + c[0, 1]) / 2 * w.dx(at=0.5), (c[0, 0] + c[1, 0]) / 2 * w.dy(at=0.5)
        return sg.solve(sg.Eq(u.dt, right.dx(at=-0.5) + down.dy(at=-0.5)), u.next)

    @sg.stencil(boundary=sg.neumann)
    def cubic(u: Plane, solid: sg.Mask) -> sg.Value:
        return sg.solve(sg.Eq(u.dt, (u[0, 0] ** 3).walled(solid).laplace), u.next)

    rng = np.random.default_rng(3)
    u, solid, c = rng.random((20, 30)), rng.random((20, 30)) < 0.3, rng.random((20, 30))
    for got in (after(conduct, u, 40, solid=solid, c=c), after(cubic, u, 40, solid=solid)):
        assert abs(got.sum() - u.sum()) < 1e-11 and np.array_equal(got[solid], u[solid])
        assert not np.allclose(got[~solid], u[~solid])


def test_regions_of_several_kinds_and_the_first_counts() -> None:
    """A rod between 1 and 0 that is cut in the middle: each half takes the temperature of its end."""

    @sg.stencil(boundary=sg.neumann)
    def rod(
        u: Annotated[sg.Field, sg.Field(spacing=(1,), dt=0.4)], cut: sg.Mask, hot: sg.Mask, cold: sg.Mask
    ) -> sg.Value:
        w = u.walled(cut).walled(hot, sg.dirichlet(1.0)).walled(cold, 0)
        return sg.solve(sg.Eq(u.dt, w.laplace), u.next)

    x = np.arange(21)
    ends = {"hot": x == 0, "cold": x == 20}
    whole = after(rod, np.full(21, 0.3), 2000, cut=x < 0, **ends)
    assert np.allclose(whole[1:-1], 1 - x[1:-1] / 20, atol=1e-9)  # the solution is a straight line
    cut = after(rod, np.full(21, 0.3), 2000, cut=(x == 10) | (x == 0), **ends)
    assert np.allclose(cut[:11], 0.3, atol=1e-12) and np.allclose(cut[11:-1], 0, atol=1e-9)


def test_a_wall_may_have_a_temperature_and_a_time() -> None:
    """A condition of several masks and of the time, and a value of the cell in the wall."""

    @sg.stencil
    def look(u: sg.Field, solid: sg.Mask, door: sg.Mask, warm: sg.Coef, t: sg.Time) -> sg.Value:
        return u.walled(solid[0] | (door[0] & (t < 2)), warm[0])[1]

    x = np.arange(8)
    arrays = {"solid": x == 0, "door": x == 3, "warm": 100.0 * x}
    assert after(look, 1.0 * x, t=[0.0], **arrays).tolist() == [0, 2, 300, 300, 5, 6, 7, 0]
    assert after(look, 1.0 * x, t=[3.0], **arrays).tolist() == [0, 2, 3, 4, 5, 6, 7, 0]


def test_a_closed_room_keeps_its_sound() -> None:
    """Leapfrog between walls has an energy that stays, of order 4 as well."""

    @sg.stencil(boundary=sg.dirichlet(0.0))
    def sound(u: Annotated[sg.Field, sg.Field(levels=2, spacing=(1, 1), dt=0.5)], solid: sg.Mask) -> sg.Value:
        return sg.solve(sg.Eq(u.dt2, u.walled(solid).laplace(order=4)), u.next)

    y, x = np.mgrid[:32, :32]
    solid = (abs(y - 16) > 10) | (abs(x - 16) > 12) | ((x == 16) & (y > 14))
    start = np.where(solid, 0, np.exp(-((y - 16) ** 2 + (x - 10) ** 2) / 6))
    k = sg.compile(sound, (32, 32), 1, backend="reference", device="h200")

    def energy(new: Any, old: Any) -> float:
        after_that, _ = k(u=(new, old), solid=solid)
        return float(((new - old) ** 2).sum() - (old * (after_that - 2 * new + old)).sum())

    state = (start, start)
    first = energy(*state)
    for _ in range(200):
        state = k(u=state, solid=solid)
    assert energy(*state) == pytest.approx(first, rel=1e-11)
    assert not state[0][solid].any() and np.abs(state[0][:, 17:26]).max() > 0.05


def test_what_cannot_be_a_wall() -> None:
    def refused(words: str, formula: Any) -> None:
        def f(u: sg.Field, solid: sg.Mask, c: sg.Coef) -> Any:
            return formula(u, solid, c)

        with pytest.raises(sg.StencilError, match=words) as caught:
            sg.stencil(f)
        assert caught.value.hint and caught.value.loc and caught.value.loc.file == __file__

    refused("walled by c, which is no region", lambda u, solid, c: u.walled(c)[0, 1])
    refused("walled by True, which is no region", lambda u, solid, c: u.walled(True)[0, 1])
    refused("walls cannot be periodic", lambda u, solid, c: u.walled(solid, sg.periodic)[0, 1])
    refused("walls cannot be dirichlet without a value", lambda u, solid, c: u.walled(solid, sg.dirichlet)[0, 1])
    refused("the value of a wall 'hot' is not a real number", lambda u, solid, c: u.walled(solid, "hot")[0, 1])
    refused(r"the offset 0.5 in u.walled\(...\)\[0, 0.5\]", lambda u, solid, c: u.walled(solid)[0, 0.5])
    refused(r"u.walled\(...\) is used in arithmetic without offsets", lambda u, solid, c: 2 * u.walled(solid))
    refused(r"u.walled\(...\) is used as a truth value", lambda u, solid, c: 1 if u.walled(solid) else 2)
    refused("the mask solid is used as a number", lambda u, solid, c: solid.laplace)
    refused("the mask solid is used as a condition without", lambda u, solid, c: sg.where(solid, 1.0, u[0]))
    refused(r"the condition solid\[0\] != 0 is used as a number", lambda u, solid, c: solid[0] * u[0])
    refused("a derivative of u", lambda u, solid, c: u[0] + u.walled(solid).laplace)
    refused("does not change in time", lambda u, solid, c: u[0] + solid.next[0])
