"""Calls of an adjoint that is an update: the arrays are those of the forward kernel, levels of fields among them.

The kernel below has a field for each level, and coefficients that no call brings (:class:`.Table`): these are made when
they are first needed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from sparsegen.backends.cuda.runtime import Runtime
from sparsegen.calls.base import HostArrays
from sparsegen.calls.grid import GridCalls
from sparsegen.calls.numbers import each, some, table
from sparsegen.calls.sites import SiteCalls, WithSites
from sparsegen.calls.update import UpdateCalls
from sparsegen.cost.devices import DeviceProfile
from sparsegen.dsl.stencil import DTYPES, Stencil
from sparsegen.ir.formula import scalars
from sparsegen.ir.op_update import SCALARS
from sparsegen.memo import Memo
from sparsegen.pipelines import Program
from sparsegen.plan import Plan
from sparsegen.problems.adjoint import AdjointProblem
from sparsegen.run.host import HostArray
from sparsegen.run.workspace import Space


class AdjointCalls(GridCalls):
    """An array for each parameter that the adjoint reads, or a tuple of its levels, as of the forward kernel."""

    kind: ClassVar[str] = "UpdateKernel"
    backwards: ClassVar[bool] = True
    dtypes: ClassVar[tuple[str, ...]] = DTYPES
    problem: AdjointProblem

    def __init__(self, problem: AdjointProblem, backend: str) -> None:
        forward, what, levels = problem.forward, problem.what, problem.made.levels
        self._update = self._below_it(problem, backend)
        parameters = ["u"] if isinstance(forward, Stencil) else [p.name for p in forward.parameters]
        fields = {name: tuple(f"out.{name}.{at}" for of, at in levels if of == name) for name, _ in levels}
        given = {
            name: tuple(f"in{role[3:]}" for role in fields[name]) if name in fields else (f"in.{name}.0",)
            for name in parameters if name in fields or name in what.coefs
        }  # fmt: skip
        super().__init__(problem, backend, given, fields)
        self.masks = tuple(p.name for p in what.parameters if p.mask)
        self.named = () if isinstance(forward, Stencil) else tuple(p.name for p in forward.numbers)
        if isinstance(forward, Stencil):
            self.positional = (*parameters, *self.OPTIONS)
        #: What arrays are called here that the update below calls otherwise.
        self._names = {
            f"{way}.{inner}.0": f"{way}.{name}.{at}"
            for (inner, _), (name, at) in zip(what.fields, levels, strict=True) for way in ("in", "out")
        }  # fmt: skip
        self._spaces: list[Space] = []

    @staticmethod
    def _below_it(problem: AdjointProblem, backend: str) -> UpdateCalls:
        """The calls of the update that it is."""
        return UpdateCalls(problem, backend)

    # -------------------------------------------------------------------------------------------- scalars
    def scalars(self, values: Mapping[str, Any], steps: int) -> HostArray | None:
        """Those of the last step first."""
        found = {name: a[::-1] for name, a in self._numbers(values, steps).items()}
        return table(self.problem.what, found, steps) if self.named else None

    def each_step(self, values: Mapping[str, Any], steps: int) -> dict[str, HostArray]:
        return self._numbers(values, steps)

    def _numbers(self, values: Mapping[str, Any], steps: int) -> dict[str, HostArray]:
        """The scalars of the forward steps; what has no part in the adjoint need not be given."""
        forward = self.problem.forward
        if isinstance(forward, Stencil):
            return {}
        return each(forward, values, steps, scalars(self.problem.what.code))

    def between(self, numbers: Mapping[str, HostArray], first: int, last: int) -> dict[str, HostArray]:
        return {name: a[len(a) - last : len(a) - first] for name, a in numbers.items()}

    def some_scalars(self, steps: int) -> dict[str, Any]:
        return {} if isinstance(self.problem.forward, Stencil) else some(self.problem.forward, steps)

    # -------------------------------------------------------------------------------------------- what a call runs
    def program(self, schedule: Any, device: DeviceProfile, steps: int, variant: Any, *copied: Any) -> Program:
        return self._update.program(schedule, device, steps, variant, *copied)

    def plan(self, programs: Memo[Program], schedule: Any, steps: int, variant: Any) -> Plan:
        return self._update.plan(programs, schedule, steps, self._below(variant)).renamed(self._names)

    def _below(self, variant: Any) -> Hashable:
        """The pitches of all arrays of the update; tables are packed."""
        if variant is None:
            return None
        apart, cols = dict(zip(self.arguments, variant, strict=True)), self.problem.shape[-1]
        return tuple(apart.get(self._names.get(name, name), cols) for name in self._update.arguments)

    @cached_property
    def _tables(self) -> HostArrays:
        made = self.problem.made.tables
        return {f"in.{table.name}.0": table.make(self.problem.shape).astype(self.dtype) for table in made}

    def fixed(self, schedule: Any, runtime: Runtime) -> dict[str, int]:
        space = Space()
        self._spaces.append(space)  # which keeps the memory as long as the kernel lives
        found = dict(space.provide({name: a.nbytes for name, a in self._tables.items()}, runtime, None, None))
        for name, a in self._tables.items():
            runtime.to_device(found[name], a.reshape(-1).view(np.uint8))
        return found

    def fixed_host(self, schedule: Any) -> HostArrays:
        return {name: a.reshape(-1) for name, a in self._tables.items()}

    def deciding(self, schedule: Any) -> HostArrays:
        return {}

    def origins(self, schedule: Any) -> dict[str, str]:
        return {f"in.{table.name}.0": table.about for table in self.problem.made.tables}

    def notes(self, program: Program) -> list[str]:
        return [*self._update.notes(program), f"{self.problem.remark}."]

    # -------------------------------------------------------------------------------------------- numbers
    def one(self, arrays: Mapping[str, Any], steps: int) -> HostArrays:
        below = {name: arrays[self._names.get(name, name)] for name in self._update.inputs if name not in self._tables}
        made = self._update.one({**below, **self._tables, SCALARS: arrays.get(SCALARS)}, steps)
        return {self._names.get(name, name): a for name, a in made.items()}


class AdjointSiteCalls(WithSites, AdjointCalls):
    """Those of an adjoint with sites, which have the rows of the forward steps in their order."""

    def __init__(self, problem: AdjointProblem, backend: str, steps: int = 1) -> None:
        super().__init__(problem, backend)
        self.add_sites(backend, steps)

    _below_it = SiteCalls
