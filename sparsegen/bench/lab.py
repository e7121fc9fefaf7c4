"""A GPU to measure on: fields with random numbers, caches that are made cold, the time of a call.

Times are between CUDA events on the default stream around a whole call on device arrays, so what a user waits for is
counted, launches included: as many calls as fit in the seconds that are asked for.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

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


@dataclass(frozen=True)
class Timing:
    """Seconds of a call: the median, and the 10th and 90th percentile of all repeats."""

    median: float
    p10: float
    p90: float
    repeats: int

    @classmethod
    def of(cls, times: Sequence[float]) -> Timing:
        """The timing that these repeats make."""
        p10, p90 = (float(q) for q in np.percentile(times, (10, 90)))
        return cls(statistics.median(times), p10, p90, len(times))

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
