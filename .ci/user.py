"""What a user's file may say of fields, coefficients and formulas: typecheck.py runs mypy and pyright on it."""

from __future__ import annotations

from typing import Annotated

import numpy as np

import sparsegen as sg


@sg.stencil
def reaction(u: sg.Field, v: sg.Field, c: sg.Coef) -> tuple[sg.Value, sg.Value]:
    rate = sg.sqrt(u[0, 0]) + sg.abs(v[0, 0]) ** 2 / 3
    limited = sg.where((u[0, 0] > 0) & (v[0, 0] <= rate), sg.max(0, u[0, 1]), 1.0)
    waves = sg.exp(-sg.clip(v[0, 0], 0, 1)) + sg.sin(rate) * 2 ** u[0, 0] + sg.pow(u[0, 0], v[0, 0]) ** 0.5
    return limited, waves - v[0, 0] * c[0, 0] - sg.min(u[1, 0], 1)


@sg.stencil(dtype="f32", boundary={"u": sg.periodic}, name="third")
def third(u: Annotated[sg.Field, sg.Field(levels=3)]) -> sg.Value:
    return u.prev.prev[0] + sum(0.5 * u[i] for i in (-1, 1)) - abs(u[1])


@sg.stencil
def damped(u: Annotated[sg.Field, sg.Field(levels=2, spacing=(0.1, 0.2), dt=0.01)], c: sg.Coef) -> sg.Value:
    flux = (c[0, 0] * u.dx(order=4, at=0.5)).dx(at=-0.5) + c.dy * u.prev.dxy
    return sg.solve(sg.Eq(u.dt2 + 3 * u.dtc + u.next[0, 0], u.laplace(order=8) - sg.exp(u.dyy) + flux), u.next)


@sg.stencil
def driven(u: sg.Field, dt: sg.Scalar, t: sg.Time) -> sg.Value:
    return u[0] + dt * (u[1] - 2 * u[0]) + sg.sin(t) / dt


@sg.stencil
def channel(u: Annotated[sg.Field, sg.Field(spacing=(0.1, 0.2), dt=0.01)], solid: sg.Mask, hot: sg.Mask) -> sg.Value:
    w = u.walled(solid).walled(hot[0, 0] & ~solid[0, 0], sg.dirichlet(1.0))
    spread = w.laplace(order=4) + (u[0, 0] ** 3).walled(solid).laplace + u.walled(hot, u[0, 0]).dx(at=0.5)
    return sg.where(hot[0, 0] | solid[1, 0], w[0, 1], sg.solve(sg.Eq(u.dt, spread), u.next))


@sg.stencil
def shot(
    u: Annotated[sg.Field, sg.Field(levels=2, spacing=(1.0,), dt=0.5)], q: sg.Field, d: sg.Coef
) -> tuple[sg.Value, ...]:
    new, *more = sg.pml(u, (q,), (d,), 1.0, order=4)
    return new + 1, *more


limit: float = sg.growth(third).factor
kernel = sg.compile(third, shape=(64,), steps=2, device="h200", backend="emulator")
newest, *older = kernel(u=(np.zeros(64, np.float32),) * 3)
chosen: list[str] = [str(cost.schedule) for cost in sg.schedules(reaction, shape=(32, 32), device="h200")]
W = sg.sparse(np.eye(32, dtype=np.float16))
zeros: float = W.sparsity + W.stats().imbalance + W.stats().per_vector
y = sg.compile(sg.spmm(W, n=4), device="h200", backend="emulator")(np.ones((32, 4), np.float16))
