"""A GPU to measure on: fields with random numbers, caches that are made cold, the time of a call.

Times are between CUDA events on the default stream around a whole call on device arrays, so what a user waits for is
counted, launches included: as many calls as fit in the seconds that are asked for.  Where only the GPU's own time is
asked for (``Lab.undisturbed``), a brief call is timed as one of several in a CUDA graph.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir.errors import DeviceError
from sparsegen.measure import timed
from sparsegen.target import open_gpu

if TYPE_CHECKING:
    from sparsegen.backends.cuda.runtime import Runtime
    from sparsegen.bench.naive import Naive

#: Bytes that are read for a cold L2: several times what a GPU has.
COLD_BYTES = 256 << 20
SECONDS = 0.1  #: of calls that are timed
#: Seconds of idleness before what is timed: without, the power limit of the board lowers its clock.
REST = 0.1
#: A call is brief that takes fewer seconds: the host, which may share its cores with compilers, needs up to some 0.3 ms
#: to enqueue one with many arrays and launches, as long as the GPU is busy with a longer one.
BRIEF = 1e-3
#: Seconds of a CUDA graph of brief calls, against which the time that it takes to begin is little, and its most calls:
#: of calls with many launches it takes long to make.
GRAPH, CALLS = 5e-4, 50
LOOKS = 3  #: calls of which the shortest says how long one takes


def together(seconds: float) -> int:
    """How many calls that take so long are timed as one CUDA graph; 0: none is needed."""
    return 0 if seconds >= BRIEF else min(CALLS, math.ceil(GRAPH / max(seconds, 1e-9)))


@dataclass(frozen=True)
class Timing:
    """Seconds of a call: the median, and the 10th and 90th percentile of all repeats, each the mean of ``calls``."""

    median: float
    p10: float
    p90: float
    repeats: int
    calls: int = 1

    @classmethod
    def of(cls, times: Sequence[float], calls: int = 1) -> Timing:
        """The timing that these repeats make, each of which is of ``calls`` in all."""
        p10, p90 = (float(q) / calls for q in np.percentile(times, (10, 90)))
        return cls(statistics.median(times) / calls, p10, p90, len(times), calls)

    @property
    def fields(self) -> dict[str, Any]:
        """What a row says of it."""
        return {"median_s": self.median, "p10": self.p10, "p90": self.p90, "repeats": self.repeats}


class DeviceField:
    """A packed array in device memory, as any library would hand one in."""

    def __init__(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.pointer, self.shape, self.dtype = pointer, shape, dtype
        self.count = math.prod(shape)
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": dtype.str, "data": (pointer, False), "strides": None, "version": 3, "stream": 1,
        }  # fmt: skip


class Lab:
    """A GPU with the harness's kernels and scratch memory; ``seed`` is the first of the random inputs."""

    def __init__(self, seed: int = 0) -> None:
        from sparsegen.bench.naive import Naive

        self.runtime: Runtime = open_gpu(0)
        self.naive: Naive = Naive(self.runtime)
        self._seed = seed
        self._cold: int | None = None

    @contextmanager
    def fields(self, count: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[list[DeviceField]]:
        """``count`` fields, freed at the end."""
        held: list[DeviceField] = []
        try:
            for _ in range(count):
                held.append(DeviceField(self.runtime.alloc(math.prod(shape) * dtype.itemsize), shape, dtype))
            yield held
        finally:
            self.runtime.synchronize()
            for field in held:
                self.runtime.free(field.pointer)

    def fresh(self, field: DeviceField, dtype: str) -> None:
        """New random numbers."""
        self._seed += 1
        self.naive.random(field.pointer, field.count, dtype, self._seed)

    def flush(self) -> None:
        """A cold L2, made by reading."""
        self.naive.read(self._scratch(), COLD_BYTES)

    def overwrite(self) -> None:
        """A cold L2 full of lines that are to be written back, made by writing."""
        self.runtime.zero(self._scratch(), COLD_BYTES)

    def _scratch(self) -> int:
        if self._cold is None:
            self._cold = self.runtime.alloc(COLD_BYTES)
            self.runtime.zero(self._cold, COLD_BYTES)
        return self._cold

    def times(
        self,
        call: Callable[[], object],
        seconds: float = SECONDS,
        before: Callable[[], object] | None = None,
        calls: int = 1,
        least: int = 5,
        most: int = 1000,
    ) -> list[float]:
        """Device seconds of ``call``, each the mean of ``calls`` back to back; ``before`` comes first and is not timed.

        Two times that do not count warm up and say how many fill ``seconds``: at least ``least``, at most ``most``.
        """
        timer = self.runtime.timer()

        def once() -> float:
            if before is not None:
                before()
            return timed(timer, call, calls)

        once()
        fitting = math.ceil(seconds / max(calls * once(), 1e-7))
        return [once() for _ in range(min(most, max(least, fitting)))]

    def undisturbed(self, call: Callable[..., object]) -> tuple[Callable[[], object], int]:
        """What to time in place of a call where the host's own time is not to count, and how many calls it makes.

        For a call that is ``BRIEF`` that is the replay of a CUDA graph of some, back to back; ``call`` takes the stream
        to record it on.  Else it is the call: the GPU takes longer for it than the host does to enqueue it.
        """
        if not (many := together(self._shortest(call))):
            return call, 1

        def record(many: int) -> Callable[[], object] | None:
            return self.runtime.recorded(lambda stream: [call(stream=stream) for _ in range(many)])

        try:
            one = record(1)  # the host cannot make it longer
            many = 0 if one is None else max(1, together(self._shortest(one)))
            replay = record(many) if many else None
        except DeviceError:  # there is something in it that no graph takes
            replay = None
        return (call, 1) if replay is None else (replay, many)

    def _shortest(self, call: Callable[[], object]) -> float:
        """Seconds of a call, of some the shortest: what disturbs one makes it longer."""
        return min(self.times(call, 0.0, self.flush, 1, LOOKS, LOOKS))
