"""Calls of a general update's kernels.

A field of n levels is kept in a ring of n + 1 arrays: the n that a call gives back, and one of the workspace.  Each
step reads n of them and writes the one that holds the oldest level; the last n steps write what is given back.  The
first steps read the arrays of the user, which are never written.  With fewer steps than levels some of what is given
back are copies of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm
from typing import Any, ClassVar

from sparsegen.backends.reference.update import run
from sparsegen.boundary import periodic
from sparsegen.calls.base import HostArrays
from sparsegen.calls.grid import GridCalls
from sparsegen.cost.devices import DeviceProfile
from sparsegen.dsl.operands import Parameter
from sparsegen.dsl.update import DTYPES, Update
from sparsegen.memo import Memo
from sparsegen.pipelines import Program, lower
from sparsegen.plan import Part, Plan, Step
from sparsegen.problems.update import UpdateProblem
from sparsegen.schedule import UpdateSchedule


class UpdateCalls(GridCalls):
    """An array for each parameter, or a tuple of its levels; they are called ``in.u.0``, ``out.u.0``, ..."""

    kind: ClassVar[str] = "UpdateKernel"
    dtypes: ClassVar[tuple[str, ...]] = DTYPES
    problem: UpdateProblem

    def __init__(self, problem: UpdateProblem, backend: str) -> None:
        update = problem.what
        levels = {**dict(update.fields), **dict.fromkeys(update.coefs, 1)}
        given = {p.name: tuple(f"in.{p.name}.{k}" for k in range(levels[p.name])) for p in update.parameters}
        fields = {name: tuple(f"out.{name}.{k}" for k in range(levels)) for name, levels in update.fields}
        super().__init__(problem, backend, given, fields)
        #: The roles of a step: every level that it reads, fields before coefficients, and each field's new one.
        self.roles = (
            *(array for name in levels for array in given[name]),
            *(f"out.{name}" for name, _ in update.fields),
        )

    def program(
        self, schedule: UpdateSchedule, device: DeviceProfile, steps: int, variant: Any, copied: Update | None = None
    ) -> Program:
        """Of a step, or of the update ``copied`` that copies a field, for the pitches of its roles."""
        problem = UpdateProblem(copied, self.problem.shape) if copied else self.problem
        return lower(problem, schedule, device, 1, variant)

    def plan(self, programs: Memo[Program], schedule: UpdateSchedule, steps: int, variant: Any) -> Plan:
        """Steps that read the input, periods of the rings, copies; ``variant``: of every array."""
        update, cols = self.problem.what, self.problem.shape[-1]
        apart = dict(zip(self.arguments, variant or (cols,) * len(self.arguments), strict=True))
        apart |= {f"ws.{name}": apart[f"out.{name}.0"] for name, _ in update.fields}

        def bound(roles: tuple[str, ...], arrays: Mapping[str, str], copied: Update | None = None) -> Step:
            key = (1, tuple(apart[arrays[role]] for role in roles))
            return Step.of(programs.get(*key, *((copied,) if copied else ())), arrays)

        def step(now: int) -> Step:
            arrays = {f"in.{c}.0": f"in.{c}.0" for c in update.coefs}
            for name, levels in update.fields:
                arrays |= {f"in.{name}.{k}": ring(name, levels, now - 1 - k, steps) for k in range(levels)}
                arrays[f"out.{name}"] = ring(name, levels, now, steps)
            return bound(self.roles, arrays)

        most, period = max(n for _, n in update.fields), lcm(*(n + 1 for _, n in update.fields))
        head = min(most, steps)
        cycle = tuple(step(now) for now in range(head + 1, min(head + period, steps) + 1))
        one, copied = update.fields[0][0], identity(update)  # copies take the roles of the first field
        copies = [
            bound(
                (f"in.{one}.0", f"out.{one}"),
                {f"in.{one}.0": f"in.{name}.{k - steps}", f"out.{one}": f"out.{name}.{k}"}, copied,
            )
            for name, levels in update.fields for k in range(steps, levels)
        ]  # fmt: skip
        first = [Part((step(now),)) for now in range(1, head + 1)]
        parts = (*first, *((Part(cycle, steps - head),) if cycle else ()), *(Part((s,)) for s in copies))
        return Plan(parts, tuple(self.arguments), step(steps).program, steps)

    def notes(self, program: Program) -> list[str]:
        notes, pitch = ["One launch does 1 time step."], program.op.funcs[0].pitch  # type: ignore[attr-defined]
        if set(pitch) != {self.problem.shape[-1]}:
            notes.append(f"Elements from row to row of each array, in order: {', '.join(map(str, pitch))}.")
        return notes

    def reference(self, arrays: Mapping[str, Any], steps: int) -> HostArrays:
        update = self.problem.what
        fields = {name: tuple(arrays[f"in.{name}.{k}"] for k in range(levels)) for name, levels in update.fields}
        coefs = {name: arrays[f"in.{name}.0"] for name in update.coefs}
        new = run(self.problem.describe().funcs[0], fields, coefs, steps)  # type: ignore[arg-type]
        return {f"out.{name}.{k}": level for name, levels in new.items() for k, level in enumerate(levels)}


def ring(name: str, levels: int, time: int, last: int) -> str:
    """The array that holds a field's level of a time (0: the newest input), when ``last`` is the time of the result."""
    if time <= 0:
        return f"in.{name}.{-time}"
    place = (last - time) % (levels + 1)
    return f"out.{name}.{place}" if place < levels else f"ws.{name}"


def identity(update: Update) -> Update:
    """The update that copies a field; it takes the roles of the first one."""
    zero = (0,) * update.ndim
    sides = ((periodic, periodic),) * update.ndim
    name = update.fields[0][0]
    return Update((Parameter(name),), (("read", name, 0, zero),), (0,), update.dtype, (sides,), f"{update.name}_copy")
