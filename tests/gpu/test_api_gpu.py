"""A kernel on the GPU: numbers, kinds of arrays, streams, graphs, threads, the cost of a call, large fields."""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.cuda.runtime import available_kinds
from sparsegen.target import open_gpu
from tests.schedules import KINDS, MIXED, TOLERANCE, expected

LINES = [
    "direct",
    "direct fuse=3",
    "tiled",
    "tiled stages=2 fuse=2",
    "tiled stages=4 fuse=3",
    "stencil2row",
    "stencil2row stages=2 fuse=3",
    "stencil2row mma=none lut=off dirty=off",
    "stencil2row mma=f64.m16n8k4 stages=2 fuse=3",
    "stencil2row mma=f64.m16n8k8 stages=2",
    "stencil2row mma=f64.m16n8k16",
    "stencil2row transform=explicit",
    "patches fuse=1 levels=3",
    "patches fuse=3 levels=1 strips=1",
    "patches mma=f64.m8n8k4 fuse=1 levels=2 stages=3",
    "lowrank",
    "lowrank mma=f64.m16n8k16 tile=64x32 stages=3",
]
SIDES = {**KINDS, "mixed": MIXED}
BOX = np.random.default_rng(5).random((3, 3)) / 5 - 0.02
PRODUCT = np.outer([0.2, 0.5, 0.25], [0.35, 0.4, -0.2])


def reference(st: sg.Stencil, u: Any, steps: int) -> Any:
    return sg.compile(st, u.shape, steps=steps, backend="reference")(u)


def off(a: Any, b: Any) -> float:
    return float(np.max(np.abs(a - b)) / np.max(np.abs(b)))


def fits(line: str, weights: Any = BOX, steps: int = 3) -> None:
    """Skip a schedule that this GPU cannot run."""
    try:
        sg.compile(sg.Stencil.from_weights(weights), (128, 128), steps=steps, schedule=line)
    except sg.ScheduleError as e:
        pytest.skip(e.message)


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("line", LINES)
def test_every_schedule_and_boundary(line: str, sides: str) -> None:
    fits(line)
    st = sg.Stencil.from_weights(BOX, boundary=SIDES[sides])
    for shape in ((64, 128), (131, 77)):
        u = np.random.default_rng(1).random(shape)
        k = sg.compile(st, shape, steps=7, backend="cuda", schedule=line)
        assert k.backend == "cuda" and off(k(u), reference(st, u, 7)) <= 1e-12
        assert k.resources().spills == 0


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize(
    "line", ["fuse=12", "fuse=5 tile=64x32 stages=2", "mma=f64.m8n8k4 fuse=2 tile=32x64", "mma=f64.m16n8k8 fuse=7"]
)
def test_products_of_a_column_and_a_row(line: str, sides: str) -> None:
    fits(f"lowrank {line}", PRODUCT, 25)
    st = sg.Stencil.from_weights(PRODUCT, boundary=SIDES[sides])
    for shape in ((64, 128), (131, 77)):
        u = np.random.default_rng(1).random(shape)
        k = sg.compile(st, shape, steps=25, backend="cuda", schedule=f"lowrank {line}")
        assert off(k(u), reference(st, u, 25)) <= 1e-12
        assert k.resources().spills == 0


@pytest.mark.parametrize("sides", ["periodic", "mixed"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(
    "line",
    ["direct", "tiled stages=2 tile=32x128", "tiled fuse=3", "stream cols=8 levels=1", "stream cols=16 levels=3"],
)
def test_sixteen_bits(line: str, dtype: str, sides: str) -> None:
    """Sums in f32, rounded once a pass: a step may differ by a rounding only (the GPU's fma has one less)."""
    st = sg.Stencil.from_weights(BOX, boundary=SIDES[sides], dtype=dtype)
    for shape in ((64, 512), (131, 77)):
        k = sg.compile(st, shape, steps=6, backend="cuda", schedule=line)
        u = np.random.default_rng(1).random(shape).astype(k.dtype)
        want = u
        for _ in range(6 // k.schedule.steps):
            want = expected(st, want, k.schedule.steps)
        got = k(u)
        assert got.dtype == k.dtype and k.resources().spills == 0
        assert off(got.astype("f8"), want.astype("f8")) <= 6 / k.schedule.steps * TOLERANCE[dtype]


@pytest.mark.parametrize(("dtype", "axes"), [("f16", 1), ("bf16", 1), ("f16", 3), ("bf16", 3)])
def test_sixteen_bits_of_other_ranks_on_torch_tensors(launcher: str, dtype: str, axes: int) -> None:
    torch = pytest.importorskip("torch")
    st = sg.Stencil.from_weights(np.full((3,) * axes, 3.0**-axes), boundary=sg.dirichlet(0.5), dtype=dtype)
    shape = {1: (100_003,), 3: (17, 33, 80)}[axes]
    k = sg.compile(st, shape, backend="cuda")
    u = torch.rand(shape, device="cuda").to({"f16": torch.float16, "bf16": torch.bfloat16}[dtype])
    got = k(u)
    assert got.dtype == u.dtype and got.device == u.device
    want = expected(st, u.cpu().float().numpy().astype(k.dtype), 1)
    assert off(got.cpu().double().numpy(), want.astype("f8")) <= TOLERANCE[dtype]


def test_host_arrays(launcher: str) -> None:
    st = sg.Stencil.from_weights(BOX)
    k = sg.compile(st, (100, 60), steps=5, backend="cuda")
    u = np.random.default_rng(2).random((100, 60))
    before, out = u.copy(), np.full_like(u, np.nan)
    assert k(u, out=out) is out and np.array_equal(u, before)
    assert off(out, reference(st, u, 5)) <= 1e-12 and np.array_equal(k(u), out)


def test_torch_tensors(launcher: str) -> None:
    torch = pytest.importorskip("torch")
    st = sg.Stencil.from_weights(BOX, boundary=sg.neumann)
    k = sg.compile(st, (100, 64), steps=5, backend="cuda")
    host = np.random.default_rng(2).random((100, 64))
    u = torch.tensor(host, device="cuda")
    want = reference(st, host, 5)
    got = k(u)
    assert got.device == u.device and got.dtype == u.dtype and got.data_ptr() != u.data_ptr()
    assert off(got.cpu().numpy(), want) <= 1e-12 and np.array_equal(u.cpu().numpy(), host)
    out = torch.empty_like(u)
    k(u, out=out)
    assert torch.equal(out, got)
    assert off(k(torch.tensor(host)).numpy(), want) <= 1e-12  # a host tensor goes in and out


def test_cupy_arrays(launcher: str) -> None:
    cupy = pytest.importorskip("cupy")
    st = sg.Stencil.from_weights(BOX)
    k = sg.compile(st, (64, 64), steps=3, backend="cuda")
    u = cupy.random.random((64, 64))
    got = k(u)
    assert isinstance(got, cupy.ndarray) and off(got.get(), reference(st, u.get(), 3)) <= 1e-12


def test_streams_of_torch() -> None:
    torch = pytest.importorskip("torch")
    if "driver" not in available_kinds():
        pytest.skip("foreign streams need cuda-bindings")
    st = sg.Stencil.from_weights(BOX)
    k = sg.compile(st, (512, 512), steps=20, backend="cuda")
    host = np.random.default_rng(2).random((512, 512))
    want = reference(st, host, 20)
    side = torch.cuda.Stream()
    u = torch.tensor(host, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        inside = k(u)
    given = torch.empty_like(u)
    k(u, out=given, stream=side)
    k(u, out=torch.empty_like(u), stream=side.cuda_stream)
    side.synchronize()
    assert off(inside.cpu().numpy(), want) <= 1e-12 and off(given.cpu().numpy(), want) <= 1e-12


@pytest.mark.parametrize("steps", [1, 2, 7, 8, 9, 64, 65, 130, 137])
def test_time_loops_with_and_without_a_graph(launcher: str, steps: int) -> None:
    """Small fields go through a graph (driver only); new arrays and a changed number of steps are followed."""
    st = sg.Stencil.from_weights(BOX)
    k = sg.compile(st, (32, 48), steps=137, backend="cuda", schedule="tiled fuse=2 stages=2")
    for seed in range(3):
        u = np.random.default_rng(seed).random((32, 48))
        assert off(k(u, steps=steps), reference(st, u, steps)) <= 1e-12


def test_threads(launcher: str) -> None:
    st = sg.Stencil.from_weights(BOX)
    k = sg.compile(st, (96, 96), steps=40, backend="cuda")
    fields = [np.random.default_rng(i).random((96, 96)) for i in range(8)]
    got: list[Any] = [None] * 8

    def work(i: int) -> None:
        for _ in range(5):
            got[i] = k(fields[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for u, v in zip(fields, got, strict=True):
        assert v is not None and off(v, reference(st, u, 40)) <= 1e-12


def test_refused_before_anything_is_written() -> None:
    torch = pytest.importorskip("torch")
    k = sg.compile(sg.Stencil.from_weights(BOX), (64, 64), backend="cuda", schedule="stencil2row stages=2")
    u = torch.rand((64, 64), dtype=torch.float64, device="cuda")
    out = torch.full_like(u, 7.0)
    flat = torch.rand(64 * 64 + 1, dtype=torch.float64, device="cuda")
    for bad, says in (
        (u.cpu(), "u is on the host and out on cuda:0"),
        (u.float(), "u has dtype float32"),
        (u.t(), "u has strides"),
        (u[:32], "u has shape"),
        (out, "out shares memory with u"),
        (flat[1:].reshape(64, 64), "moves 16 bytes at once"),
        (flat[:127].as_strided((64, 64), (1, 1)), "u has strides"),
    ):
        with pytest.raises(sg.ArrayError, match=says):
            k(bad, out=out)
    assert torch.all(out == 7.0)


@pytest.mark.parametrize("steps", [1, 2, 3, 20])
@pytest.mark.parametrize("line", ["direct", "tiled stages=2", "stencil2row mma=f64.m8n8k4 stages=2"])
def test_odd_rows_and_rows_with_a_pitch(launcher: str, line: str, steps: int) -> None:
    """The workspace's padded rows (20 steps: in a graph), and views of wider tensors; nothing is written beside out."""
    torch = pytest.importorskip("torch")
    fits(line)
    for sides in ("periodic", "mixed"):
        st = sg.Stencil.from_weights(BOX, boundary=SIDES[sides])
        k = sg.compile(st, (67, 101), steps=steps, backend="cuda", schedule=line)
        host = np.random.default_rng(4).random((67, 101))
        want = reference(st, host, steps)
        assert off(k(host), want) <= 1e-12
        u = torch.tensor(host, device="cuda")
        assert off(k(u).cpu().numpy(), want) <= 1e-12
        for width, start in ((128, 0), (128, 16), (103, 0)):
            if start + 101 > width:
                continue
            wide = torch.full((67, width), float("nan"), dtype=torch.float64, device="cuda")
            wide[:, start : start + 101] = u
            around = torch.full((67, 160), 7.0, dtype=torch.float64, device="cuda")
            out = around[:, 32:133]
            k(wide[:, start : start + 101], out=out)
            assert off(out.cpu().numpy(), want) <= 1e-12
            assert torch.all(around[:, :32] == 7.0) and torch.all(around[:, 133:] == 7.0)


def test_the_short_way_follows_what_changes() -> None:
    """Calls after the first skip most checks: other arrays, streams and layouts must be noticed all the same."""
    torch = pytest.importorskip("torch")
    st = sg.Stencil.from_weights(BOX)
    k = sg.compile(st, (64, 64), backend="cuda", schedule="tiled stages=2")
    u, v, w = (torch.rand((64, 64), dtype=torch.float64, device="cuda") for _ in range(3))
    for _ in range(2):
        for a, b in ((u, v), (v, w), (w, u)):
            before = a.clone()
            k(a, out=b)
            assert torch.equal(a, before) and off(b.cpu().numpy(), reference(st, a.cpu().numpy(), 1)) <= 1e-12
    assert k._fast is not None
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        u.fill_(1.0)
        k(u, out=v)
    side.synchronize()
    assert off(v.cpu().numpy(), np.full((64, 64), BOX.sum())) <= 1e-12
    for bad, says in ((u, "shares memory"), (u.t(), "strides"), (u.cpu(), "host"), (u.float(), "float32")):
        with pytest.raises(sg.ArrayError, match=says):
            k(bad, out=u)
    u.requires_grad_()
    with pytest.raises(sg.ArrayError, match="requires grad"):
        k(u, out=v)


@pytest.mark.alone
def test_a_call_is_cheap() -> None:
    """k(u, out=o), one step, 64x64 torch tensors: a median of at most 15 µs of host time over 10,000 calls."""
    torch = pytest.importorskip("torch")
    k = sg.compile(sg.Stencil.from_weights(BOX), (64, 64), backend="cuda")
    u = torch.rand((64, 64), dtype=torch.float64, device="cuda")
    out = torch.empty_like(u)
    for _ in range(100):
        k(u, out=out)
    torch.cuda.synchronize()
    times = []
    for i in range(10_000):
        start = time.perf_counter_ns()
        k(u, out=out)
        times.append(time.perf_counter_ns() - start)
        if i % 500 == 0:
            torch.cuda.synchronize()  # or the queue of launches fills up and calls wait for the device
    print(f"a call: {statistics.median(times) / 1e3:.2f} us")
    assert statistics.median(times) <= 15_000, f"median {statistics.median(times) / 1e3:.1f} µs"


def test_bench_has_a_share_of_the_bound() -> None:
    k = sg.compile(sg.Stencil.from_weights(BOX), (4096, 4096), steps=4, backend="cuda")
    r = k.bench(repeats=5)
    assert len(r.times) == 5 and r.fraction is not None and 0.02 < r.fraction < 3.0
    assert "device time between events" in str(r) and r.rate > 1.0


def test_a_large_odd_field_against_slices_of_the_reference() -> None:
    """10007 x 9999, three steps: rows near the borders and in the middle, each by the reference from a band."""
    free, _ = open_gpu(0).memory()
    shape, steps = (10007, 9999), 3
    if free < 4 * 8 * shape[0] * shape[1]:
        pytest.skip("not enough device memory")
    st = sg.Stencil.from_weights(BOX, boundary={0: sg.dirichlet(0.5), 1: sg.periodic})
    u = np.random.default_rng(9).random(shape)
    got = sg.compile(st, shape, steps=steps, backend="cuda")(u)
    for top in (0, 1, 4999, shape[0] - 60, shape[0] - 40):
        low, high = max(0, top - steps), min(shape[0], top + 40 + steps)
        band = reference(st, np.ascontiguousarray(u[low:high]), steps)
        first = 0 if low == 0 else steps
        last = high - low if high == shape[0] else high - low - steps
        assert off(got[low + first : low + last], band[first:last]) <= 1e-12
