"""``k.bench()`` of general updates: as for stencils, with an array for each input and result."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from sparsegen.arrays import ArrayView, describe, empty_like, launch_stream
from sparsegen.measure import BenchResult, result
from sparsegen.updates.host import random_arrays
from sparsegen.updates.plan import outputs

if TYPE_CHECKING:
    from sparsegen.updates.kernel import UpdateKernel


def bench(kernel: UpdateKernel, given: dict[str, ArrayView] | None, repeats: int, steps: int) -> BenchResult:
    """Time ``repeats`` calls of ``kernel`` after a warm-up."""
    if given is None:
        arrays = random_arrays(kernel.update, kernel.shape, kernel.dtype)
        given = {name: describe(a) for name, a in arrays.items()}
    first = next(iter(given.values()))
    if kernel.backend != "cuda":
        times = _on_host(kernel, given, repeats, steps)
    elif first.layout.device_index is None:
        times = _on_device(kernel, given, repeats, steps)
    else:
        times = _device_arrays(kernel, given, repeats, steps)
    return result(kernel, times, steps, kernel.cost.time * steps)


def _on_host(kernel: UpdateKernel, given: dict[str, ArrayView], repeats: int, steps: int) -> list[float]:
    results = {name: describe(np.empty(kernel.shape, kernel.dtype)) for name in outputs(kernel.update)}
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        kernel._on_host(given, results, steps, None)
        times.append(time.perf_counter() - start)
    return times


def _on_device(kernel: UpdateKernel, given: dict[str, ArrayView], repeats: int, steps: int) -> list[float]:
    executor, plan = kernel._executor(kernel._target.gpu or 0, None), kernel._plan(steps)
    runtime, memory = executor.runtime, dict[str, int]()
    nbytes = int(np.prod(kernel.shape)) * kernel.dtype.itemsize
    try:
        for name, view in given.items():
            memory[name] = runtime.alloc(nbytes)
            runtime.to_device(memory[name], np.ascontiguousarray(view.owner))
        for name in outputs(kernel.update):
            memory[name] = runtime.alloc(nbytes)
        executor.run_update(plan, memory, None, None)  # loads the code, builds the graph
        runtime.synchronize()
        timer, times = runtime.timer(), list[float]()
        for _ in range(repeats):
            timer.start()
            executor.run_update(plan, memory, None, None)
            timer.stop()
            times.append(timer.seconds())
        return times
    finally:
        runtime.synchronize()
        for pointer in memory.values():
            runtime.free(pointer)


def _device_arrays(kernel: UpdateKernel, given: dict[str, ArrayView], repeats: int, steps: int) -> list[float]:
    first = next(iter(given.values()))
    views = {**given, **{name: describe(empty_like(first)) for name in outputs(kernel.update)}}
    stream, plan = launch_stream(first), kernel._device_plan(views, steps)
    executor = kernel._executor(first.layout.device_index or 0, stream)
    addresses = {name: view.pointer for name, view in views.items()}
    timer, times = executor.runtime.timer(), list[float]()
    executor.run_update(plan, addresses, stream, first)
    for _ in range(repeats):
        timer.start(stream)
        executor.run_update(plan, addresses, stream, first)
        timer.stop(stream)
        times.append(timer.seconds())
    return times
