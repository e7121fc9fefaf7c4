"""Runs micro-kernels on a GPU: compiles them side by side, binds their arguments, takes raw numbers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

import numpy as np

from sparsegen.backends.cuda.args import PackedArgs
from sparsegen.backends.cuda.args import Value as ArgValue
from sparsegen.backends.cuda.cache import compile_cached
from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.runtime import Runtime
from sparsegen.ir.module import Module
from sparsegen.ir.types import Buffer

from .plan import Figure, Sample
from .probe import MOST_ROUNDS, Probe

#: Kernels that one nvcc compiles: its start costs about as much as four of them.
UNIT = 4
#: Rounds of the launch from which the rounds of the others follow.
FIRST_ROUNDS = 16


def units(probes: Iterable[Probe]) -> list[list[Probe]]:
    """The kernels, each once, in groups for one nvcc."""
    each = list({p.name: p for p in probes}.values())
    return [each[i : i + UNIT] for i in range(0, len(each), UNIT)]


def compile_unit(unit: list[Probe], arch: str) -> bytes:
    """The cubin of a group of kernels."""
    funcs = tuple(p.func for p in unit)
    return compile_cached(translation_unit(Module("calibrate", funcs), title="sparsegen calibrate"), arch).cubin


def compile_all(probes: Iterable[Probe], arch: str, done: Callable[[str], None]) -> dict[str, bytes]:
    """The cubin of each kernel by name; as many compilers at a time as there are cores.  ``done`` after each group."""
    found: dict[str, bytes] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting = {pool.submit(compile_unit, unit, arch): unit for unit in units(probes)}
        for one in as_completed(waiting):
            found.update(dict.fromkeys((p.name for p in waiting[one]), one.result()))
            done(f"compiled {waiting[one][0].name}")
    return found


@dataclass
class Bound:
    """A kernel with its arguments, ``places`` those of numbers; ``launch()`` starts it with their present values."""

    probe: Probe
    args: PackedArgs
    places: dict[str, int]
    launch: Callable[[], None]
    cycles: int | None

    def put(self, **values: int) -> None:
        """Sets those of the values that the kernel has."""
        for name in values.keys() & self.places.keys():
            self.args.set(self.places[name], values[name])


class Lab:
    """A GPU with compiled micro-kernels.  ``seconds``: of one repeat.  ``flusher``: reads enough to empty L2."""

    def __init__(self, runtime: Runtime, cubins: dict[str, bytes], flusher: Probe, seconds: float) -> None:
        self.runtime, self.seconds = runtime, seconds
        self._modules = {cubin: runtime.load(cubin) for cubin in set(cubins.values())}
        self._cubins, self._flusher = cubins, flusher
        self._held: dict[tuple[str, int], int] = {}
        self._timer = runtime.timer()

    def close(self) -> None:
        """Gives all memory back."""
        self.runtime.synchronize()
        for pointer in self._held.values():
            self.runtime.free(pointer)
        self._held.clear()

    def _memory(self, buffer: Buffer) -> int:
        """Device memory for a parameter; those of one name and size share it."""
        key = (buffer.name, buffer.nbytes)
        if key not in self._held:
            self._held[key] = self.runtime.alloc(buffer.nbytes)
            self.runtime.zero(self._held[key], buffer.nbytes)
        return self._held[key]

    def bind(self, probe: Probe) -> Bound:
        """A kernel with memory for its buffers, filled, and all its values 0."""
        func, rt = probe.func, self.runtime
        values: list[tuple[str, ArgValue]] = []
        pointers: list[int] = []
        places: dict[str, int] = {}
        cycles = None
        for p in func.params:
            if isinstance(p, Buffer):
                pointers.append(self._memory(p))
                values.append(("ptr", pointers[-1]))
                if p.name in probe.fill:
                    rt.to_device(pointers[-1], probe.fill[p.name])
                cycles = pointers[-1] if p.name == "cycles" else cycles
            else:
                places[p.name] = len(values)
                values.append(("i32", 0))
        args = PackedArgs(values)
        kernel = rt.function(self._modules[self._cubins[probe.name]], probe.name, func.shared_bytes)
        start = rt.prepare(kernel, func.grid, (func.threads, 1, 1), func.shared_bytes, args)
        return Bound(probe, args, places, lambda: start(pointers), cycles)

    def run(self, bound: Bound, rounds: int) -> Sample:
        """One launch of so many rounds; where the kernel counts none, so many launches."""
        bound.put(rounds=rounds)
        launches = 1 if bound.probe.timed else rounds
        self.runtime.synchronize()
        begin = time.perf_counter()
        self._timer.start()
        for _ in range(launches):
            bound.launch()
        self._timer.stop()
        seconds = self._timer.seconds()
        host = time.perf_counter() - begin
        if bound.cycles is None:
            return Sample(rounds, 0.0, seconds, host)
        found = np.zeros(bound.probe.func.grid[0], np.uint64)
        self.runtime.to_host(found, bound.cycles)
        return Sample(rounds, float(np.median(found)), seconds, host)

    def fitting(self, bound: Bound) -> int:
        """How many rounds fill the time of a repeat."""
        first = FIRST_ROUNDS if bound.probe.timed else 1
        self.run(bound, first)  # the first launch of all loads the code
        took = self.run(bound, first).seconds / first
        return max(1, min(MOST_ROUNDS, int(self.seconds / took)))

    def measure(self, figure: Figure, repeats: int) -> list[float]:
        """The figure, so many times."""
        bound = self.bind(figure.probe)
        rounds = figure.rounds or self.fitting(bound)
        bound.put(warm=figure.warm)
        self.run(bound, rounds)  # once in advance: code and memory are where they will be
        values = []
        flush = self.bind(self._flusher) if figure.cold else None
        for _ in range(repeats):
            if flush is not None:
                self.run(flush, 1)
            values.append(figure.value(self.run(bound, rounds)))
        return values

    def wake(self, probe: Probe, seconds: float) -> None:
        """Works until the clock has risen from idle."""
        bound = self.bind(probe)
        rounds, end = self.fitting(bound), time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.run(bound, rounds)
