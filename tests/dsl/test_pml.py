"""Perfectly matched layers: what comes back of a pulse, beside a sponge, and that nothing grows in long runs."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.adjoint.linear import Linear
from sparsegen.stability import rough

DT = 0.5


def wave(axes: int, order: int = 2, name: str = "reference", **compiled: Any) -> Any:
    """A kernel's function of the shape, for one step."""
    grid = sg.Field(levels=2, spacing=(1.0,) * axes, dt=DT)

    def line(u: Any, q: sg.Field, d: sg.Coef) -> Any:
        return sg.pml(u, (q,), (d,), 1.0, order=order)

    def plane(u: Any, qy: sg.Field, qx: sg.Field, dy: sg.Coef, dx: sg.Coef) -> Any:
        return sg.pml(u, (qy, qx), (dy, dx), 1.0, order=order)

    def space(
        u: Any, qz: sg.Field, qy: sg.Field, qx: sg.Field, p: sg.Field, dz: sg.Coef, dy: sg.Coef, dx: sg.Coef
    ) -> Any:
        return sg.pml(u, (qz, qy, qx, p), (dz, dy, dx), 1.0, order=order)

    made = (line, plane, space)[axes - 1]
    made.__annotations__["u"] = grid
    update = sg.stencil(boundary=sg.dirichlet(0.0))(made)
    return lambda shape, steps=1: sg.compile(update, shape, steps, backend=name, device="h200", **compiled)


def without_layers(axes: int, order: int = 2) -> Any:
    """The update alone."""

    def plain(u: Any) -> Any:
        return sg.solve(sg.Eq(u.dt2, u.laplace(order=order)), u.next)

    plain.__annotations__["u"] = sg.Field(levels=2, spacing=(1.0,) * axes, dt=DT)
    return sg.stencil(boundary=sg.dirichlet(0.0))(plain)


def pulse(shape: tuple[int, ...]) -> Any:
    """At rest, some 8 cells wide, and of mean 0, as what radiates is."""
    far = sum((at - (n - 1) / 2) ** 2 for at, n in zip(np.indices(shape), shape, strict=True)) / 5
    return (1 - 2 / len(shape) * far) * np.exp(-far)


def started(shape: tuple[int, ...]) -> list[Any]:
    axes = len(shape)
    return [(pulse(shape), pulse(shape)), *(np.zeros(shape) for _ in range(axes + axes // 3))]


def comes_back(axes: int, inside: int, width: int, far: int, order: int = 2) -> float:
    """How much a wave in a domain with layers differs, at most, from one whose domain goes on so far beyond them,
    until something can be back from the far ends."""
    shape, wide = (inside + 2 * width,) * axes, (inside + 2 * width + 2 * far,) * axes
    steps = int((inside / 2 + 2 * width + 2 * far - 10) / DT)
    small = wave(axes, order)(shape)
    large = sg.compile(without_layers(axes, order), wide, backend="reference", device="h200")
    state, whole, worst = started(shape), (pulse(wide),) * 2, 0.0
    seen = (slice(width, -width),) * axes
    cut = (slice(width + far, -width - far),) * axes
    for _ in range(4):
        state = list(small(*state, *sg.pml_layers(shape, width, 1.0), steps=steps // 4))
        whole = large(whole, steps=steps // 4)
        worst = max(worst, float(np.abs(state[0][0][seen] - whole[0][cut]).max()))
    return worst


@pytest.mark.parametrize(
    ("axes", "inside", "width", "far", "order", "most"),
    [(1, 40, 20, 20, 2, 5e-4), (2, 24, 12, 12, 2, 3e-4), (2, 20, 20, 6, 8, 3e-4), (3, 12, 8, 2, 2, 6e-4)],
)
def test_hardly_anything_comes_back(axes: int, inside: int, width: int, far: int, order: int, most: float) -> None:
    assert 0 < comes_back(axes, inside, width, far, order) < most


def test_less_comes_back_than_from_a_sponge() -> None:
    """Of the same width, and of a wave that is longer than the layer."""

    @sg.stencil(boundary=sg.dirichlet(0.0))
    def damped(u: Annotated[sg.Field, sg.Field(levels=2, spacing=(1.0,), dt=DT)], d: sg.Coef) -> sg.Value:
        return sg.solve(sg.Eq(u.dt2 + d[0] * u.dtc, u.laplace), u.next)

    at = (np.arange(400) - 200) / 6
    start, zero = (1 - 2 * at**2) * np.exp(-(at**2)), np.zeros(400)
    sponge = sg.compile(damped, (400,), 700, backend="reference", device="h200")
    (kept, _), (soaked, _) = (sponge((start, start), d) for d in (zero, sg.sponge((400,), 20, 1.0)))
    (left, _), _ = wave(1)((400,), 700)((start, start), zero, *sg.pml_layers((400,), 20, 1.0))
    shares = [float(np.abs(a).max() / np.abs(kept).max()) for a in (soaked, left)]
    assert shares[0] > 0.02 and shares[1] < 1e-3


@pytest.mark.parametrize(("axes", "inside", "width", "steps"), [(2, 6, 5, 3000), (3, 3, 4, 1200)])
def test_nothing_grows(axes: int, inside: int, width: int, steps: int) -> None:
    """From a start of noise, which has all waves in it, in thousands of steps."""
    shape = (inside + 2 * width,) * axes
    rng = np.random.default_rng(0)
    state = started(shape)
    state[0] = (rng.standard_normal(shape),) * 2
    k, layers = wave(axes)(shape), sg.pml_layers(shape, width, 1.0)
    sizes = [[float(np.abs(a).max()) for a in (state[0][0], *state[1:])]]
    for _ in range(4):
        state = list(k(*state, *layers, steps=steps // 4))
        sizes.append([float(np.abs(a).max()) for a in (state[0][0], *state[1:])])
    waves = [size[0] for size in sizes]
    assert waves == sorted(waves, reverse=True) and waves[-1] < 0.02 * waves[0]
    assert all(b < a for b, a in zip(sizes[-1][1:], sizes[1][1:], strict=True))  # the other fields do not grow either


@pytest.mark.parametrize(("axes", "names"), [(1, ["d"]), (2, ["dy", "dx"]), (3, ["dz", "dy", "dx"])])
def test_no_wave_grows_where_dampings_are_even(axes: int, names: list[str]) -> None:
    """With each of them 0 or not, as along edges, also where the layers are as strong as a few cells would need."""
    for most in (0.3, 2.0, 5.0):
        scheme = Linear.of(wave(axes)((8,) * axes).update)
        assert rough(scheme, dict.fromkeys(names, (0.0, most))) < 1 + 1e-7


@pytest.mark.parametrize(
    ("axes", "shape", "schedule"),
    [
        (1, (300,), "stream levels=3 cols=4"),
        (2, (30, 70), "direct"),
        (2, (30, 70), "stream levels=2 cols=4"),
        (3, (9, 10, 40), "direct"),
    ],
)
def test_kernels_do_the_same(axes: int, shape: tuple[int, ...], schedule: str) -> None:
    layers = sg.pml_layers(shape, 3, 1.0)
    made, want = (
        wave(axes, name=name, **compiled)(shape, 4)(*started(shape), *layers)
        for name, compiled in (("emulator", {"schedule": schedule}), ("reference", {}))
    )
    assert all(np.allclose(a, b, rtol=0, atol=1e-14) for a, b in zip(made, want, strict=True))


def test_a_step_of_calls_a_source_and_a_speed() -> None:
    """What it gives back is a formula as any other."""

    @sg.stencil(boundary=sg.dirichlet(0.0))
    def shot(
        u: Annotated[sg.Field, sg.Field(levels=2, spacing=(2.0,))], q: sg.Field, d: sg.Coef, s: sg.Coef,
        at: sg.Mask, dt: sg.Scalar, t: sg.Time,
    ) -> Any:  # fmt: skip
        new, more = sg.pml(u, (q,), (d,), s[0])
        return sg.where(at[0], new + dt * dt * sg.sin(t), new), more

    n, zero = 120, np.zeros(120)
    k = sg.compile(shot, (n,), 60, backend="reference", device="h200")
    (d,) = sg.pml_layers((n,), 15, 1.5 / 2.0)
    (u, _), q = k((zero, zero), zero, d, np.full(n, 1.5), np.arange(n) == 60, dt=0.6)
    assert np.isfinite(u).all() and np.allclose(u[1:], u[:0:-1]) and np.abs(u[30:90]).max() > 0.1 and q.any()


def test_where_the_layers_are() -> None:
    dy, dx = sg.pml_layers((40, 30), 8, 2.0, sides={0: (False, True)})
    assert not dx.any() and not dy[:32].any() and (np.diff(dy[32:, 3]) > 0).all() and (dy == dy[:, :1]).all()
    dy, dx = sg.pml_layers((40, 30), 8, 2.0)
    share = np.log(1e-5) / np.log(1e-3) / 2
    assert np.allclose(np.maximum(dy, dx), share * sg.sponge((40, 30), 8, 2.0), rtol=1e-14)
    with pytest.raises(sg.StencilError, match="layers of 16 cells do not fit axis 1 of 30"):
        sg.pml_layers((40, 30), 16, 2.0)


def test_what_makes_no_layers() -> None:
    def refused(words: str, formula: Any) -> None:
        def f(u: Any, qy: sg.Field, qx: sg.Field, dy: sg.Coef, dx: sg.Coef) -> Any:
            return formula(u, (qy, qx), (dy, dx))

        f.__annotations__["u"] = sg.Field(levels=2, spacing=(1.0, 1.0), dt=DT)
        with pytest.raises(sg.StencilError, match=words) as caught:
            sg.stencil(f)
        assert caught.value.hint and caught.value.loc and caught.value.loc.file == __file__

    refused("takes 2 fields, not 1 of them", lambda u, q, d: sg.pml(u, q[:1], d, 1.0))
    refused("takes 2 dampings, not 3 of them", lambda u, q, d: sg.pml(u, q, (*d, d[0]), 1.0))
    refused(r"takes 2 fields, not \[", lambda u, q, d: sg.pml(u, [q[0][0, 0]], d, 1.0))
    refused(r"sg.pml of u\[0, 0\]", lambda u, q, d: sg.pml(u[0, 0], q, d, 1.0))
    refused("no earlier time level", lambda u, q, d: sg.pml(q[0], q, d, 1.0))
