"""Updates whose fields stay in registers on the GPU: every boundary, launches one after another and two at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from tests.gpu.test_updates_gpu import inputs, same
from tests.schedules import KINDS
from tests.updates import burgers, error, gray_scott, heat, life, wave

SHAPE = (517, 389)
#: Each side another kind; values with which no case grows in 40 steps.
MIXED = {0: (sg.frozen, sg.dirichlet(0.1)), 1: (sg.neumann, sg.dirichlet(0.3))}


@pytest.mark.parametrize("sides", [*KINDS, "mixed"])
@pytest.mark.parametrize(
    ("make", "dtype"), [(wave, "f64"), (wave, "f32"), (gray_scott, "f32"), (wave, "f16"), (life, "bf16")]
)
def test_every_boundary(make: Any, dtype: str, sides: str, launcher: str) -> None:
    update = make(boundary=KINDS.get(sides, MIXED), dtype=dtype)
    given = inputs(update, SHAPE)
    k = sg.compile(update, SHAPE, 40, backend="cuda", schedule="resident")
    for steps in (40, 1, 2, 7):
        same(k(**given, steps=steps), sg.compile(update, SHAPE, steps, backend="reference")(**given), dtype)


@pytest.mark.parametrize("sides", KINDS)
@pytest.mark.parametrize(("make", "shape"), [(heat, (61, 64, 64)), (heat, (64, 50, 70)), (burgers, (20_001,))])
def test_three_axes_and_one(make: Any, shape: tuple[int, ...], sides: str) -> None:
    update = make(boundary=KINDS[sides])
    given = inputs(update, shape)
    k = sg.compile(update, shape, 20, backend="cuda", schedule="resident")
    for steps in (20, 1, 3):
        same(k(**given, steps=steps), sg.compile(update, shape, steps, backend="reference")(**given), "f64")


def test_an_axis_of_which_one_window_is_all() -> None:
    update, shape = heat(boundary=sg.periodic), (64, 64, 32)
    given = inputs(update, shape)
    line = "resident tiles=32x4x1 planes=4 rows=2 cols=1 warps=11 every=1"
    same(sg.compile(update, shape, 25, backend="cuda", schedule=line)(**given),
         sg.compile(update, shape, 25, backend="reference")(**given), "f64")  # fmt: skip


@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_rounds_of_any_length(every: int) -> None:
    """Many launches one after the other: tags go on, and no launch takes what an earlier one has left."""
    update = wave(boundary=sg.periodic)
    given = inputs(update, SHAPE)
    k = sg.compile(update, SHAPE, 11, backend="cuda", schedule=f"resident every={every}")
    want = {steps: sg.compile(update, SHAPE, steps, backend="reference")(**given) for steps in (1, 5, 6, 11)}
    for turn in range(60):
        steps = (11, 1, 6, 5)[turn % 4]
        same(k(**given, steps=steps), want[steps], "f64")


def test_a_long_run() -> None:
    """Ten thousand steps against one step a launch."""
    heat = sg.Stencil.from_weights(np.array([[0, 0.11, 0], [0.12, 0.5, 0.14], [0, 0.13, 0]]), sg.neumann)
    update, u = heat.as_update(), np.random.default_rng(1).random((256, 256))
    got = sg.compile(update, u.shape, 10_000, backend="cuda", schedule="resident")(u)
    want = sg.compile(update, u.shape, 10_000, backend="cuda", schedule="direct")(u)
    assert error(got, want) <= 1e-11


def test_two_at_a_time_do_not_wait_for_one_another() -> None:
    """On two streams: CUDA runs such launches one after the other where they do not fit beside each other."""
    torch: Any = pytest.importorskip("torch")
    shape = (512, 512)
    makers = [(wave, "f64"), (gray_scott, "f32")]
    work = []
    for make, dtype in makers:
        update = make(boundary=sg.periodic, dtype=dtype)
        given = inputs(update, shape)
        on_device = {
            name: tuple(torch.from_numpy(a).cuda() for a in value) if isinstance(value, tuple)
            else torch.from_numpy(value).cuda()
            for name, value in given.items()
        }  # fmt: skip
        k = sg.compile(update, shape, 50, backend="cuda", schedule="resident every=2" if dtype == "f64" else "resident")
        work.append((update, dtype, given, on_device, k, torch.cuda.Stream()))
    torch.cuda.synchronize()
    results: list[Any] = [None] * len(work)
    for _ in range(20):
        for i, (_, _, _, on_device, k, stream) in enumerate(work):
            with torch.cuda.stream(stream):
                results[i] = k(**on_device, stream=stream.cuda_stream)
    torch.cuda.synchronize()
    for (update, dtype, given, _, _, _), got in zip(work, results, strict=True):
        want = sg.compile(update, shape, 50, backend="reference")(**given)
        same(tuple(a.cpu().numpy() for a in got), want, dtype)


def test_a_captured_launch() -> None:
    """A graph that is replayed repeats its arguments; which round it is stands in the memory of the device."""
    torch: Any = pytest.importorskip("torch")
    update = gray_scott(boundary=sg.neumann, dtype="f32")
    given = inputs(update, SHAPE)
    u, v = (torch.from_numpy(given[name]).cuda() for name in ("u", "v"))
    k = sg.compile(update, SHAPE, 9, backend="cuda", schedule="resident")
    out = tuple(torch.empty_like(u) for _ in range(2))
    k(u, v, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        k(u, v, out=out, stream=torch.cuda.current_stream().cuda_stream)
    want = sg.compile(update, SHAPE, 9, backend="reference")(**given)
    for _ in range(5):
        for a in out:
            a.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        same(tuple(a.cpu().numpy() for a in out), want, "f32")
