"""How stencils are measured: fresh random input, poisoned output, a check against the naive kernel, then the time."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.bench import floors
from sparsegen.bench.harness import TOLERANCE, AnyRow, Suite
from sparsegen.bench.lab import REST, SECONDS, DeviceField, Lab, Timing
from sparsegen.dsl.update import Update
from sparsegen.ir.boundary import describe

if TYPE_CHECKING:
    from sparsegen.dsl.stencil import Stencil
    from sparsegen.kernel import Kernel

#: Seconds of calls back to back before and while their sustained rate is taken.
SUSTAINED = 0.4
#: Schedules of a case that is a copy in device memory instead of a kernel.
COPIES = ("copy by the driver", "copy by a kernel")


@dataclass(frozen=True)
class Share:
    """A target in terms of other cases of the same run: this fraction of the fastest of ``of``, called ``name``."""

    fraction: float
    name: str
    of: tuple[Case, ...]


@dataclass(frozen=True)
class Case:
    """What to measure: ``steps`` time steps of a stencil or an update (called ``name`` in tables) by a schedule's text.

    ``target`` is the GS/s to reach, ``share`` says it in terms of cases that stand before this one, ``aim`` is what one
    would like; ``limit_s`` the seconds not to pass; None where the case is for information.  ``floor`` names what is
    written by hand for it (see ``floors.best``).  The result is compared after ``check`` time steps (0: ``steps``).
    ``schedule`` may be one of COPIES.  ``part``: of the suite.
    ``rests``: there is a pause before each repeat.  ``batch``: items of a call, ``shape`` is that of each.
    """

    name: str
    stencil: Stencil | Update
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
    batch: int | None = None


@dataclass(frozen=True, kw_only=True)
class Row(AnyRow):
    """One result.  ``predicted_gs`` and ``bound`` are the cost model's; ``error`` is max|a - b| / max|b| after
    ``check`` steps; ``target`` is ``share`` of the rows called ``of``, where there are such; ``floor`` is the GS/s of
    ``floor_by``; ``gs_per_s`` is taken with a pause before each repeat where the case ``rests``, ``sustained_gs`` then
    without, for cases with an ``aim``."""

    boundary: str
    steps: int
    check: int = 0
    target: float | None = None
    limit_s: float | None = None
    aim: float | None = None
    share: float | None = None
    of: str | None = None
    floor: float | None = None
    floor_by: str | None = None
    median_s: float | None = None
    gs_per_s: float | None = None
    sustained_gs: float | None = None
    predicted_gs: float | None = None
    bound: str | None = None
    smem: int | None = None


class Copy:
    """A plain copy in a kernel's place, by the driver or by a kernel of the harness: what "copy speed" is here."""

    def __init__(self, case: Case, lab: Lab) -> None:
        self.stencil, self.shape, self.steps, self.schedule = case.stencil, case.shape, 1, case.schedule
        self.dtype = np.dtype({"f64": np.float64, "f32": np.float32}[case.stencil.dtype])
        self._copy = {COPIES[0]: lab.runtime.on_device, COPIES[1]: lab.naive.copy}[case.schedule]

    def __call__(self, u: DeviceField, out: DeviceField, steps: int = 1) -> None:
        self._copy(out.pointer, u.pointer, u.count * self.dtype.itemsize)


class Stencils(Suite[Case, Row]):
    """Stencils by schedules, next to one another; ``cold``: after a read that empties L2."""

    row = Row

    def __init__(self, lab: Lab, seconds: float = SECONDS, cold: bool = False) -> None:
        super().__init__(lab, 0, seconds)
        self._cold = cold
        self._rates = dict[Case, float]()

    def build(self, case: Case) -> Kernel | Copy:
        """What runs a case, compiled."""
        if case.schedule in COPIES:
            return Copy(case, self.lab)
        return ready(case.stencil, case.shape, case.schedule, case.steps, case.check or case.steps)

    def labels(self, case: Case, seed: int = 0) -> dict[str, Any]:
        """What every row says of its case, its target and its floor."""
        return labels(relative(case, self._rates), case.schedule, floors.best(self.floors, case.floor))

    def error(self, kernel: Kernel | Copy, u: DeviceField, out: DeviceField, steps: int) -> float:
        """How far a kernel's result is from the naive one, on fresh input, with ``out`` full of NaN before the call."""
        lab, dtype = self.lab, kernel.stencil.dtype
        stencil: Any = kernel.stencil
        lab.fresh(u, dtype)
        lab.naive.poison(out.pointer, out.count, dtype)
        kernel(u, out=out, steps=steps)
        with lab.fields(2, u.shape, u.dtype) as (expected, spare):
            lab.naive.run(stencil, u.shape, steps, u.pointer, expected.pointer, spare.pointer)
            return lab.naive.error(out.pointer, expected.pointer, out.count, dtype)

    def measure(self, case: Case, kernel: Kernel | Copy, seed: int = 0) -> Row:
        """Check, then time a case."""
        lab, work, sustained = self.lab, math.prod(kernel.shape) * kernel.steps / 1e9, None
        with lab.fields(2, kernel.shape, kernel.dtype) as (u, out):

            def call() -> None:
                kernel(u, out=out)

            def before() -> None:
                if case.rests:
                    time.sleep(REST)
                    call()  # the clock is up again when the timed one begins
                if self._cold:
                    lab.flush()

            error = self.error(kernel, u, out, case.check or case.steps)
            lab.fresh(u, kernel.stencil.dtype)
            timing = Timing.of(lab.times(call, self.seconds, before))
            if case.rests and case.aim is not None and not self._cold:
                lab.times(call, SUSTAINED)
                sustained = work / Timing.of(lab.times(call, SUSTAINED)).median
        row: dict[str, Any] = self.labels(case) | {"schedule": str(kernel.schedule)} | timing.fields
        if not isinstance(kernel, Copy):
            uses = kernel.resources()
            row |= {"predicted_gs": kernel.cost.rate, "bound": kernel.cost.binds}
            row |= {"regs": uses.registers, "spills": uses.spills, "smem": uses.shared}
        self._rates[case] = rate = work / timing.median
        target = row["target"]
        return Row(
            **row,
            gs_per_s=rate,
            sustained_gs=sustained,
            error=error,
            ok=error <= TOLERANCE[kernel.stencil.dtype]
            and (rate >= target if target is not None else case.share is None)
            and (case.limit_s is None or timing.median <= case.limit_s),
        )

    @staticmethod
    def line(row: Row) -> str:
        """A row as a line of progress."""
        what = row.failed or f"{row.gs_per_s:.1f} GS/s, error {row.error:.1e}{'' if row.ok else ', NOT OK'}"
        return f"{row.case} {'x'.join(map(str, row.shape))} {row.boundary} {row.dtype}, {row.schedule}: {what}"


def ready(
    stencil: Stencil | Update, shape: tuple[int, ...], schedule: str, *steps: int, batch: int | None = None
) -> Kernel:
    """The kernel of a schedule, compiled for calls of so many steps; those of the first number are its own."""
    import sparsegen as sg

    kernel = sg.compile(stencil, shape, steps[0], backend="cuda", schedule=schedule, batch=batch)
    for each in set(steps):  # a rest that does not fill a pass has its own program
        for program, _ in kernel._plan(each).programs:
            kernel._builds.get(program).compiled()
    return kernel


def labels(case: Case, schedule: str, floor: floors.Floor | None = None) -> dict[str, Any]:
    """What every row says of its case."""
    same = {name: getattr(case, name) for name in ("part", "steps", "target", "limit_s", "aim")}
    same["shape"] = (case.batch, *case.shape) if case.batch else case.shape
    what = case.stencil
    sides = what.sides if isinstance(what, Update) else (what.sides,)  # those of each field
    return same | {
        "case": case.name, "schedule": schedule, "boundary": " / ".join(dict.fromkeys(map(describe, sides))),
        "dtype": what.dtype,
        "check": case.check or case.steps, "share": case.share and case.share.fraction,
        "of": case.share and case.share.name, "floor": floor and floor.rate, "floor_by": floor and str(floor),
    }  # fmt: skip


def relative(case: Case, rates: Mapping[Case, float]) -> Case:
    """The case with its target in GS/s, from the rates of the cases that it is compared with; none of them: no target,
    and nothing is good enough."""
    if case.share is None:
        return case
    known = [rates[other] for other in case.share.of if other in rates]
    return replace(case, target=case.share.fraction * max(known)) if known else case
