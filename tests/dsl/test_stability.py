"""The growth of linear schemes, against closed forms."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.dsl.trace import stencil


def heat(dt: float, h: tuple[float, ...]) -> Any:
    def heat(u: Any) -> Any:
        return sg.solve(sg.Eq(u.dt, u.laplace), u.next)

    heat.__annotations__["u"] = sg.Field(spacing=h, dt=dt)
    return stencil(heat)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 1), st.floats(0.5, 2), st.floats(0.5, 2))
def test_heat(dt: float, hy: float, hx: float) -> None:
    """The roughest wave changes by 1 - 4 dt (1/hx^2 + 1/hy^2), the constant one by 1."""
    found = sg.growth(heat(dt, (hy, hx)))
    assert found.factor == pytest.approx(max(1, abs(1 - 4 * dt * (1 / hx**2 + 1 / hy**2))), rel=1e-12)
    assert found.stable == (dt <= (1 + 1e-12) / (2 / hx**2 + 2 / hy**2))


def test_heat_at_its_limit() -> None:
    assert sg.growth(heat(0.25, (1, 1))).stable
    worse = sg.growth(heat(0.2501, (1, 1)))
    assert not worse.stable and worse.wave == pytest.approx((np.pi, np.pi), abs=1e-11)
    assert str(worse) == "unstable: growth 1.0008 a time step at (1 pi, 1 pi)" and repr(worse) == f"<Stability {worse}>"


def leapfrog(u: Annotated[sg.Field, sg.Field(levels=2, spacing=(1, 1), dt=1)], c: sg.Coef) -> sg.Value:
    return sg.solve(sg.Eq(u.dt2, c[0, 0] * u.laplace), u.next)


@pytest.mark.parametrize("courant", [0.3, 0.7, 0.5**0.5, 0.708, 1.0])
def test_leapfrog(courant: float) -> None:
    """With s = 4 courant^2 of the roughest wave the roots are those of r^2 - (2 - 2 s) r + 1."""
    s = 4 * courant**2
    root = max(1, abs(1 - s) + np.sqrt(max(0, (1 - s) ** 2 - 1)))
    found = sg.growth(stencil(leapfrog), c=courant**2)
    assert found.factor == pytest.approx(root, rel=1e-6)
    assert found.stable == (courant <= 0.5**0.5) and found.coefs == {"c": courant**2}


def test_arrays_count_by_their_least_and_largest_values() -> None:
    wave = stencil(leapfrog)
    assert sg.growth(wave, c=np.array([[0.1, 0.5]])).stable
    fast = sg.growth(wave, c=np.array([[0.1, 0.6]]))
    assert not fast.stable and fast.coefs == {"c": 0.6}
    assert not sg.growth(wave, c=np.array([-0.1, 0.3])).stable


@pytest.mark.parametrize("courant", [0.5, 0.9, 1.0, 1.1])
def test_lax_wendroff_and_the_centred_scheme(courant: float) -> None:
    def lax(u: sg.Field(spacing=(1,))) -> Any:  # type: ignore[valid-type]
        return u[0] - courant * u.dx + courant**2 / 2 * u.dxx  # type: ignore[index, attr-defined]

    def centred(u: sg.Field(spacing=(1,))) -> Any:  # type: ignore[valid-type]
        return u[0] - courant * u.dx  # type: ignore[index, attr-defined]

    found = sg.growth(stencil(lax))
    assert found.factor == pytest.approx(max(1, abs(1 - 2 * courant**2)), rel=1e-12)
    assert found.stable == (courant <= 1)
    middle = sg.growth(stencil(centred))  # i courant sin: always unstable, most at a right angle
    assert middle.factor == pytest.approx(np.hypot(1, courant), rel=1e-12) and not middle.stable
    assert abs(middle.wave[0]) == pytest.approx(np.pi / 2, abs=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_no_wave_grows_more_than_the_worst_one(seed: int, radius: int) -> None:
    """Random weights: a grid a hundred times as fine finds nothing better, and the worst wave is as bad as told."""
    w = np.random.default_rng(seed).standard_normal(2 * radius + 1)
    found = sg.growth(sg.Stencil.from_weights(w))
    angles = np.linspace(0, np.pi, 50_001)
    offsets = np.arange(-radius, radius + 1)
    finest = np.abs(np.exp(1j * np.outer(angles, offsets)) @ w).max()
    assert finest <= found.factor * (1 + 1e-12)
    assert abs(np.exp(1j * found.wave[0] * offsets) @ w) == pytest.approx(found.factor, rel=1e-10)


@pytest.mark.parametrize("r", [0.5, 0.99, 1.01])
def test_two_fields_make_a_matrix(r: float) -> None:
    """Sound on a staggered grid, the same as leapfrog: stable up to dt = h."""

    def sound(p: Annotated[sg.Field, sg.Field(spacing=(1,), dt=r)], v: sg.Field) -> tuple[sg.Value, sg.Value]:
        new = sg.solve(sg.Eq(v.dt, -p.dx(at=0.5)), v.next)
        return sg.solve(sg.Eq(p.dt, -new.dx(at=-0.5)), p.next), new

    found = sg.growth(stencil(sound))
    s = 2 * r**2
    assert found.factor == pytest.approx(max(1, abs(1 - s) + np.sqrt(max(0, (1 - s) ** 2 - 1))), rel=1e-6)
    assert found.stable == (r <= 1)


def test_constants_and_conditions_of_coefficients_are_worked_out() -> None:
    def f(u: sg.Field, c: sg.Coef) -> Any:
        return sg.where(c[0] > 1, 2 * u[0], -u[0] / 4) + sg.exp(c[1]) - 3

    assert sg.growth(stencil(f), c=2).factor == 2
    assert sg.growth(stencil(f), c=0).factor == 0.25


def test_scalars_count_as_coefficients_do() -> None:
    def heat(u: Annotated[sg.Field, sg.Field(spacing=(1, 1))], dt: sg.Scalar, t: sg.Time) -> sg.Value:
        return sg.solve(sg.Eq(u.dt, u.laplace + sg.sin(t)), u.next)

    assert sg.growth(stencil(heat), dt=0.25, t=0).stable
    worst = sg.growth(stencil(heat), dt=[0.1, 0.26])  # the source does not count, so no time is needed
    assert worst.factor == pytest.approx(1.08) and worst.coefs["dt"] == 0.26


def test_kernels_and_three_axes() -> None:
    k = sg.compile(heat(1 / 6, (1, 1, 1)), (8, 8, 8), backend="reference", device="h200")
    assert k.stability().stable
    assert not sg.growth(heat(0.17, (1, 1, 1))).stable
    wave = sg.compile(stencil(leapfrog), (8, 8), backend="reference", device="h200")
    assert wave.stability(c=0.5).stable and not wave.stability(c=0.51).stable


def test_a_measured_wave_grows_as_foretold() -> None:
    """The worst wave, run: after 20 steps it is factor^20 as high."""
    scheme = heat(0.27, (1, 1))
    found = sg.growth(scheme)
    y, x = np.mgrid[0:8, 0:8]
    start = np.cos(y * found.wave[0] + x * found.wave[1])
    end = sg.compile(scheme, (8, 8), steps=20, backend="reference", device="h200")(start)
    assert np.abs(end).max() == pytest.approx(found.factor**20, rel=1e-6)


def test_refusals() -> None:
    wave = stencil(leapfrog)

    def refused(words: str, attempt: Any) -> None:
        with pytest.raises(sg.StencilError, match=words) as caught:
            attempt()
        assert caught.value.hint and caught.value.loc and caught.value.loc.file == __file__

    refused("depends on c", lambda: sg.growth(wave))
    refused("has no coefficient d", lambda: sg.growth(wave, c=1, d=1))
    refused("no array of finite numbers", lambda: sg.growth(wave, c="fast"))
    refused("no array of finite numbers", lambda: sg.growth(wave, c=[1, np.inf]))
    refused("no array of finite numbers", lambda: sg.growth(wave, c=[]))
    refused(r"square is not linear: a product is taken of u\[0\], u\[0\]", lambda: sg.growth(stencil(square)))
    refused(r"quotient multiplies u\[0\] by inf", lambda: sg.growth(stencil(quotient), c=0))
    refused("makes no time steps", lambda: sg.growth(3))  # type: ignore[arg-type]
    product = sg.compile(sg.spmm(sg.sparse(np.eye(32, dtype=np.float16)), n=8), device="h200", backend="reference")
    refused("makes no time steps", product.stability)


def square(u: sg.Field) -> sg.Value:
    return u[0] * u[0]


def quotient(u: sg.Field, c: sg.Coef) -> sg.Value:
    return u[0] / c[0]


@pytest.mark.parametrize(("axes", "levels"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_the_largest_stable_step(axes: int, levels: int) -> None:
    """Of heat 1/(2 axes), of leapfrog waves of speed 1/2 2/sqrt(axes), in cells."""
    here = (0,) * axes
    ends = [tuple(s * (i == axis) for i in range(axes)) for axis in range(axes) for s in (-1, 1)]

    def heat(u: sg.Field, dt: sg.Scalar) -> sg.Value:
        return u[here] + dt * (sum(u[end] for end in ends) - len(ends) * u[here])

    def wave(u: Annotated[sg.Field, sg.Field(levels=2)], c: sg.Coef, dt: sg.Scalar) -> sg.Value:
        return 2 * u[here] - u.prev[here] + (c[here] * dt) ** 2 * (sum(u[end] for end in ends) - len(ends) * u[here])

    made = stencil((heat, wave)[levels - 1])
    coefs = {"c": np.array([0.1, 0.5])} if levels == 2 else {}
    found = sg.growth(made, **coefs)
    want = 2 / axes**0.5 if levels == 2 else 1 / (2 * axes)
    assert found.limit == pytest.approx(want, rel=1e-8)
    assert found.stable and f"stable for dt up to {found.limit:.8g}" in str(found)
    assert sg.growth(made, dt=want / 2, **coefs).limit is None
    assert not sg.growth(made, dt=want * 1.01, **coefs).stable


def test_all_or_no_steps_are_stable() -> None:
    @sg.stencil
    def decay(u: sg.Field, dt: sg.Scalar) -> sg.Value:
        return u[0] / (1 + dt)

    @sg.stencil
    def centred(u: sg.Field, dt: sg.Scalar) -> sg.Value:
        return u[0] - dt * (u[1] - u[-1])

    assert sg.growth(decay).limit == np.inf
    assert sg.growth(centred).limit == pytest.approx(0, abs=1e-5)  # forward in time, centred in space
