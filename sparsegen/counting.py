"""Exact counts and checks of a kernel: one pass of every program, since all passes are alike.

Small fields are counted by the emulator, larger ones by the formulas of :mod:`sparsegen.cost.counts`, which tests hold
to the emulator's numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.compiler import edge
from sparsegen.geometry import with_steps
from sparsegen.ir.errors import ScheduleError

if TYPE_CHECKING:
    from sparsegen.backends.emulator.report import Report
    from sparsegen.execute import Plan, Programs

#: The largest field, in cells, that is counted on the emulator (10 to 30 seconds a pass).
MAX_CELLS = 1 << 24


@dataclass(frozen=True)
class LaunchCounts:
    """The counts of one launch of ``kernel``, and how often a call launches it."""

    kernel: str
    times: int
    counts: Mapping[str, int]


@dataclass(frozen=True)
class Counts(Mapping[str, int]):
    """Counts of a call: ``counts[name]`` is the total over all launches, ``launches`` has each kind of launch once.

    ``steps``: the time steps of the call; 0 for a product, which has none.
    """

    launches: tuple[LaunchCounts, ...]
    steps: int

    @property
    def total(self) -> dict[str, int]:
        """Every count, summed over all launches of the call."""
        out: dict[str, int] = {}
        for launch in self.launches:
            for name, n in launch.counts.items():
                out[name] = out.get(name, 0) + n * launch.times
        return out

    def __getitem__(self, name: str) -> int:
        return self.total[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.total)

    def __len__(self) -> int:
        return len(self.total)

    def __str__(self) -> str:
        lines: list[str] = []
        for launch in self.launches:
            lines.append(f"{launch.kernel}, launched {launch.times} time{'s' * (launch.times != 1)}; each:")
            lines += [f"  {name:<28} {n:>16,}" for name, n in sorted(launch.counts.items())]
        lines.append(f"in all, {self.steps} time step{'s' * (self.steps != 1)}:" if self.steps else "in all:")
        lines += [f"  {name:<28} {n:>16,}" for name, n in sorted(self.total.items())]
        return "\n".join(lines)


def emulated(cells: int) -> bool:
    """Whether a field or matrix is small enough for the emulator to count; larger ones are counted by formula."""
    return cells <= MAX_CELLS


def counts(plan: Plan, programs: Programs) -> Counts:
    """Counts of every launch of a plan of these programs, from the emulator or by formula; the same numbers."""
    if not emulated(prod(programs.shape)):
        return _by_formula(plan, programs)
    from sparsegen.execute_emulator import run_pass

    found: list[LaunchCounts] = []
    steps = 0
    for program, times in plan.parts:
        u = np.zeros(programs.shape, field_dtype(plan))
        _, reports = run_pass(program, u, checks=False)
        found += [LaunchCounts(name, times, dict(report.counts)) for name, report in reports]
        steps += program.steps * times
    return Counts(tuple(found), steps)


def _by_formula(plan: Plan, programs: Programs) -> Counts:
    """ScheduleError where the levels between passes have padded rows."""
    from sparsegen.cost.counts import launches

    stencil, shape, schedule, profile = programs.stencil, programs.shape, programs.schedule, programs.profile
    if plan.padded:
        raise ScheduleError(
            f"rows of {shape[-1]} elements are no multiple of 16 bytes, so the levels between passes have padded rows; "
            f"above {MAX_CELLS} cells only passes between packed fields can be counted",
            hint=f"compile for steps={schedule.steps}: a single pass, which all others are much like",
        )
    found = [
        LaunchCounts(launch.kernel, times, dict(launch.counts))
        for program, times in plan.parts
        for launch in launches(stencil, shape, with_steps(schedule, program.steps, edge(stencil)), profile)
    ]
    return Counts(tuple(found), sum(program.steps * times for program, times in plan.parts))


def check(plan: Plan, u: Any) -> Report:
    """One pass of every program on ``u`` (each on the result of the one before) with all checkers: the reports' sum."""
    from sparsegen.backends.emulator.report import Report
    from sparsegen.execute_emulator import run_pass

    total = Report()
    for program, _ in plan.parts:
        u, reports = run_pass(program, u, checks=True)
        for _, report in reports:
            total = total + report
    return total


def field_dtype(plan: Plan) -> Any:
    """The NumPy dtype of the field."""
    from sparsegen.execute import TARGET, launches
    from sparsegen.ir.types import Buffer

    bound = launches(plan.parts[0][0].warp)
    return next(p.dtype.numpy() for b in bound for p, role in b.roles if role == TARGET and isinstance(p, Buffer))
