"""The whole of a calibration: compile, wake the GPU, measure, judge the spreads, measure doubtful figures once more."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from typing import Final

from sparsegen.backends.cuda.runtime import DeviceInfo, Runtime
from sparsegen.ir.errors import DeviceError

from . import SECONDS
from .lab import Lab, compile_all, units
from .plan import CLOCK, Figure, Measured, plan

REPEATS: Final = 9
#: Seconds of work before the first figure: the clock needs a few tenths to rise from idle.
WAKE: Final = 0.5

_CAUSES: Final = (
    "another process on the GPU, or its power or temperature limit: see nvidia-smi and nvidia-smi -q -d PERFORMANCE, "
    "wait until the GPU is idle, and calibrate again"
)


@dataclass(frozen=True)
class Calibration:
    """Every figure by key; the clock in MHz before and after; how it was taken."""

    figures: dict[str, Measured]
    plan: tuple[Figure, ...]
    clocks: tuple[float, float]
    repeats: int
    seconds: float


def calibrate(
    runtime: Runtime, say: Callable[[str], object], *, seconds: float = SECONDS, repeats: int = REPEATS
) -> Calibration:
    """Measure the GPU of a runtime, which takes ``seconds`` of each figure; ``say`` gets a line after each step.

    A figure whose spread is too wide is measured once more.  DeviceError if figures stay too wide, or the clock falls.
    """
    gpu, start = runtime.info(), time.perf_counter()
    figures = plan(gpu, runtime.memory()[0])
    probes = [f.probe for f in figures]
    steps, total = count(1), len(units(probes)) + len(figures) + 2

    def done(what: str) -> None:
        say(f"[{next(steps)}/{total}] {what}")

    cubins = compile_all(probes, gpu.arch, done)
    flusher = next(f.probe for f in figures if f.key == "hbm_read_gbs")
    with closing(Lab(runtime, cubins, flusher, seconds / repeats)) as bench:
        bench.wake(figures[0].probe, WAKE)
        done("woken")
        found = {f.key: _figure(bench, f, repeats, done) for f in figures}
        last = Measured.of(bench.measure(figures[0], repeats))
        if fell(found["clock_mhz"].value, last.value):
            last = Measured.of(bench.measure(figures[0], repeats))
        done("clock again")
    clocks = (found["clock_mhz"].value, last.value)
    judge(gpu, figures, found, clocks)
    return Calibration(found, tuple(figures), clocks, repeats, time.perf_counter() - start)


def _figure(bench: Lab, figure: Figure, repeats: int, done: Callable[[str], None]) -> Measured:
    """A figure, measured twice if need be."""
    found = Measured.of(bench.measure(figure, repeats))
    if not found.spread <= figure.limit:
        found = Measured.of(bench.measure(figure, repeats))
    done(figure.key)
    return found


def fell(before: float, after: float) -> bool:
    """Whether the clock is lower than it was by more than it varies."""
    return not after >= (1 - CLOCK) * before


def judge(gpu: DeviceInfo, figures: list[Figure], found: dict[str, Measured], clocks: tuple[float, float]) -> None:
    """DeviceError, with each figure that is too wide, or if the clock fell from the first figure to the last."""
    wide = [
        f"{f.key} {100 * found[f.key].spread:.1f} % (at most {100 * f.limit:g} %)"
        for f in figures
        if not found[f.key].spread <= f.limit  # so that a NaN is too wide
    ]
    if wide:
        raise DeviceError(
            f"the {gpu.name} is not at rest: repeats of a figure differ too much, twice measured: {', '.join(wide)}",
            hint=_CAUSES,
        )
    before, after = clocks
    if fell(before, after):
        raise DeviceError(
            f"the clock of the {gpu.name} fell from {before:.0f} to {after:.0f} MHz during the measurement: throttled",
            hint=_CAUSES,
        )
