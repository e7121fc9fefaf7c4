"""``k.bench()`` of sparse products: how long a call takes, next to what the cost model says."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.arrays import ArrayView, describe, empty_like, host_array, launch_stream
from sparsegen.ir.errors import ArrayError
from sparsegen.measure import BenchResult
from sparsegen.products.arguments import order, variant
from sparsegen.products.host import flat, random_arrays
from sparsegen.products.pipelines import IN, OUT
from sparsegen.products.schedule import DENSE

if TYPE_CHECKING:
    from sparsegen.products.kernel import SpmmKernel


@dataclass(frozen=True)
class SpmmBench(BenchResult):
    """Times of single products in seconds; ``shape`` is M, K, n, ``nbytes`` what W's format, x and y take."""

    nbytes: int = 0

    @property
    def rate(self) -> float:
        """TFLOP/s, operations with zeros included."""
        return 2.0 * float(np.prod(self.shape)) / self.median / 1e12

    @property
    def bandwidth(self) -> float:
        """Bytes a second of W's format, x and y."""
        return self.nbytes / self.median

    def __str__(self) -> str:
        from sparsegen.explain import seconds

        text = (
            f"{'x'.join(map(str, self.shape))}: {seconds(self.median)} (median of {len(self.times)}, spread "
            f"{self.spread:.1%}), {self.bandwidth / 1e12:.3g} TB/s; {self.what}"
        )
        if self.fraction is not None:
            return f"{text}; {self.fraction:.0%} of the model's bound for {self.device}"
        return text if self.model is None else f"{text}; the model predicts {seconds(self.model)} on {self.device}"


def bench(kernel: SpmmKernel, x: ArrayView | None, repeats: int) -> SpmmBench:
    """Time ``repeats`` calls of ``kernel`` after a warm-up."""
    if kernel.backend != "cuda":
        times, what = _on_host(kernel, x, repeats), f"wall time of the host on the {kernel.backend}, not a GPU's"
    else:
        device_array = x is not None and x.layout.device_index is not None
        times = _device_array(kernel, x, repeats) if x and device_array else _on_device(kernel, x, repeats)
        what = "device time between events, warm cache"
        kernel.measured = median(times)
    m, k, n = kernel.shape
    size = kernel.dtype.itemsize
    matrix = m * k * size if kernel.schedule == DENSE else kernel.product.w.nbytes
    return SpmmBench(
        kernel.backend, kernel.device.name, kernel.shape, 1, tuple(times), what,
        None if kernel.backend == "reference" else kernel.cost.time, matrix + (k + m) * n * size,
    )  # fmt: skip


def _arrays(kernel: SpmmKernel, x: ArrayView | None) -> dict[str, Any]:
    made = random_arrays(kernel.product)
    return made if x is None else {**made, IN: host_array(x)}


def _on_host(kernel: SpmmKernel, x: ArrayView | None, repeats: int) -> list[float]:
    arrays = _arrays(kernel, x)
    field, out = arrays.pop(IN), arrays.pop(OUT)
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        kernel(field, out, **arrays)
        times.append(time.perf_counter() - start)
    return times


def _timed(timer: Any, run: Callable[[], None], repeats: int, stream: int | None) -> list[float]:
    run()  # loads the code
    times: list[float] = []
    for _ in range(repeats):
        timer.start(stream)
        run()
        timer.stop(stream)
        times.append(timer.seconds())
    return times


def _on_device(kernel: SpmmKernel, x: ArrayView | None, repeats: int) -> list[float]:
    if kernel.schedule == DENSE:
        raise ArrayError("a dense product is timed with its library", hint="pass x, a torch or CuPy array on a GPU")
    arrays = _arrays(kernel, x)
    executor = kernel._executor(kernel._target.gpu or 0, None)
    program = kernel._programs.get(variant(describe(arrays[IN]), describe(arrays[OUT]), anywhere=True))
    runtime, memory = executor.runtime, dict[str, int]()
    try:
        for role, a in arrays.items():
            memory[role] = runtime.alloc(a.nbytes)
            runtime.to_device(memory[role], flat(a))
        return _timed(runtime.timer(), lambda: executor.run_product(program, memory, None, None), repeats, None)
    finally:
        runtime.synchronize()
        for pointer in memory.values():
            runtime.free(pointer)


def _device_array(kernel: SpmmKernel, x: ArrayView, repeats: int) -> list[float]:
    from sparsegen.backends.cuda.runtime import open_runtime
    from sparsegen.execute_cuda import executor_kind

    m, _, n = kernel.shape
    extra = {name: empty_like(x, (m,)) for name in kernel.product.epilogue.operands if name != "residual"}
    if kernel.product.epilogue.residual:
        extra["residual"] = empty_like(x, (n, m)).T if order(x.layout) == "column" else empty_like(x, (m, n))
    for a in extra.values():
        a[...] = 1
    device, stream = x.layout.device_index or 0, launch_stream(x)
    timer = open_runtime(device, executor_kind(device, stream)).timer()
    out = kernel(x.owner, **extra)

    def run() -> None:
        kernel(x.owner, out, **extra)

    return _timed(timer, run, repeats, stream)
