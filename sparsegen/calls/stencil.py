"""Calls of a stencil's kernels: how time steps become passes, and how passes take turns between fields.

``steps`` time steps are ``steps // fuse`` passes of the main program; a rest that does not fill a pass is made *first*,
by a program that fuses just the rest (the steps of one stencil may be grouped in any order).  The input is never
written, and a single pass needs no workspace.

Two ways to keep the levels between passes.  As a rule they alternate between ``out`` and one workspace field whose rows
lie as far apart as those of ``out``, so that the last pass writes ``out``.  Where rows of ``out`` are not a multiple of
16 bytes apart, as with 9999 doubles, wide copies are impossible; then, from three passes on, the levels alternate
between two workspace fields whose rows are padded (:func:`~sparsegen.sizes.padded_pitch`), and only the first and the
last pass see the arrays of the user.  What lies between padded rows is never used as data and never written.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import accumulate, pairwise
from typing import Any, ClassVar

from sparsegen.backends.reference.stencil import run
from sparsegen.calls.base import HostArrays
from sparsegen.calls.grid import GridCalls
from sparsegen.cost.devices import DeviceProfile
from sparsegen.dsl.stencil import DTYPES
from sparsegen.geometry import check, split, with_steps
from sparsegen.ir.errors import ScheduleError
from sparsegen.memo import Memo
from sparsegen.pipelines import Program, lower
from sparsegen.plan import IN, OUT, Part, Plan, Step
from sparsegen.problems.stencil import Pitch, StencilProblem
from sparsegen.schedule import StencilSchedule
from sparsegen.sizes import padded_pitch

#: Workspace fields for the levels between passes: the one that takes turns with ``out``; the two with padded rows.
FIELD, PADDED = "field", ("padded.0", "padded.1")


class StencilCalls(GridCalls):
    """``k(u, out, steps, stream)``."""

    kind: ClassVar[str] = "Kernel"
    dtypes: ClassVar[tuple[str, ...]] = DTYPES
    problem: StencilProblem

    def __init__(self, problem: StencilProblem, backend: str) -> None:
        super().__init__(problem, backend, {"u": (IN,)}, {"u": (OUT,)})
        self.positional = ("u", *self.OPTIONS)
        self.labels = {IN: "input", OUT: "output"}

    def given(self, values: Mapping[str, Any], *, some: bool = False) -> dict[str, Any]:
        return {IN: values["u"]}

    def results(self, made: Any) -> dict[str, Any]:
        return {OUT: made}

    def program(self, schedule: StencilSchedule, device: DeviceProfile, steps: int, variant: Pitch) -> Program:
        problem = self.problem
        chosen = with_steps(schedule, steps, problem.footprint.k)
        check(problem.stencil, problem.grid, chosen, device)
        return lower(problem, chosen, device, steps, variant)

    def plan(self, programs: Memo[Program], schedule: StencilSchedule, steps: int, variant: Hashable) -> Plan:
        """The rest first, then the main program; ``variant`` is the pitch of input and output."""
        cols = self.problem.shape[-1]
        pitch: Any = variant or (cols, cols)
        try:
            groups = [(s.steps, n) for s, n in split(schedule, steps, self.problem.footprint.k)]
            return self._plan(programs, groups, pitch)
        except ScheduleError:  # the rest cannot be done at once: step by step
            passes, rest = divmod(steps, schedule.steps)
            if rest < 2:
                raise
            return self._plan(programs, [(1, rest)] + [(schedule.steps, passes)] * (passes > 0), pitch)

    def _plan(self, programs: Memo[Program], groups: list[tuple[int, int]], pitch: Pitch) -> Plan:
        """``groups``: steps a pass, and how many such passes, in order."""
        ends = list(accumulate(n for _, n in groups))
        total, (first, last) = ends[-1], pitch
        padded = padded_pitch((self.problem.items, *self.problem.grid), self.dtype.itemsize, last, total)
        between = padded or last

        def level(index: int) -> str:
            """Where pass ``index`` writes, from 0; -1: what the first one reads."""
            left = total - 1 - index
            if index < 0 or not left:
                return IN if left else OUT
            return PADDED[index % 2] if padded else (FIELD if left % 2 else OUT)

        parts: list[Part] = []
        for start, end in pairwise(sorted({0, 1, *ends, *((total - 1,) if padded else ())})):
            fuse = next(fuse for (fuse, _), stop in zip(groups, ends, strict=True) if start < stop)
            program = programs.get(fuse, (between if start else first, between if end < total else last))
            turns = [Step.of(program, {IN: level(i - 1), OUT: level(i)}) for i in range(start, min(end, start + 2))]
            parts.append(Part(tuple(turns), end - start))
        steps = sum(fuse * n for fuse, n in groups)
        plan = Plan(tuple(parts), (IN, OUT), parts[-1].cycle[0].program, steps, padded)
        inner = plan.programs[1:-1] if padded and len(plan.programs) > 2 else plan.programs
        main, _ = max(inner, key=lambda part: (part[0].steps, part[1]))
        return Plan(plan.parts, plan.given, main, steps, padded)

    def notes(self, program: Program) -> list[str]:
        notes = [f"One pass does {program.steps} time step{'s' if program.steps > 1 else ''}."]
        apart, apart_out = program.op.funcs[0].pitch  # type: ignore[attr-defined]
        if {apart, apart_out} != {self.problem.shape[-1]}:
            notes.append(f"Rows of the input are {apart} elements apart, rows of the output {apart_out}.")
        return notes

    def one(self, arrays: Mapping[str, Any], steps: int) -> HostArrays:
        stencil = self.problem.what
        return {OUT: run(arrays[IN], stencil.weights, stencil.sides, steps)}
