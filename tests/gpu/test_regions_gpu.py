"""Masks, walls and matched layers on the GPU: as the reference has them, of torch's and CuPy's arrays."""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import numpy as np
import pytest

import sparsegen as sg
from tests.api.test_masks import SCHEDULES, SHAPES, arrays, plate
from tests.dsl.test_pml import started, wave


@pytest.mark.parametrize(("axes", "line"), [(axes, line) for axes, lines in SCHEDULES.items() for line in lines])
def test_every_schedule_has_walls(axes: int, line: str) -> None:
    for boundary in (sg.periodic, sg.neumann, sg.dirichlet(0.5)):
        update, given = plate(axes, boundary), arrays(axes)
        kernel = sg.compile(update, SHAPES[axes], 5, schedule=line, backend="cuda")
        plain = sg.compile(update, SHAPES[axes], 5, backend="reference")
        assert np.allclose(kernel(*given), plain(*given), rtol=0, atol=1e-12)


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_masks_are_converted_where_they_are(library: str) -> None:
    """Of bool and of the kernel's type, many calls in turn; another stream takes only the latter."""
    lib: Any = pytest.importorskip(library)
    kernel = sg.compile(plate(2), SHAPES[2], 5, backend="cuda")
    u, solid, hot = arrays(2)
    want = sg.compile(plate(2), SHAPES[2], 5, backend="reference")(u, solid, hot)
    on = (lambda a: lib.as_tensor(a).cuda()) if library == "torch" else lib.asarray
    back = (lambda a: a.cpu().numpy()) if library == "torch" else lib.asnumpy
    field, regions = on(u), (on(solid), on(hot))
    numbers = on(solid.astype(np.float64)), on(hot.astype(np.float64))
    for masks in (regions, numbers, regions, numbers, (regions[0], numbers[1])):
        assert np.allclose(back(kernel(field, *masks)), want, rtol=0, atol=1e-12)
    stream = lib.cuda.Stream()
    with pytest.raises(sg.ArrayError, match="the call goes to stream="):
        kernel(field, *regions, stream=stream)
    lib.cuda.Device().synchronize() if library == "cupy" else lib.cuda.synchronize()
    made = kernel(field, *numbers, stream=stream)
    stream.synchronize()
    assert np.allclose(back(made), want, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("axes", "shape"), [(1, (3000,)), (2, (130, 150)), (3, (40, 45, 64))])
def test_matched_layers(axes: int, shape: tuple[int, ...]) -> None:
    layers = sg.pml_layers(shape, 10, 1.0)
    made, want = (wave(axes, name=name)(shape, 40)(*started(shape), *layers) for name in ("cuda", "reference"))
    for a, b in zip((*made[0], *made[1:]), (*want[0], *want[1:]), strict=True):
        assert np.allclose(a, b, rtol=0, atol=1e-12)


def test_a_warning_looks_at_tensors_where_they_are() -> None:
    """Also where the first call is captured into a graph: then the next one says it."""
    torch = pytest.importorskip("torch")

    @sg.stencil
    def heat(u: Annotated[sg.Field, sg.Field(spacing=(1.0, 1.0), dt=0.2)], c: sg.Coef) -> sg.Value:
        return sg.solve(sg.Eq(u.dt, c[0, 0] * u.laplace), u.next)

    u, c = (torch.rand(130, 150, dtype=torch.float64, device="cuda") + i for i in (0, 2))
    kernel = sg.compile(heat, u.shape, 3, backend="cuda")
    out = torch.empty_like(u)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", sg.UnstableWarning)
        for _ in range(3):
            kernel(u, c, out=out)
        assert len([w for w in caught if w.category is sg.UnstableWarning]) == 1
    kernel._watch = type(kernel._watch)(heat)  # as of a kernel that has not been called
    with warnings.catch_warnings():
        warnings.simplefilter("error", sg.UnstableWarning)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernel(u, c, out=out, steps=3)
    with pytest.warns(sg.UnstableWarning, match="beyond 0.0"):
        kernel(u, c, out=out, steps=3)
