"""The two ways to launch, on a real GPU: memory, arguments, streams, graphs, threads, foreign arrays, host time."""

from __future__ import annotations

import importlib
import itertools
import statistics
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sparsegen.arrays import Expect, check_together, describe, empty_like, launch_stream
from sparsegen.backends.cuda import driver
from sparsegen.backends.cuda.args import PackedArgs
from sparsegen.backends.cuda.cache import compile_cached
from sparsegen.backends.cuda.graph import GraphLaunch, TimeGraph
from sparsegen.backends.cuda.runtime import Launch, Runtime, available_kinds, open_runtime
from sparsegen.ir.errors import ArrayError, DeviceError, ToolchainError
from sparsegen.target import launcher, open_gpu

pytestmark = pytest.mark.gpu

SOURCE = """
struct Weights { double w[3]; };
extern "C" __global__ void axpy(const double* x, double* y, int n, const __grid_constant__ Weights p, float shift) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = p.w[0] * x[i] + p.w[1] + p.w[2] * shift;
}
extern "C" __global__ void mixed(unsigned a, double* out, unsigned long long b, float c, double d, long long e, int f) {
    out[0] = a; out[1] = (double)b; out[2] = c; out[3] = d; out[4] = (double)e; out[5] = f;
}
extern "C" __global__ void big_shared(double* out, int n) {
    extern __shared__ double s[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) { double t = 0; for (int i = 0; i < n; i++) t += s[i]; out[0] = t; }
}
extern "C" __global__ void increment(const double* x, double* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }
extern "C" __global__ void slow(double* y, long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
    y[0] += 1;
}
extern "C" __global__ void nothing() {}
"""
ONE = (1, 1, 1)


@pytest.fixture(params=["pycuda", "driver"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    package = {"pycuda": "pycuda", "driver": "cuda.bindings"}[request.param]
    pytest.importorskip(package)
    return open_runtime(0, request.param)


@pytest.fixture(scope="module")
def cubin() -> bytes:
    try:
        return compile_cached(SOURCE, open_gpu(0).info().arch).cubin
    except ToolchainError as e:
        pytest.skip(str(e))


@pytest.fixture
def buffer(runtime: Runtime) -> Iterator[int]:
    pointer = runtime.alloc(8 * 1024)
    yield pointer
    runtime.free(pointer)


def read(runtime: Runtime, pointer: int, count: int, stream: int | None = None) -> np.ndarray[Any, Any]:
    host = np.empty(count)
    runtime.to_host(host, pointer, stream)
    return host


def test_device(runtime: Runtime) -> None:
    info = runtime.info()
    assert info.name and info.sm_count > 0 and info.clock_hz > 1e8 and info.l2_bytes > 0
    assert 0 < info.shared_per_block <= info.shared_per_sm
    free, total = runtime.memory()
    assert 0 < free <= total
    assert info.memory_bytes > 1 << 30


def test_both_describe_the_same_device() -> None:
    pytest.importorskip("pycuda")
    pytest.importorskip("cuda.bindings")
    assert open_runtime(0, "pycuda").info() == open_runtime(0, "driver").info()


@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "bfloat16"])
def test_copies(runtime: Runtime, dtype: str) -> None:
    import ml_dtypes

    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    a = np.arange(60).reshape(5, 12).astype(kind)
    b = np.zeros_like(a)
    first, second = runtime.alloc(a.nbytes), runtime.alloc(a.nbytes)
    assert first % 256 == 0 and second % 256 == 0
    runtime.to_device(first, a)
    runtime.on_device(second, first, a.nbytes)
    runtime.to_host(b, second)
    assert np.array_equal(a, b)
    runtime.zero(second, a.nbytes)
    runtime.to_host(b, second)
    assert not b.astype("f8").any()
    with pytest.raises(DeviceError, match="not C-contiguous"):
        runtime.to_host(b.T, second)
    runtime.free(first)
    runtime.free(second)


def test_every_kind_of_argument(runtime: Runtime, cubin: bytes, buffer: int) -> None:
    fn = runtime.function(runtime.load(cubin), "mixed")
    values = [
        ("u32", 2**32 - 1),
        ("ptr", buffer),
        ("u64", 2**53),
        ("f32", 1.5),
        ("f64", 0.1),
        ("i64", -(2**40)),
        ("i32", -7),
    ]
    runtime.launch(fn, ONE, ONE, 0, PackedArgs(values))
    assert read(runtime, buffer, 6).tolist() == [2**32 - 1, 2**53, 1.5, 0.1, -(2**40), -7]


def test_struct_by_value(runtime: Runtime, cubin: bytes, buffer: int) -> None:
    fn = runtime.function(runtime.load(cubin), "axpy")
    target = runtime.alloc(8 * 1024)
    x = np.arange(1000.0)
    runtime.to_device(buffer, x)
    weights = struct.pack("3d", 2.0, 0.5, 10.0)
    args = PackedArgs([("ptr", buffer), ("ptr", target), ("i32", 1000), ("bytes", weights), ("f32", 0.25)])
    runtime.launch(fn, (4, 1, 1), (256, 1, 1), 0, args)
    assert np.array_equal(read(runtime, target, 1000), 2 * x + 3)
    runtime.free(target)


def test_no_arguments(runtime: Runtime, cubin: bytes) -> None:
    fn = runtime.function(runtime.load(cubin), "nothing")
    runtime.launch(fn, ONE, ONE, 0, PackedArgs([]))
    runtime.synchronize()


def test_all_of_shared_memory(runtime: Runtime, cubin: bytes, buffer: int) -> None:
    nbytes = runtime.info().shared_per_block
    module = runtime.load(cubin)
    n = nbytes // 8
    args = PackedArgs([("ptr", buffer), ("i32", n)])
    runtime.launch(runtime.function(module, "big_shared", nbytes), ONE, (128, 1, 1), nbytes, args)
    assert read(runtime, buffer, 1)[0] == n * (n - 1) / 2
    with pytest.raises(DeviceError):
        runtime.function(module, "big_shared", nbytes + 1024)


def test_prepared_launches_take_new_pointers(runtime: Runtime, cubin: bytes) -> None:
    fn = runtime.function(runtime.load(cubin), "increment")
    run = runtime.prepare(fn, ONE, (32, 1, 1), 0, PackedArgs([("ptr", 0), ("ptr", 0)]))
    a, b = runtime.alloc(256), runtime.alloc(256)
    runtime.zero(a, 256)
    for step in range(7):
        run((a, b) if step % 2 == 0 else (b, a))
    assert read(runtime, b, 32).tolist() == [7.0] * 32
    runtime.free(a)
    runtime.free(b)


def test_own_stream_and_timer(runtime: Runtime, cubin: bytes, buffer: int) -> None:
    stream = runtime.new_stream()
    assert runtime.owns_stream(stream) and runtime.owns_stream(None)
    fn = runtime.function(runtime.load(cubin), "slow")
    runtime.zero(buffer, 8, stream)
    timer = runtime.timer()
    timer.start(stream)
    runtime.launch(fn, ONE, ONE, 0, PackedArgs([("ptr", buffer), ("i64", 20_000_000)]), stream)
    timer.stop(stream)
    assert 0.005 < timer.seconds() < 0.5
    assert read(runtime, buffer, 1, stream)[0] == 1


def test_errors(runtime: Runtime, cubin: bytes) -> None:
    module = runtime.load(cubin)
    with pytest.raises(DeviceError, match=r"NOT_FOUND|not found"):
        runtime.function(module, "absent")
    with pytest.raises(DeviceError) as e:
        runtime.load(b"this is no cubin")
    assert e.value.hint
    with pytest.raises(DeviceError, match="cuLaunchKernel"):
        runtime.launch(runtime.function(module, "nothing"), ONE, (2048, 1, 1), 0, PackedArgs([]))
    with pytest.raises(DeviceError, match="OUT_OF_MEMORY"):
        runtime.alloc(1 << 46)
    with pytest.raises(DeviceError, match="is not there"):
        open_runtime(99, runtime.name)
    runtime.synchronize()


def test_pycuda_refuses_foreign_streams(cubin: bytes) -> None:
    pytest.importorskip("pycuda")
    pytest.importorskip("cuda.bindings")
    foreign = open_runtime(0, "driver").new_stream()
    with pytest.raises(DeviceError, match="another library"):
        open_runtime(0, "pycuda").synchronize(foreign)


def test_modules_and_memory_of_other_threads(runtime: Runtime, cubin: bytes) -> None:
    """Made on one thread, used on others, freed on a third; nothing leaks, and no context is left behind."""
    made: list[Any] = []
    failures: list[BaseException] = []

    def guarded(work: Any) -> threading.Thread:
        def body() -> None:
            try:
                work()
            except BaseException as e:
                failures.append(e)

        thread = threading.Thread(target=body)
        thread.start()
        return thread

    def make() -> None:
        made.append(runtime.function(runtime.load(cubin), "increment"))
        made.extend(runtime.alloc(256) for _ in range(2))

    guarded(make).join()
    assert not failures, failures
    fn, a, b = made
    runtime.zero(a, 256)
    runtime.synchronize()
    run = runtime.prepare(fn, ONE, (32, 1, 1), 0, PackedArgs([("ptr", 0), ("ptr", 0)]))
    threads = [guarded(lambda: [run((a, b)) for _ in range(2000)] and None) for _ in range(4)]
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert read(runtime, b, 32).tolist() == [1.0] * 32
    big = runtime.alloc(1 << 30)
    before = runtime.memory()[0]
    guarded(lambda: runtime.free(big)).join()
    assert runtime.memory()[0] > before and not failures
    runtime.free(a)
    runtime.free(b)


def test_context_stack_is_as_before(runtime: Runtime) -> None:
    pytest.importorskip("cuda.bindings")
    cu = driver.bindings()

    def depth_and_current() -> int:
        return int(driver.call(cu.cuCtxGetCurrent))

    results: list[tuple[int, int]] = []

    def body() -> None:
        before = depth_and_current()
        runtime.free(runtime.alloc(256))
        runtime.synchronize()
        results.append((before, depth_and_current()))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert results == [(0, 0)]


# -------------------------------------------------------------------------------------------------------------- graphs


def chain(runtime: driver.DriverRuntime, cubin: bytes, steps: int) -> TimeGraph:
    """``steps`` increments: array 0 in, 1 out, 2 and 3 in turn between."""
    fn = runtime.function(runtime.load(cubin), "increment")
    args = PackedArgs([("ptr", 0), ("ptr", 0)])
    places = [0, *(2 + i % 2 for i in range(steps - 1)), 1]
    launches = [GraphLaunch(fn, ONE, (32, 1, 1), 0, args, (a, b)) for a, b in itertools.pairwise(places)]
    return TimeGraph(runtime, launches)


@pytest.mark.parametrize("steps", [1, 2, 3, 101])
def test_graph_follows_new_pointers(cubin: bytes, steps: int) -> None:
    pytest.importorskip("cuda.bindings")
    runtime = open_runtime(0, "driver")
    graph = chain(runtime, cubin, steps)
    places = [runtime.alloc(256) for _ in range(8)]
    stream = runtime.new_stream()
    if steps == 1:  # no workspace at all
        tables = [(places[0], places[1]), (places[4], places[5])]
    else:
        tables = [tuple(places[:4]), tuple(places[4:]), (places[0], places[7], places[2], places[3])]
        tables = [t[: graph.buffers] for t in tables]
    for round, table in enumerate([*tables, *tables]):
        runtime.to_device(table[0], np.full(32, float(round)), stream)
        graph.run(table, stream)
        assert read(runtime, table[1], 32, stream).tolist() == [round + steps] * 32
    with pytest.raises(DeviceError, match="addresses"):
        graph.run((1,))
    for place in places:
        runtime.free(place)


def test_updating_a_graph_does_not_disturb_a_running_one(cubin: bytes) -> None:
    pytest.importorskip("cuda.bindings")
    runtime = open_runtime(0, "driver")
    graph = chain(runtime, cubin, 50)
    stream = runtime.new_stream()
    places = [runtime.alloc(256) for _ in range(22)]
    for place in places:
        runtime.zero(place, 256, stream)
    for target in places[2:20]:
        graph.run((places[0], target, places[20], places[21]), stream)
    for target in places[2:20]:
        assert read(runtime, target, 32, stream)[0] == 50
    for place in places:
        runtime.free(place)


def test_the_driver_is_the_default() -> None:
    assert open_gpu(0).name == available_kinds()[0] == launcher()


# ------------------------------------------------------------------------------------------------------ foreign arrays


def increment_launch(cubin: bytes, runtime: Runtime) -> Launch:
    fn = runtime.function(runtime.load(cubin), "increment")
    return runtime.prepare(fn, ONE, (32, 1, 1), 0, PackedArgs([("ptr", 0), ("ptr", 0)]))


def make_array(library: str) -> tuple[Any, Any]:
    """A device array of 32 ones of that library, and a function that brings one to the host."""
    module = pytest.importorskip(library if library != "numba" else "numba.cuda")
    if library == "torch":
        return module.ones(32, dtype=module.float64, device="cuda"), lambda t: t.cpu().numpy()
    if library == "cupy":
        return module.ones(32), lambda a: a.get()
    if library == "numba":
        return module.to_device(np.ones(32)), lambda a: a.copy_to_host()
    pycuda_runtime = open_runtime(0, "pycuda")
    gpuarray = importlib.import_module("pycuda.gpuarray")
    with pycuda_runtime.current():
        made = gpuarray.to_gpu(np.ones(32))

    def bring(a: Any) -> Any:
        with pycuda_runtime.current():
            return a.get()

    return made, bring


@pytest.mark.parametrize("library", ["torch", "cupy", "numba", "pycuda"])
def test_arrays_of_other_libraries(library: str, cubin: bytes) -> None:
    u, bring = make_array(library)
    view = Expect("u", (32,), "f8")(u)
    out = empty_like(view)
    assert type(out) is type(u)
    target = Expect("out", (32,), "f8", writable=True)(out)
    assert (view.layout.library, view.layout.where()) == (library, "cuda:0")
    check_together([("u", view)], ("out", target))
    with pytest.raises(ArrayError, match="shares memory"):
        check_together([("u", view)], ("out", view))
    launch = increment_launch(cubin, open_gpu(0))
    for stream in (None, open_gpu(0).new_stream()):
        launch((view.pointer, target.pointer), launch_stream(view, stream))
        open_gpu(0).synchronize()
        assert bring(out).tolist() == [2.0] * 32


def test_current_streams_are_followed(cubin: bytes) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("cuda.bindings")
    u = torch.zeros(32, dtype=torch.float64, device="cuda")
    view = describe(u)
    side = torch.cuda.Stream()
    assert not launch_stream(view)
    with torch.cuda.stream(side):
        assert launch_stream(view) == side.cuda_stream
        torch.cuda._sleep(20_000_000)
        u.add_(5)
        out = empty_like(view)
        launch = increment_launch(cubin, open_runtime(0, "driver"))
        launch((view.pointer, describe(out).pointer), launch_stream(view))
        assert out.cpu().tolist() == [6.0] * 32
    assert launch_stream(view, side) == side.cuda_stream


def test_cupys_stream_is_followed() -> None:
    cupy = pytest.importorskip("cupy")
    u = cupy.zeros(32)
    assert not launch_stream(describe(u))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        assert launch_stream(describe(u)) == stream.ptr


def test_bfloat16_from_torch_and_cupy_half() -> None:
    torch = pytest.importorskip("torch")
    assert describe(torch.zeros(4, dtype=torch.bfloat16, device="cuda")).layout.dtype.name == "bfloat16"


def test_a_dangling_address_is_refused() -> None:
    pytest.importorskip("cuda.bindings")

    class Dangling:
        __cuda_array_interface__ = {"shape": (4,), "typestr": "<f8", "data": (0x1000, False), "version": 3}  # noqa: RUF012

    with pytest.raises(ArrayError, match="not device memory"):
        describe(Dangling())


# ----------------------------------------------------------------------------------------------------------- host time


def microseconds(work: Any, calls: int = 10_000) -> float:
    times = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) * 1e-3


@pytest.mark.alone
def test_host_time_of_a_launch(runtime: Runtime, cubin: bytes, record_property: Any) -> None:
    fn = runtime.function(runtime.load(cubin), "increment")
    run = runtime.prepare(fn, ONE, (32, 1, 1), 0, PackedArgs([("ptr", 0), ("ptr", 0)]))
    a, b = runtime.alloc(256), runtime.alloc(256)
    took = microseconds(lambda: run((a, b)))
    runtime.synchronize()
    record_property("launch_us", took)
    print(f"{runtime.name}: {took:.2f} us a prepared launch")
    assert took < 10
    runtime.free(a)
    runtime.free(b)
