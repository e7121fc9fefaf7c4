"""Candidates side by side on the GPU: compiled at the same time, then called in turn, so that no drift favours one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from sparsegen import measure
from sparsegen.ir.errors import SparsegenError
from sparsegen.kernel import Kernel

if TYPE_CHECKING:
    from sparsegen.pipelines import Program

#: Seconds that the calls of a turn should take together, as one call may be too short for an event; and calls at most.
_TURN, _CALLS = 1e-3, 100
#: Who takes so many times as long as the fastest in the first round has no other turns.
_HOPELESS = 1.5


@dataclass(eq=False)
class Entry:
    """A candidate: its schedule, what the model says of a call, and in time its kernel and times, or why not."""

    schedule: Any
    predicted: float
    kernel: Kernel | None = None
    times: list[float] = field(default_factory=list[float])
    error: SparsegenError | None = None

    @property
    def measured(self) -> float | None:
        """Median seconds of a call; None if it failed or was not called."""
        return median(self.times) if self.times and self.error is None else None

    @property
    def spread(self) -> float | None:
        """Distance of the quartiles over the median."""
        return measure.spread(self.times) if self.times and self.error is None else None

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """An error inside leaves the candidate out."""
        try:
            yield
        except SparsegenError as error:
            self.error = error


def build(entries: Sequence[Entry], make: Callable[[Any], Kernel]) -> None:
    """Lower every candidate, then compile all their programs at the same time."""
    for entry in entries:
        with entry.guarded():
            entry.kernel = make(entry.schedule)

    def compiled(task: tuple[Entry, Program]) -> None:
        entry, program = task
        with entry.guarded():
            assert entry.kernel is not None
            entry.kernel._builds.get(program).compiled()

    tasks = [
        (entry, program)
        for entry in entries
        if entry.kernel
        for program, _ in entry.kernel._plan(entry.kernel.steps).programs
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compiled, tasks))


def race(entries: Sequence[Entry], rounds: int) -> None:
    """Time every candidate that was built: in each round one after the other, and back in the next."""
    running = [entry for entry in entries if entry.kernel and entry.error is None]
    if not running:
        return
    kernels = [entry.kernel for entry in running if entry.kernel]
    with measure.staged(kernels, kernels[0]._calls.random(), kernels[0].steps) as (runtime, _, calls):
        timer, runs = runtime.timer(), dict(zip(running, calls, strict=True))
        many: dict[Entry, int] = {}
        for entry, call in runs.items():
            with entry.guarded():
                call()  # loads the code, builds the graph
                many[entry] = min(_CALLS, int(_TURN / max(measure.timed(timer, call, 1), 1e-9)) + 1)
        for turn in range(rounds):
            running = [entry for entry in running if entry.error is None]
            if turn == 1:
                fastest = min((entry.times[0] for entry in running), default=0.0)
                running = [entry for entry in running if entry.times[0] < _HOPELESS * fastest]
            for entry in running if turn % 2 == 0 else reversed(running):
                with entry.guarded():
                    entry.times.append(measure.timed(timer, runs[entry], many[entry]))
