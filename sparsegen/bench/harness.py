"""One harness for all: fresh random input, poisoned output, a check against the naive kernel, then the time.

Times are between CUDA events on the default stream around a whole call on device arrays, so what a user waits for is
counted, launches included: median, 10th and 90th percentile over as many calls as fit in a tenth of a second.  What a
row is compared with (other rows, floors) is measured in the same run.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from os import cpu_count
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.bench import floors
from sparsegen.target import open_gpu

if TYPE_CHECKING:
    from sparsegen.backends.cuda.runtime import Runtime
    from sparsegen.bench.naive import Naive
    from sparsegen.dsl.stencil import Stencil
    from sparsegen.kernel import Kernel

#: Largest error that counts as correct, max|a - b| / max|b|.
TOLERANCE = {"f64": 1e-12, "f32": 1e-5}
#: Bytes that are read for a cold L2: several times what a GPU has.
COLD_BYTES = 256 << 20
SECONDS = 0.1  #: of calls that are timed
#: Seconds before each repeat of a case that ``rests``: without, the power limit of the board lowers its clock.
REST = 0.1
#: Seconds of calls back to back before and while their sustained rate is taken.
SUSTAINED = 0.4
#: Schedules of a case that is a copy in device memory instead of a kernel.
COPIES = ("copy by the driver", "copy by a kernel")
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
class Share:
    """A target in terms of other cases of the same run: this fraction of the fastest of ``of``, called ``name``."""

    fraction: float
    name: str
    of: tuple[Case, ...]


@dataclass(frozen=True)
class Case:
    """What to measure: ``steps`` time steps of a stencil (called ``name`` in tables) by a schedule's text.

    ``target`` is the GS/s to reach, ``share`` says it in terms of cases that stand before this one, ``aim`` is what one
    would like; ``limit_s`` the seconds not to pass; None where the case is for information.  ``floor`` names what is
    written by hand for it (see ``floors.best``).  The result is compared after ``check`` time steps (0: ``steps``).
    ``schedule`` may be one of COPIES.  ``part``: of the suite.
    ``rests``: there is a pause before each repeat.
    """

    name: str
    stencil: Stencil
    shape: tuple[int, ...]
    steps: int
    schedule: str
    target: float | None = None
    limit_s: float | None = None
    aim: float | None = None
    share: Share | None = None
    floor: str = ""
    check: int = 0
    part: str = ""
    rests: bool = False


@dataclass(frozen=True)
class Row:
    """One result, as it stands in the JSON.  ``predicted_gs`` and ``bound`` are the cost model's; ``error`` is
    max|a - b| / max|b| after ``check`` steps; ``target`` is ``share`` of the rows called ``of``, where there are such;
    ``floor`` is the GS/s of ``floor_by``; ``gs_per_s`` is taken with a pause before each repeat where the case
    ``rests``, ``sustained_gs`` then without, for cases with an ``aim``; ``ok``: correct, and the target met if there is
    one; ``failed``: why there are no numbers."""

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
    sustained_gs: float | None = None
    predicted_gs: float | None = None
    bound: str | None = None
    regs: int | None = None
    spills: int | None = None
    smem: int | None = None
    error: float | None = None
    ok: bool = False
    failed: str | None = None
    part: str = ""
    aim: float | None = None
    share: float | None = None
    of: str | None = None
    floor: float | None = None
    floor_by: str | None = None
    check: int = 0

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


class Copy:
    """A plain copy in a kernel's place, by the driver or by a kernel of the harness: what "copy speed" is here."""

    def __init__(self, case: Case, lab: Lab) -> None:
        self.stencil, self.shape, self.steps, self.schedule = case.stencil, case.shape, 1, case.schedule
        self.dtype = np.dtype({"f64": np.float64, "f32": np.float32}[case.stencil.dtype])
        self._copy = {COPIES[0]: lab.runtime.on_device, COPIES[1]: lab.naive.copy}[case.schedule]

    def __call__(self, u: DeviceField, out: DeviceField, steps: int = 1) -> None:
        self._copy(out.pointer, u.pointer, u.count * self.dtype.itemsize)


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
        self.naive.read(self._scratch(), COLD_BYTES)

    def overwrite(self) -> None:
        """A cold L2 full of lines that are to be written back, made by writing."""
        self.runtime.zero(self._scratch(), COLD_BYTES)

    def _scratch(self) -> int:
        if self._cold is None:
            self._cold = self.runtime.alloc(COLD_BYTES)
            self.runtime.zero(self._cold, COLD_BYTES)
        return self._cold

    def time(
        self, call: Callable[[], object], seconds: float = SECONDS, cold: bool = False, rest: float = 0.0
    ) -> Timing:
        """Device time of ``call``, after two calls that warm up and say how many repeats fill ``seconds``.

        ``rest``: seconds of idleness before each repeat.
        """
        timer = self.runtime.timer()

        def once() -> float:
            if rest:
                time.sleep(rest)
                call()  # the clock is up again when the timed one begins
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

    def error(self, kernel: Kernel | Copy, u: DeviceField, out: DeviceField, steps: int) -> float:
        """How far a kernel's result is from the naive one, on fresh input, with ``out`` full of NaN before the call."""
        dtype = kernel.stencil.dtype
        self.fresh(u, dtype)
        self.naive.poison(out.pointer, out.count, dtype)
        kernel(u, out=out, steps=steps)
        with self.fields(2, u.shape, u.dtype) as (expected, spare):
            self.naive.run(kernel.stencil, u.shape, steps, u.pointer, expected.pointer, spare.pointer)
            return self.naive.error(out.pointer, expected.pointer, out.count, dtype)

    def measure(self, case: Case, kernel: Kernel | Copy, seconds: float = SECONDS, cold: bool = False) -> Row:
        """Check, then time one case."""
        with self.fields(2, kernel.shape, kernel.dtype) as (u, out):
            error = self.error(kernel, u, out, case.check or case.steps)
            self.fresh(u, kernel.stencil.dtype)
            timing = self.time(lambda: kernel(u, out=out), seconds, cold, REST if case.rests else 0.0)
            sustained = None
            if case.rests and case.aim is not None and not cold:
                self.time(lambda: kernel(u, out=out), SUSTAINED)
                sustained = (
                    math.prod(kernel.shape) * kernel.steps / self.time(lambda: kernel(u, out=out), SUSTAINED).median
                )
        rate = math.prod(kernel.shape) * kernel.steps / timing.median / 1e9
        return Row(
            **labels(case, str(kernel.schedule)),
            **({} if isinstance(kernel, Copy) else figures(kernel)),
            median_s=timing.median,
            p10=timing.p10,
            p90=timing.p90,
            repeats=timing.repeats,
            gs_per_s=rate,
            sustained_gs=sustained and sustained / 1e9,
            error=error,
            ok=error <= TOLERANCE[kernel.stencil.dtype]
            and (rate >= case.target if case.target is not None else case.share is None)
            and (case.limit_s is None or timing.median <= case.limit_s),
        )


def figures(kernel: Kernel) -> dict[str, Any]:
    """What a row says of a compiled kernel: the model's prediction, and what nvcc made of it."""
    uses = kernel.resources()
    return {
        "predicted_gs": kernel.cost.rate,
        "bound": kernel.cost.binds,
        "regs": uses.registers,
        "spills": uses.spills,
        "smem": uses.shared,
    }


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
        "part": case.part,
        "aim": case.aim,
        "share": case.share and case.share.fraction,
        "of": case.share and case.share.name,
        "check": case.check or case.steps,
    }


def failure(case: Case, error: Exception) -> Row:
    """The row of a case that gave no numbers."""
    return Row(**labels(case, case.schedule), failed=f"{type(error).__name__}: {error}")


def build(cases: Sequence[Case], lab: Lab) -> list[Kernel | Copy | Exception]:
    """What runs each case, nvcc running on as many kernels at once as there are cores."""
    import sparsegen as sg

    def one(case: Case) -> Kernel | Copy | Exception:
        if case.schedule in COPIES:
            return Copy(case, lab)
        try:
            kernel = sg.compile(case.stencil, case.shape, case.steps, backend="cuda", schedule=case.schedule)
            for steps in {case.steps, case.check or case.steps}:  # a rest that does not fill a pass has its own program
                for program, _ in kernel._plan(steps).programs:
                    kernel._builds.get(program).compiled()
        except Exception as error:  # a fault of ours is that row's alone
            return error
        return kernel

    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        return list(pool.map(one, cases))


def relative(case: Case, rates: Mapping[Case, float]) -> Case:
    """The case with its target in GS/s, from the rates of the cases that it is compared with; none of them: no target,
    and nothing is good enough."""
    if case.share is None:
        return case
    known = [rates[other] for other in case.share.of if other in rates]
    return replace(case, target=case.share.fraction * max(known)) if known else case


def run(
    cases: Sequence[Case],
    seconds: float = SECONDS,
    cold: bool = False,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
    beside: Sequence[str] = (),
    keep: Callable[[Sequence[Row]], None] = lambda _: None,
) -> list[Row]:
    """Measure all cases, one after another, after all are compiled; a case that fails is a row that says why.

    ``beside``: floors to compile and run in the same call (see ``floors``); one that fails is missing in the rows.
    ``keep`` gets the rows that there are after each one.
    """
    lab = Lab(seed=seed)
    start = time.perf_counter()
    with floors.compiling(beside, lab.runtime.info().arch) as prepared:
        built = build(cases, lab)[::-1]
        say(f"{len(cases)} kernels compiled in {time.perf_counter() - start:.1f} s")
        known = floors.figures(prepared, floors.parse, say)
        if beside:
            say(f"floors by {time.perf_counter() - start:.1f} s: {', '.join(f'{f.name} {f.rate}' for f in known)}")
    rows, done, rates = list[Row](), set[tuple[object, ...]](), dict[Case, float]()
    for case in cases:
        kernel = built.pop()  # freed with its workspace after its turn
        if isinstance(kernel, Exception):
            row = failure(case, kernel)
        else:
            key = (case.part, case.name, str(kernel.schedule), case.shape, case.stencil, case.steps)
            if key in done:  # auto, or a form that is both a target and for information
                continue
            done.add(key)
            try:
                row = lab.measure(relative(case, rates), kernel, seconds, cold)
            except Exception as error:  # as in build
                row = failure(case, error)
        if row.gs_per_s is not None:
            rates[case] = row.gs_per_s
        if floor := floors.best(known, case.floor):
            row = replace(row, floor=floor.rate, floor_by=str(floor))
        rows.append(row)
        keep(rows)
        what = row.failed or f"{row.gs_per_s:.1f} GS/s, error {row.error:.1e}{'' if row.ok else ', NOT OK'}"
        say(f"{case.name} {'x'.join(map(str, case.shape))} {row.boundary} {row.dtype}, {row.schedule}: {what}")
    say(f"measured in {time.perf_counter() - start:.1f} s")
    return rows
