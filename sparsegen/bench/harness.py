"""One harness for all: fresh random input, poisoned output, a check against the naive kernel, then the time.

Times are between CUDA events on the default stream around a whole call on device arrays, so what a user waits for is
counted, launches included: median, 10th and 90th percentile over as many calls as fit in a tenth of a second.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from os import cpu_count
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir.errors import SparsegenError
from sparsegen.target import open_gpu

if TYPE_CHECKING:
    from sparsegen.backends.cuda.runtime import Runtime
    from sparsegen.bench.naive import Naive
    from sparsegen.dsl.stencil import Stencil
    from sparsegen.kernel import Kernel

#: Largest error that counts as correct, max|a - b| / max|b|.
TOLERANCE = {"f64": 1e-12, "f32": 2e-5}
#: Bytes that are read for a cold L2: several times what a GPU has.
COLD_BYTES = 256 << 20
SECONDS = 0.1  #: of calls that are timed
_LEAST, _MOST = 5, 1000


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


@dataclass(frozen=True)
class Case:
    """What to measure: ``steps`` time steps of a stencil (called ``name`` in tables) by a schedule's text.

    ``target`` is the GS/s to reach, ``limit_s`` the seconds not to pass; None where the case is for information.
    """

    name: str
    stencil: Stencil
    shape: tuple[int, int]
    steps: int
    schedule: str
    target: float | None = None
    limit_s: float | None = None


@dataclass(frozen=True)
class Row:
    """One result, as it stands in the JSON.  ``predicted_gs`` and ``bound`` are the cost model's; ``error`` is
    max|a - b| / max|b|; ``ok``: correct, and the target met if there is one; ``failed``: why there are no numbers."""

    case: str
    schedule: str
    shape: tuple[int, ...]
    boundary: str
    dtype: str
    steps: int
    target: float | None = None
    limit_s: float | None = None
    median_s: float | None = None
    p10: float | None = None
    p90: float | None = None
    repeats: int = 0
    gs_per_s: float | None = None
    predicted_gs: float | None = None
    bound: str | None = None
    regs: int | None = None
    spills: int | None = None
    smem: int | None = None
    error: float | None = None
    ok: bool = False
    failed: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain values; an infinite error becomes text, which JSON can hold."""
        out = asdict(self)
        if self.error is not None and not math.isfinite(self.error):
            out["error"] = str(self.error)
        return out


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

    def __init__(self, device: int = 0, seed: int = 0) -> None:
        from sparsegen.bench.naive import Naive

        self.runtime: Runtime = open_gpu(device)
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
        if self._cold is None:
            self._cold = self.runtime.alloc(COLD_BYTES)
            self.runtime.zero(self._cold, COLD_BYTES)
        self.naive.read(self._cold, COLD_BYTES)

    def time(self, call: Callable[[], object], seconds: float = SECONDS, cold: bool = False) -> Timing:
        """Device time of ``call``, after two calls that warm up and say how many repeats fill ``seconds``."""
        timer = self.runtime.timer()

        def once() -> float:
            if cold:
                self.flush()
            timer.start()
            call()
            timer.stop()
            return timer.seconds()

        call()
        guess = once()
        repeats = min(_MOST, max(_LEAST, math.ceil(seconds / max(guess, 1e-7))))
        return Timing.of([once() for _ in range(repeats)])

    def error(self, kernel: Kernel, u: DeviceField, out: DeviceField) -> float:
        """How far a kernel's result is from the naive one, on fresh input, with ``out`` full of NaN before the call."""
        dtype = kernel.stencil.dtype
        self.fresh(u, dtype)
        self.naive.poison(out.pointer, out.count, dtype)
        kernel(u, out=out)
        with self.fields(2, u.shape, u.dtype) as (expected, spare):
            self.naive.run(kernel.stencil, u.shape, kernel.steps, u.pointer, expected.pointer, spare.pointer)
            return self.naive.error(out.pointer, expected.pointer, out.count, dtype)

    def measure(self, case: Case, kernel: Kernel, seconds: float = SECONDS, cold: bool = False) -> Row:
        """Check, then time one case."""
        with self.fields(2, kernel.shape, kernel.dtype) as (u, out):
            error = self.error(kernel, u, out)
            self.fresh(u, kernel.stencil.dtype)
            timing = self.time(lambda: kernel(u, out=out), seconds, cold)
        uses = kernel.resources()
        rate = math.prod(kernel.shape) * kernel.steps / timing.median / 1e9
        return Row(
            **labels(case, str(kernel.schedule)),
            median_s=timing.median,
            p10=timing.p10,
            p90=timing.p90,
            repeats=timing.repeats,
            gs_per_s=rate,
            predicted_gs=kernel.cost.rate,
            bound=kernel.cost.binds,
            regs=uses.registers,
            spills=uses.spills,
            smem=uses.shared,
            error=error,
            ok=error <= TOLERANCE[kernel.stencil.dtype]
            and (case.target is None or rate >= case.target)
            and (case.limit_s is None or timing.median <= case.limit_s),
        )


def labels(case: Case, schedule: str) -> dict[str, Any]:
    """What every row says of its case."""
    from sparsegen.ir.boundary import describe

    st = case.stencil
    return {
        "case": case.name,
        "schedule": schedule,
        "shape": tuple(case.shape),
        "boundary": describe(st.sides),
        "dtype": st.dtype,
        "steps": case.steps,
        "target": case.target,
        "limit_s": case.limit_s,
    }


def failure(case: Case, error: Exception) -> Row:
    """The row of a case that gave no numbers."""
    return Row(**labels(case, case.schedule), failed=f"{type(error).__name__}: {error}")


def build(cases: Sequence[Case]) -> list[Kernel | Exception]:
    """A kernel for each case, nvcc running on as many of them at once as there are cores."""
    import sparsegen as sg

    def one(case: Case) -> Kernel | Exception:
        try:
            kernel = sg.compile(case.stencil, case.shape, case.steps, backend="cuda", schedule=case.schedule)
            kernel.resources()
        except SparsegenError as error:
            return error
        return kernel

    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        return list(pool.map(one, cases))


def run(
    cases: Sequence[Case],
    seconds: float = SECONDS,
    cold: bool = False,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Measure all cases, one after another, after all are compiled; a case that fails is a row that says why."""
    lab = Lab(seed=seed)
    start = time.perf_counter()
    built = build(cases)[::-1]
    say(f"{len(cases)} kernels compiled in {time.perf_counter() - start:.1f} s")
    rows, done = list[Row](), set[tuple[object, ...]]()
    for case in cases:
        kernel = built.pop()  # freed with its workspace after its turn
        if isinstance(kernel, Exception):
            rows.append(failure(case, kernel))
            say(f"{case.name} {case.schedule}: {rows[-1].failed}")
            continue
        key = (case.name, str(kernel.schedule), case.shape, case.stencil, case.steps)
        if key in done:  # auto, or a form that is both a target and for information
            continue
        done.add(key)
        try:
            row = lab.measure(case, kernel, seconds, cold)
        except SparsegenError as error:
            row = failure(case, error)
        rows.append(row)
        what = row.failed or f"{row.gs_per_s:.1f} GS/s, error {row.error:.1e}"
        say(f"{case.name} {'x'.join(map(str, case.shape))} {row.boundary}, {row.schedule}: {what}")
    say(f"measured in {time.perf_counter() - start:.1f} s")
    return rows
