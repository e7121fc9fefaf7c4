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
import numpy.typing as npt

from sparsegen.arrays import describe, host_array, launch_stream
from sparsegen.backends.cuda.runtime import Runtime, Timer, open_runtime
from sparsegen.explain.units import seconds
from sparsegen.ir.errors import ArrayError
from sparsegen.run.cuda import executor_kind
from sparsegen.run.host import flat
from sparsegen.run.workspace import Space
from sparsegen.views import ArrayView

if TYPE_CHECKING:
    from sparsegen.kernel import Kernel

#: Starts the work of one call; asynchronous.
Call = Callable[[], None]


@dataclass(frozen=True)
class BenchResult:
    """Times of ``steps`` time steps in seconds, each repeat's in ``times``; ``shape`` has the items of a batch first.

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

    @property
    def _figures(self) -> tuple[str, str]:
        """What follows the shape in the text, and the rate."""
        return f", {self.steps} step{'s' * (self.steps > 1)}", f"{self.rate:.4g} GS/s"

    def __str__(self) -> str:
        of, rate = self._figures
        text = (
            f"{'x'.join(map(str, self.shape))}{of}: {seconds(self.median)} "
            f"(median of {len(self.times)}, spread {self.spread:.1%}), {rate}; {self.what}"
        )
        if self.fraction is not None:
            return f"{text}; {self.fraction:.0%} of the model's bound for {self.device}"
        if self.model is not None:
            return f"{text}; the model predicts {seconds(self.model)} on {self.device}"
        return text


@dataclass(frozen=True)
class SpmmBench(BenchResult):
    """Times of single products in seconds; ``shape`` is M, K, n, ``nbytes`` what the matrices take."""

    nbytes: int = 0

    @property
    def rate(self) -> float:
        """TFLOP/s, operations with zeros included."""
        return 2.0 * float(np.prod(self.shape)) / self.median / 1e12

    @property
    def bandwidth(self) -> float:
        """Bytes a second of the matrices."""
        return self.nbytes / self.median

    @property
    def _figures(self) -> tuple[str, str]:
        return "", f"{self.bandwidth / 1e12:.3g} TB/s"


def spread(times: Sequence[float]) -> float:
    """Distance of the quartiles over the median; 0 for a single time."""
    if len(times) < 2:
        return 0.0
    low, _, high = quantiles(times, n=4, method="inclusive")
    return (high - low) / median(times)


def bench(kernel: Kernel, given: Mapping[str, ArrayView] | None, repeats: int, steps: int) -> BenchResult:
    """Time ``repeats`` calls of ``kernel`` after a warm-up.

    A GPU's times are kept by the kernel, if they are of as many steps as it was compiled for.  Without ``given`` a
    stencil has new random input for each repeat.
    """
    cuda, op = kernel.backend == "cuda", kernel.problem.op
    fresh = given is None and op == "stencil"
    views = _views(kernel._calls.at(steps).random()) if given is None else dict(given)
    what = "device time between events, warm cache"
    if not cuda:
        times = _on_host(kernel, views, repeats, steps, fresh)
        what = f"wall time of the host on the {kernel.backend}, not a GPU's"
    elif next(iter(views.values())).layout.device_index is not None:
        times = _device_arrays(kernel, views, repeats, steps)
    else:
        times = _on_device(kernel, views, repeats, steps, fresh)
    if cuda and steps == kernel.steps:
        kernel.measured = median(times)
    model = None if kernel.backend == "reference" else kernel.problem.seconds(kernel.cost, steps)
    about = kernel.backend, kernel.device.name, kernel.problem.stacked, steps, tuple(times), what, model
    if kernel.problem.grid is not None:
        return BenchResult(*about)
    return SpmmBench(*about, kernel.problem.nbytes(kernel.schedule))


@contextmanager
def staged(
    kernels: Sequence[Kernel], given: Mapping[str, npt.NDArray[Any]], steps: int
) -> Iterator[tuple[Runtime, dict[str, int], list[Call]]]:
    """The GPU's runtime, the addresses of arrays, which hold ``given``, and a call of each kernel on them.

    Several kernels share a workspace too, so their calls must run on one stream.
    """
    (first, *_) = kernels
    if first.schedule.family == "dense":
        raise ArrayError("a dense product is timed with its library", hint="pass x, a torch or CuPy array on a GPU")
    executors = [k._executor(k._target.gpu or 0, None) for k in kernels]
    new = {name: np.empty(a.shape, a.dtype) for name, a in first._calls.at(steps).outputs.items()}
    variant = first._calls.variant(_views({**given, **new}), copied=True)
    plans = [k._plan(steps, variant) for k in kernels]
    sizes = {name: a.nbytes for name, a in {**given, **new}.items()}
    largest = max(plans, key=lambda plan: plan.workspace_nbytes)
    with executors[0].memory(sizes, largest, first._calls.labels) as where:
        runtime = executors[0].runtime
        for name, a in given.items():
            runtime.to_device(where[name], flat(a))
        spaces = [space for plan in plans for space in plan.workspaces.items()]
        if len(executors) > 1 and not any(s.counts for _, s in spaces):
            space = Space()
            needed = {name: max(s.nbytes for n, s in spaces if n == name) for name in sorted({n for n, _ in spaces})}
            space.provide(needed, runtime, None, None)
            for executor in executors:
                executor.share(space)
        yield runtime, where, [partial(e.run, p, where, None, None) for e, p in zip(executors, plans, strict=True)]
        runtime.synchronize()


def timed(timer: Timer, call: Callable[[], object], many: int = 1, stream: int | None = None) -> float:
    """Seconds of a call on the device, of ``many`` in a row."""
    timer.start(stream)
    for _ in range(many):
        call()
    timer.stop(stream)
    return timer.seconds() / many


def _views(arrays: Mapping[str, Any]) -> dict[str, ArrayView]:
    return {name: describe(a) for name, a in arrays.items()}


def _on_host(kernel: Kernel, views: Mapping[str, ArrayView], repeats: int, steps: int, fresh: bool) -> list[float]:
    calls = kernel._calls.at(steps)
    results = _views({name: np.empty(a.shape, a.dtype) for name, a in calls.outputs.items()})
    times: list[float] = []
    for repeat in range(repeats):
        if fresh and repeat:
            views = _views(calls.random(repeat))
        start = time.perf_counter()
        kernel._on_host(views, results, steps, None)
        times.append(time.perf_counter() - start)
    return times


def _on_device(kernel: Kernel, views: Mapping[str, ArrayView], repeats: int, steps: int, fresh: bool) -> list[float]:
    with staged([kernel], {n: host_array(v) for n, v in views.items()}, steps) as (runtime, where, (run,)):
        timer, times = runtime.timer(), list[float]()
        run()  # loads the code, builds the graph
        for repeat in range(repeats):
            if fresh and repeat:
                for name, a in kernel._calls.random(repeat).items():
                    runtime.to_device(where[name], a)
            times.append(timed(timer, run))
    return times


def _device_arrays(kernel: Kernel, views: Mapping[str, ArrayView], repeats: int, steps: int) -> list[float]:
    first = next(iter(views.values()))
    calls = kernel._calls.at(steps)
    results = calls.results(calls.new(views))
    device, stream = first.layout.device_index or 0, launch_stream(first)
    run = kernel._prepared({**views, **_views(results)}, steps)
    timer = open_runtime(device, executor_kind(device, stream)).timer()
    run()  # as above
    return [timed(timer, run, stream=stream) for _ in range(repeats)]
