"""``k.bench()``: how long a call takes, honestly labelled, next to what the cost model says is possible."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.arrays import describe, empty_like, host_array, launch_stream
from sparsegen.cost.total import total_time
from sparsegen.execute_cuda import Space

if TYPE_CHECKING:
    from sparsegen.arrays import ArrayView
    from sparsegen.backends.cuda.runtime import Runtime, Timer
    from sparsegen.execute_cuda import CudaExecutor
    from sparsegen.kernel import Kernel
    from sparsegen.updates.kernel import UpdateKernel

#: Starts the work of one call; asynchronous.
Call = Callable[[], None]


@dataclass(frozen=True)
class BenchResult:
    """Times of ``steps`` time steps in seconds, each repeat's in ``times``.

    ``what`` says what was timed: device time between events, or wall time of the host.  ``model`` is the cost model's
    prediction for the same call on the kernel's device (None for the reference).
    """

    backend: str
    device: str
    shape: tuple[int, ...]
    steps: int
    times: tuple[float, ...]
    what: str
    model: float | None

    @property
    def median(self) -> float:
        """The median time in seconds."""
        return median(self.times)

    @property
    def spread(self) -> float:
        """Distance of the quartiles over the median; 0 for a single repeat."""
        return spread(self.times)

    @property
    def rate(self) -> float:
        """GS/s: cells x time steps a second, in 1e9."""
        return float(np.prod(self.shape)) * self.steps / self.median / 1e9

    @property
    def fraction(self) -> float | None:
        """Share of the model's bound that was reached: predicted over measured time.  None unless run on the device."""
        return self.model / self.median if self.model is not None and self.backend == "cuda" else None

    def __str__(self) -> str:
        from sparsegen.explain import seconds

        size = "x".join(map(str, self.shape))
        text = (
            f"{size}, {self.steps} step{'s' * (self.steps > 1)}: {seconds(self.median)} "
            f"(median of {len(self.times)}, spread {self.spread:.1%}), {self.rate:.4g} GS/s; {self.what}"
        )
        if self.fraction is not None:
            return f"{text}; {self.fraction:.0%} of the model's bound for {self.device}"
        if self.model is not None:
            return f"{text}; the model predicts {seconds(self.model)} on {self.device}"
        return text


def bench(kernel: Kernel, u: ArrayView | None, repeats: int, steps: int) -> BenchResult:
    """Time ``repeats`` calls of ``kernel`` after a warm-up."""
    cuda = kernel.backend == "cuda"
    times = _on_device(kernel, u, repeats, steps) if cuda else _on_host(kernel, u, repeats, steps)
    return result(kernel, times, steps, total_time(kernel.cost, steps))


@contextmanager
def staged(kernels: Sequence[Kernel], field: Any, steps: int) -> Iterator[tuple[Runtime, int, list[Call]]]:
    """The GPU's runtime, the address of the input, which holds ``field``, and a call of each kernel on it.

    Several kernels share a workspace too, so their calls must run on one stream.
    """
    executors = [k._executor(k._target.gpu or 0, None) for k in kernels]
    plans = [k._plan(steps) for k in kernels]
    with executors[0].fields(max(plans, key=lambda plan: plan.workspace_nbytes), field.nbytes) as (first, second):
        runtime = executors[0].runtime
        runtime.to_device(first, field)
        share(executors, [plan.workspaces for plan in plans])
        calls: list[Call] = [
            partial(e.run, plan, first, second, None, None) for e, plan in zip(executors, plans, strict=True)
        ]
        yield runtime, first, calls
        runtime.synchronize()


def share(executors: Sequence[CudaExecutor], needed: Sequence[Mapping[str, int]]) -> None:
    """Give several executors one workspace of the default stream that is large enough for each."""
    if len(executors) == 1:
        return
    roles = {role for sizes in needed for role in sizes}
    space = Space()
    space.provide(
        {r: max(sizes.get(r, 0) for sizes in needed) for r in sorted(roles)}, executors[0].runtime, None, None
    )
    for executor in executors:
        executor.share(space)


def spread(times: Sequence[float]) -> float:
    """Distance of the quartiles over the median; 0 for a single time."""
    if len(times) < 2:
        return 0.0
    low, _, high = quantiles(times, n=4, method="inclusive")
    return (high - low) / median(times)


def timed(timer: Timer, run: Call, repeats: int, stream: int | None = None) -> list[float]:
    """Seconds of each of ``repeats`` calls, after one that loads the code and builds the graph."""
    run()
    times: list[float] = []
    for _ in range(repeats):
        timer.start(stream)
        run()
        timer.stop(stream)
        times.append(timer.seconds())
    return times


def result(kernel: Kernel | UpdateKernel, times: list[float], steps: int, model: float) -> BenchResult:
    """What times of a kernel are called: what was timed, and ``model``, the prediction, where the kernel has one.

    A GPU's are kept by the kernel, if they are of as many steps as it was compiled for.
    """
    if kernel.backend == "cuda":
        what = "device time between events, warm cache"
        if steps == kernel.steps:
            kernel.measured = median(times)
    else:
        what = f"wall time of the host on the {kernel.backend}, not a GPU's"
    predicted = None if kernel.backend == "reference" else model
    return BenchResult(kernel.backend, kernel.device.name, kernel.shape, steps, tuple(times), what, predicted)


def _inputs(kernel: Kernel, repeat: int) -> Any:
    return np.random.default_rng(repeat).random(kernel.shape).astype(kernel.dtype)


def _on_host(kernel: Kernel, u: ArrayView | None, repeats: int, steps: int) -> list[float]:
    out = np.empty(kernel.shape, kernel.dtype)
    times = []
    for repeat in range(repeats):
        field = _inputs(kernel, repeat) if u is None else host_array(u)
        start = time.perf_counter()
        kernel(field, out=out, steps=steps)
        times.append(time.perf_counter() - start)
    return times


def _on_device(kernel: Kernel, u: ArrayView | None, repeats: int, steps: int) -> list[float]:
    if u is not None and u.layout.device_index is not None:
        return _device_array(kernel, u, repeats, steps)
    field = _inputs(kernel, 0) if u is None else host_array(u)
    with staged([kernel], field, steps) as (runtime, first, (run,)):
        run()  # loads the code, builds the graph
        runtime.synchronize()
        timer, times = runtime.timer(), []
        for repeat in range(repeats):
            if u is None and repeat:
                runtime.to_device(first, _inputs(kernel, repeat))
            timer.start()
            run()
            timer.stop()
            times.append(timer.seconds())
        return times


def _device_array(kernel: Kernel, u: ArrayView, repeats: int, steps: int) -> list[float]:
    out = describe(empty_like(u))
    stream = launch_stream(u)
    executor = kernel._executor(u.layout.device_index or 0, stream)
    plan = kernel._device_plan(u, out, steps)

    def run() -> None:
        executor.run(plan, u.pointer, out.pointer, stream, u)

    return timed(executor.runtime.timer(), run, repeats, stream)
