"""Adjoints on the GPU: arrays that no call brings lie there, in every family and kind of array."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from tests.updates import wave

SKEW = np.random.default_rng(0).standard_normal((3, 3)) / 4
MIXED = {0: (sg.frozen, sg.neumann), 1: (sg.neumann, sg.frozen)}
LINES = ("auto", "direct", "tiled", "stream levels=2 cols=2", "resident")


def agree(k: Any, line: str, x: Any, y: Any, *coefs: Any) -> bool:
    """Whether the dot products of a kernel and of its adjoint in a schedule do; False where that cannot do it."""
    with suppress(sg.ScheduleError):
        forward, back = k(x, *coefs), k.adjoint(line)(y, *coefs)
        pairs = [np.vdot(np.stack(a), np.stack(b)) for a, b in ((forward, y), (x, back))]
        assert abs(pairs[0] - pairs[1]) < 1e-10 * np.linalg.norm(np.stack(x)) * np.linalg.norm(np.stack(y))
        return True
    return False


@pytest.mark.parametrize("boundary", [sg.periodic, sg.frozen, sg.neumann, MIXED], ids=str)
def test_a_stencil(boundary: Any) -> None:
    shape = (200, 301)
    k = sg.compile(sg.Stencil.from_weights(SKEW, boundary), shape, steps=5, backend="cuda")
    x, y = np.random.default_rng(1).standard_normal((2, *shape))
    done = [line for line in LINES if agree(k, line, x, y)]
    assert {"auto", "direct"} <= {*done} and (boundary is sg.periodic or len(done) == len(LINES)), done


@pytest.mark.parametrize("line", LINES)
def test_a_wave(line: str) -> None:
    shape, rng = (200, 304), np.random.default_rng(2)
    k = sg.compile(wave(boundary=sg.frozen), shape, steps=6, backend="cuda")
    x, y = (tuple(rng.standard_normal((2, *shape))) for _ in "xy")
    assert agree(k, line, x, y, rng.random(shape) / 4)


def swaying(u: sg.Field, dt: sg.Scalar, t: sg.Time) -> sg.Value:
    return u[0, 0] + dt * sg.cos(t) * (u[0, 1] + u[0, -1] - 2 * u[1, 0])


@pytest.mark.parametrize("line", LINES)
def test_scalars(line: str) -> None:
    """Those of the last step first."""
    shape, rng, dts = (200, 304), np.random.default_rng(4), np.linspace(0.01, 0.2, 6)
    k = sg.compile(sg.stencil(swaying, boundary=sg.neumann), shape, steps=6, backend="cuda")
    x, y = rng.standard_normal((2, *shape))
    forward, back = np.vdot(k(x, dt=dts, t=1.0), y), np.vdot(x, k.adjoint(line)(y, dt=dts, t=1.0))
    assert abs(forward - back) < 1e-10 * np.linalg.norm(x) * np.linalg.norm(y)


def test_gradients_by_scalars() -> None:
    """As those of the reference, of tensors on the GPU and on the host."""
    torch: Any = pytest.importorskip("torch")
    from sparsegen.torch import stencil_op

    what, u, found = sg.stencil(swaying, boundary=sg.neumann), np.random.default_rng(5).random((64, 96)), []
    for backend, device in (("cuda", "cuda"), ("reference", "cpu")):
        op = stencil_op(sg.compile(what, u.shape, 7, backend=backend))
        dt = torch.linspace(0.1, 0.3, 7, dtype=torch.float64, device=device, requires_grad=True)
        t = torch.tensor(0.5, requires_grad=True)
        x = torch.from_numpy(u).to(device).requires_grad_()
        op(x, dt=dt, t=t).square().sum().backward()
        found.append([g.grad.cpu() for g in (x, dt, t)])
    assert all(torch.allclose(a, b, rtol=1e-6) for a, b in zip(*found, strict=True))


def test_device_arrays_and_graphs() -> None:
    """The short way through a call, rows that lie apart, and a captured graph take the same arrays along."""
    torch: Any = pytest.importorskip("torch")
    adjoint = sg.compile(sg.Stencil.from_weights(SKEW, MIXED), (96, 128), steps=4, backend="cuda").adjoint()
    y = torch.randn(96, 128, dtype=torch.float64, device="cuda")
    want, apart, out = adjoint(y.cpu().numpy()), torch.zeros(96, 160, dtype=torch.float64, device="cuda"), y.clone()
    apart[:, :128] = y
    for given in (y, y, apart[:, :128], y):
        assert np.array_equal(adjoint(given).cpu().numpy(), want)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        adjoint(y, out=out)
    out.zero_()
    graph.replay()
    assert np.array_equal(out.cpu().numpy(), want)
