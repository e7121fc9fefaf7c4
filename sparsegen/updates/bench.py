"""``k.bench()`` of general updates: as for stencils, with an array for each input and result."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sparsegen.arrays import ArrayView, describe, empty_like, launch_stream
from sparsegen.measure import BenchResult, Call, result, share, timed
from sparsegen.updates.host import random_arrays
from sparsegen.updates.plan import outputs

if TYPE_CHECKING:
    from sparsegen.backends.cuda.runtime import Runtime
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


@contextmanager
def staged(
    kernels: Sequence[UpdateKernel], given: Mapping[str, ArrayView], steps: int
) -> Iterator[tuple[Runtime, list[Call]]]:
    """The GPU's runtime, and a call of each kernel on copies of ``given``; as :func:`sparsegen.measure.staged`."""
    executors = [k._executor(k._target.gpu or 0, None) for k in kernels]
    plans = [k._plan(steps) for k in kernels]
    (kernel, *_), runtime, memory = kernels, executors[0].runtime, dict[str, int]()
    nbytes = int(np.prod(kernel.shape)) * kernel.dtype.itemsize
    try:
        for name, view in given.items():
            memory[name] = runtime.alloc(nbytes)
            runtime.to_device(memory[name], np.ascontiguousarray(view.owner))
        for name in outputs(kernel.update):
            memory[name] = runtime.alloc(nbytes)
        share(executors, [plan.workspaces for plan in plans])
        yield (
            runtime,
            [partial(e.run_update, plan, memory, None, None) for e, plan in zip(executors, plans, strict=True)],
        )
    finally:
        runtime.synchronize()
        for pointer in memory.values():
            runtime.free(pointer)


def _on_device(kernel: UpdateKernel, given: dict[str, ArrayView], repeats: int, steps: int) -> list[float]:
    with staged([kernel], given, steps) as (runtime, (run,)):
        return timed(runtime.timer(), run, repeats)


def _device_arrays(kernel: UpdateKernel, given: dict[str, ArrayView], repeats: int, steps: int) -> list[float]:
    first = next(iter(given.values()))
    views = {**given, **{name: describe(empty_like(first)) for name in outputs(kernel.update)}}
    stream, plan = launch_stream(first), kernel._device_plan(views, steps)
    executor = kernel._executor(first.layout.device_index or 0, stream)
    addresses = {name: view.pointer for name, view in views.items()}
    return timed(executor.runtime.timer(), lambda: executor.run_update(plan, addresses, stream, first), repeats, stream)
