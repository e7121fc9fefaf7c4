"""Adjoints on the GPU: arrays that no call brings lie there, in every family and kind of array."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from tests.updates import made, wave

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
    k = sg.compile(made(wave, boundary=sg.frozen), shape, steps=6, backend="cuda")
    x, y = (tuple(rng.standard_normal((2, *shape))) for _ in "xy")
    assert agree(k, line, x, y, rng.random(shape) / 4)


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
