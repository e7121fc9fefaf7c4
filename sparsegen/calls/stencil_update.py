"""Calls of a linear stencil's kernels that are made as an update's: the arrays are a stencil's."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from sparsegen.calls.stencil import StencilCalls
from sparsegen.calls.update import UpdateCalls
from sparsegen.cost.devices import DeviceProfile
from sparsegen.memo import Memo
from sparsegen.pipelines import Program
from sparsegen.plan import IN, OUT, Plan
from sparsegen.problems.stencil_update import StencilUpdate

#: What the update's arrays are called: its field has the one name that ``Stencil.as_update`` gives it.
_NAMES: Final = {"in.u.0": IN, "out.u.0": OUT}


class StencilUpdateCalls(StencilCalls):
    """``k(u, out, steps, stream)``, as of any stencil; programs and plans are an update's."""

    def __init__(self, problem: StencilUpdate, backend: str) -> None:
        super().__init__(problem.stencil, backend)
        self._update = UpdateCalls(problem, backend)

    def program(self, schedule: Any, device: DeviceProfile, steps: int, variant: Any, *copied: Any) -> Program:
        return self._update.program(schedule, device, steps, variant, *copied)

    def plan(self, programs: Memo[Program], schedule: Any, steps: int, variant: Hashable) -> Plan:
        return self._update.plan(programs, schedule, steps, variant).renamed(_NAMES)

    def notes(self, program: Program) -> list[str]:
        return self._update.notes(program)
