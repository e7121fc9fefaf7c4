"""Sources and receivers on the GPU: arrays of NumPy and torch, every family, passes that do not fill a call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from tests.api.test_resident_sites import HOW, waves
from tests.api.test_resident_sites import survey as near_seams
from tests.api.test_shots import ITEMS, flat, item_of, survey
from tests.api.test_sites import SCHEDULES, SHAPES, STEPS, two

pytestmark = pytest.mark.gpu
#: How much two kernels of one formula may differ: nvcc joins other products and sums in each.
ROUNDING = {"f64": 1e-13, "f32": 1e-5, "f16": 2e-3}


def alike(made: list[Any], want: list[Any], dtype: str) -> None:
    """Results and records are the same but for rounding."""
    for a, b in zip(made, want, strict=True):
        wide = b.astype(np.float64)
        off = np.abs(a.astype(np.float64) - wide).max() / max(1.0, np.abs(wide).max())
        assert off <= ROUNDING[dtype], off


@pytest.mark.parametrize("boundary", [sg.periodic, sg.neumann], ids=str)
@pytest.mark.parametrize(("axes", "line"), [(axes, line) for axes, lines in SCHEDULES.items() for line in lines])
def test_every_schedule_is_as_the_reference(axes: int, line: str, boundary: Any) -> None:
    rng, shape = np.random.default_rng(axes), SHAPES[axes]
    top = np.array(shape) - 1
    update = two(axes, boundary).with_sites(
        shot=sg.Source(rng.random((5, axes)) * top, field="v"), more=sg.Source(rng.random((2, axes)) * top, field="u"),
        a=sg.Receiver(rng.random((40, axes)) * top, "u"), b=sg.Receiver(np.floor(rng.random((7, axes)) * top), "v"),
    )  # fmt: skip
    kernel = sg.compile(update, shape, STEPS, schedule=line, backend="cuda")
    plain = sg.compile(update, shape, STEPS, backend="reference")
    for steps in (1, STEPS, 2 * STEPS + 1):
        given = sg.compile(update, shape, steps, backend="reference").random()
        got, want = kernel(**given, steps=steps), plain(**given, steps=steps)
        for a, b in zip(flat(got), flat(want), strict=True):
            assert np.abs(a - b).max() <= 1e-12 * max(1, np.abs(b).max())


@pytest.mark.parametrize(("axes", "line"), [(axes, line) for axes, lines in SCHEDULES.items() for line in lines])
def test_shots_of_a_batch_are_as_single_ones(axes: int, line: str) -> None:
    update, shape = survey(axes), SHAPES[axes]
    kernel = sg.compile(update, shape, STEPS, batch=ITEMS, shared="more", schedule=line, backend="cuda")
    one = sg.compile(update, shape, STEPS, schedule=kernel.schedule, backend="cuda")
    for steps in (1, STEPS, 2 * STEPS + 1):
        plain = sg.compile(update, shape, steps, batch=ITEMS, shared="more", backend="reference")
        given = plain.random()
        made = flat(kernel(**given, steps=steps))
        for a, b in zip(made, flat(plain(**given)), strict=True):
            assert np.abs(a - b).max() <= 1e-12 * max(1, np.abs(b).max())
        for i in range(ITEMS):
            want = flat(one(**item_of(given, i, ("more",)), steps=steps))
            assert all(np.array_equal(a[i], b) for a, b in zip(made, want, strict=True))


def test_tensors_with_a_signal_for_each_item() -> None:
    torch = pytest.importorskip("torch")
    kernel = sg.compile(survey(2, "f32"), SHAPES[2], STEPS, batch=ITEMS, backend="cuda")
    given = sg.compile(survey(2, "f32"), SHAPES[2], 11, batch=ITEMS, backend="reference").random()
    tensors = {
        name: tuple(torch.from_numpy(a).cuda() for a in value) if isinstance(value, tuple)
        else torch.from_numpy(value).cuda() if isinstance(value, np.ndarray) else value
        for name, value in given.items()
    }  # fmt: skip
    *_, last = kernel.run(**tensors, steps=11, every=4, progress=False)
    want = kernel(**given, steps=11)[-1]
    assert last.records["heard"].shape == want.shape == (ITEMS, 11, 4)
    assert np.abs(last.records["heard"] - want).max() <= 1e-4


def test_tensors_and_a_signal_of_the_host() -> None:
    torch = pytest.importorskip("torch")
    update = two(2, sg.neumann, "f32").with_sites(
        shot=sg.Source([[100.5, 200.25]], field="u"), seen=sg.Receiver([[100.0, 210.5], [90.0, 200.0]], "u")
    )
    kernel = sg.compile(update, (512, 1024), 6, backend="cuda")
    u, v, older = (torch.rand(512, 1024, device="cuda") for _ in range(3))
    signal = np.sin(np.arange(6.0))
    (new, _), record = kernel(u, (v, older), dt=0.05, shot=signal)
    host = sg.compile(update, (512, 1024), 6, backend="reference")
    (want, _), heard = host(u.cpu().numpy(), (v.cpu().numpy(), older.cpu().numpy()), dt=0.05, shot=signal)
    assert record.device.type == "cuda" and np.abs(record.cpu().numpy() - heard).max() <= 1e-4
    assert np.abs(new.cpu().numpy() - want).max() <= 1e-4
    device = torch.from_numpy(signal.astype(np.float32)[:, None]).cuda()
    _, again = kernel(u, (v, older), dt=0.05, shot=device)
    assert torch.equal(again, record)


def test_wide_stars_in_three_dimensions() -> None:
    @sg.stencil(dtype="f32", boundary=sg.dirichlet(0.0))
    def acoustic(p: sg.Field(levels=2, spacing=1.0), c: sg.Coef) -> Any:  # type: ignore[valid-type]
        now: Any = p
        return 2 * now[0, 0, 0] - now.prev[0, 0, 0] + c[0, 0, 0] * now.laplace(order=8)  # type: ignore[index]

    rows = np.stack(np.meshgrid([4.0], np.arange(2.0, 60.0), np.arange(2.5, 60.0), indexing="ij"), -1).reshape(-1, 3)
    update = acoustic.with_sites(shot=sg.Source([[20.5, 30.25, 31.0]]), heard=sg.Receiver(rows))
    given = sg.compile(update, (64, 64, 64), 12, backend="reference").random()
    given["c"] = given["c"] * np.float32(0.1)
    got = sg.compile(update, (64, 64, 64), 12, backend="cuda")(**given)
    want = sg.compile(update, (64, 64, 64), 12, backend="reference")(**given)
    for a, b in zip(flat(got), flat(want), strict=True):
        assert np.abs(a - b).max() <= 1e-4 * np.abs(b).max()


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
@pytest.mark.parametrize("how", HOW)
def test_fields_on_chip_have_the_numbers_of_one_step_a_launch(how: str, dtype: str) -> None:
    line, shape, wraps = HOW[how]
    update = near_seams(shape, {0: (sg.neumann, sg.dirichlet(0.5)), 1: sg.frozen} | wraps, dtype)
    k, single = (sg.compile(update, shape, 4, schedule=s, backend="cuda") for s in (line, "direct"))
    for steps in (4, 1, 2, 7, 5):
        given = sg.compile(update, shape, steps, backend="reference").random()
        made = flat(k(**given, steps=steps))
        alike(made, flat(single(**given, steps=steps)), dtype)


def pond(shape: tuple[int, int], receivers: int, sources: int = 3) -> Any:
    """A wave with a line of receivers through all blocks, and some sources."""
    line = np.stack([np.full(receivers, 8.5), np.linspace(1, shape[1] - 2, receivers)], 1)
    points = np.random.default_rng(0).random((sources, 2)) * (np.array(shape) - 1)
    return waves().with_sites(shot=sg.Source(points), heard=sg.Receiver(line))


def drawn(update: Any, shape: tuple[int, int], steps: int) -> dict[str, Any]:
    given = sg.compile(update, shape, steps, backend="reference").random()
    return given | {"c": np.full(shape, 0.2, np.float32)}


def test_any_number_of_steps_one_call_after_the_other() -> None:
    """Larger workspaces have other counters; calls of fewer steps find what they left."""
    shape, update = (500, 700), pond((500, 700), 300)
    k, single = (sg.compile(update, shape, 40, schedule=s, backend="cuda") for s in ("resident", "direct"))
    for steps in (40, 3, 64, 65, 1, 200, 40, 7):
        given = drawn(update, shape, steps)
        made = flat(k(**given, steps=steps))
        alike(made, flat(single(**given, steps=steps)), "f32")


def test_auto_keeps_small_fields_on_chip() -> None:
    shape, update = (1024, 1024), pond((1024, 1024), 200, 1)
    k = sg.compile(update, shape, 300, backend="cuda")
    assert k.schedule.family == "resident"
    given = drawn(update, shape, 300)
    want = sg.compile(update, shape, 300, schedule="direct", backend="cuda")(**given)
    alike(flat(k(**given)), flat(want), "f32")


def test_two_streams_and_a_graph_have_records_of_their_own() -> None:
    torch = pytest.importorskip("torch")
    shape, update, steps = (300, 400), pond((300, 400), 50), 20
    k = sg.compile(update, shape, steps, schedule="resident", backend="cuda")
    given = [drawn(update, shape, steps) for _ in range(2)]
    given[1]["shot"] = given[1]["shot"] * 2
    want = [flat(k(**each)) for each in given]
    on = [
        {name: tuple(torch.from_numpy(a).cuda() for a in value) if isinstance(value, tuple)
         else torch.from_numpy(value).cuda() for name, value in each.items()}
        for each in given
    ]  # fmt: skip
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in on]
    for _ in range(20):
        made = []
        for each, stream in zip(on, streams, strict=True):
            with torch.cuda.stream(stream):
                made.append(flat(k(**each, stream=stream.cuda_stream)))
        torch.cuda.synchronize()
        for got, exact in zip(made, want, strict=True):
            assert all(np.array_equal(a.cpu().numpy(), b) for a, b in zip(got, exact, strict=True))
    out = ((torch.empty_like(on[0]["c"]), torch.empty_like(on[0]["c"])), torch.empty((steps, 50), device="cuda"))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        k(**on[0], out=out, stream=torch.cuda.current_stream().cuda_stream)
    for _ in range(3):
        out[1].fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert all(np.array_equal(a.cpu().numpy(), b) for a, b in zip(flat(out), want[0], strict=True))
