"""``k.bench()``: how long a call takes, honestly labelled, next to what the cost model says is possible."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.arrays import describe, empty_like, host_array, launch_stream
from sparsegen.compiler import total_time

if TYPE_CHECKING:
    from sparsegen.arrays import ArrayView
    from sparsegen.kernel import Kernel
    from sparsegen.updates.kernel import UpdateKernel


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
        if len(self.times) < 2:
            return 0.0
        low, _, high = quantiles(self.times, n=4, method="inclusive")
        return (high - low) / self.median

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
    executor = kernel._executor(kernel._target.gpu or 0, None)
    runtime, plan = executor.runtime, kernel._plan(steps)
    field = _inputs(kernel, 0) if u is None else host_array(u)
    with executor.fields(plan, field.nbytes) as (first, second):
        runtime.to_device(first, field)
        executor.run(plan, first, second, None, None)  # loads the code, builds the graph
        runtime.synchronize()
        timer, times = runtime.timer(), []
        for repeat in range(repeats):
            if u is None and repeat:
                runtime.to_device(first, _inputs(kernel, repeat))
            timer.start()
            executor.run(plan, first, second, None, None)
            timer.stop()
            times.append(timer.seconds())
        runtime.synchronize()
        return times


def _device_array(kernel: Kernel, u: ArrayView, repeats: int, steps: int) -> list[float]:
    out = describe(empty_like(u))
    stream = launch_stream(u)
    executor = kernel._executor(u.layout.device_index or 0, stream)
    plan, timer, times = kernel._device_plan(u, out, steps), executor.runtime.timer(), []
    executor.run(plan, u.pointer, out.pointer, stream, u)
    for _ in range(repeats):
        timer.start(stream)
        executor.run(plan, u.pointer, out.pointer, stream, u)
        timer.stop(stream)
        times.append(timer.seconds())
    return times
