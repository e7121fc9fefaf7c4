"""Calls of updates with sources and receivers: signals go in, records come out, a row for each time step."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from sparsegen.arrays import Expect, describe, empty_like
from sparsegen.backends.reference import sites as reference
from sparsegen.calls.base import Calls, HostArrays, Views
from sparsegen.calls.grid import GridCalls
from sparsegen.calls.update import UpdateCalls
from sparsegen.dsl.sites import Sites
from sparsegen.ir.errors import ArrayError
from sparsegen.ir.op_sites import record, signal
from sparsegen.ir.types import DTYPES, sum_type
from sparsegen.memo import Memo
from sparsegen.pipelines import Program
from sparsegen.plan import Plan
from sparsegen.problems.update import UpdateProblem
from sparsegen.schedule import UpdateSchedule
from sparsegen.sizes import MAX_CELLS
from sparsegen.views import ArrayLayout


class Rows(Expect):
    """An array with a row for each time step, packed."""

    def _order(self, layout: ArrayLayout) -> None:
        if not layout.contiguous:
            raise ArrayError(f"{self.name} is not packed by rows", hint="pass a copy: np.ascontiguousarray(a)")

    def _other_shape(self, layout: ArrayLayout) -> tuple[str, str]:
        *items, _, _ = self.shape
        whose = "for each item " if items else ""
        what = f"{self.name} has shape {list(layout.shape)}"
        return what, f"pass an array {list(self.shape)}: {whose}a row for each time step, a number for each point"


class WithSites(GridCalls):
    """Calls of an update with sites; ``in.steps.NAME`` are signals, ``out.steps.NAME`` records of ``steps`` time steps.

    Of a batch they are [items, steps, points], but for the signals that items share.
    """

    problem: Any  #: of an update, or of its adjoint

    def add_sites(self, backend: str, steps: int) -> None:
        """Take signals and records of so many time steps."""
        self.steps, problem = steps, self.problem
        rows = partial(Rows, dtype=sum_type(DTYPES[problem.dtype]).numpy(), backend=backend)

        def shape(name: str, group: Sites) -> tuple[int, ...]:
            items = (problem.items,) if problem.batch and name not in problem.shared else ()
            return self._reached(group, (*items, steps, len(group.points)))

        self.sources = {signal(group.name): group for group in problem.what.sources}
        self.receivers = {record(group.name): group for group in problem.what.receivers}
        for name, group in self.sources.items():
            self.inputs[name] = rows(group.name, shape(name, group))
        for name, group in self.receivers.items():
            self.outputs[name] = rows(f"out of {group.name}", shape(name, group), writable=True)
        self.arguments = {**self.inputs, **self.outputs}
        self.named = (*self.named, *(group.name for group in problem.what.sources))
        self._others = Memo(partial(type(self), problem, backend), 8)

    def at(self, steps: int) -> Calls:
        return self if steps == self.steps else self._others.get(steps)

    def _reached(self, group: Sites, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of rows of all items; ArrayError where they are more than indices reach."""
        if self.problem.batch and prod(shape) > MAX_CELLS:
            raise ArrayError(
                f"{group.name} has {' x '.join(map(str, shape))} numbers for all items; indices are 32 bits wide",
                hint="make fewer time steps a call, or compile for a smaller batch",
            )
        return shape

    # -------------------------------------------------------------------------------------------- arrays of a call
    def given(self, values: Mapping[str, Any], *, some: bool = False) -> dict[str, Any]:
        found = super().given(values, some=some)
        like = next(iter(found.values()))
        return found | {name: self._signal(group, values, like) for name, group in self.sources.items()}

    def _signal(self, group: Sites, values: Mapping[str, Any], like: Any) -> Any:
        """The signal of a group of sources as an array [steps, points] (of each item), where the fields are."""
        given = values.get(group.name, group.signal)
        if given is None:
            raise ArrayError(f"no signal for {group.name}", hint=f"pass it by name: {group.name}=array [steps, points]")
        check = self.inputs[signal(group.name)]
        if isinstance(given, (list, tuple)) or (isinstance(given, np.ndarray) and given.dtype.kind in "fiu"):
            host = np.asarray(given, check.dtype)
            if host.ndim == 1 and len(host) == self.steps:
                host = host[:, None]
            if host.shape[-2:] in (check.shape[-2:], (self.steps, 1)) and host.shape[:-2] in ((), check.shape[:-2]):
                host = np.broadcast_to(host, check.shape)
            return _moved(np.array(host, order="C"), like)  # a copy, which may be written
        return given

    def by_parameter(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        return super().by_parameter(arrays) | {group.name: arrays[name] for name, group in self.sources.items()}

    def results(self, made: Any) -> dict[str, Any]:
        """Of the fields, in their form, and behind them a record for each group of receivers."""
        if not self.receivers:
            return self.of_fields(made)
        count = 1 + len(self.receivers)
        if not isinstance(made, (tuple, list)) or len(made) != count:
            names = ", ".join(group.name for group in self.receivers.values())
            raise ArrayError(f"out is not of {count} parts", hint=f"pass a tuple: the fields' results, then {names}")
        fields, *records = made
        return self.of_fields(fields) | dict(zip(self.receivers, records, strict=True))

    def new(self, views: Views) -> Any:
        fields = super().new(views)
        like = next(iter(views.values()))
        records = tuple(self.empty(like, self.outputs[name]) for name in self.receivers)
        return (fields, *records) if records else fields

    def parted(self, made: Any) -> tuple[Any, dict[str, Any]]:
        if not self.receivers:
            return made, {}
        fields, *records = made
        return fields, dict(zip((group.name for group in self.receivers.values()), records, strict=True))

    def between(self, numbers: Mapping[str, Any], first: int, last: int) -> dict[str, Any]:
        signals = {group.name: numbers[group.name] for group in self.sources.values()}
        others = {name: a for name, a in numbers.items() if name not in signals}
        found = super().between(others, first, last)
        return found | {name: _part(a, first, last, self.backwards) for name, a in signals.items()}

    def each_step(self, values: Mapping[str, Any], steps: int) -> dict[str, Any]:
        found: dict[str, Any] = dict(super().each_step(values, steps))
        for group in self.sources.values():
            given = values.get(group.name, group.signal)
            found[group.name] = given if hasattr(given, "shape") else np.asarray(given)
        return found

    # -------------------------------------------------------------------------------------------- numbers
    def random(self, seed: int = 0) -> HostArrays:
        """Numbers from 0 to 1, signals too."""
        found, rng = super().random(seed), np.random.default_rng((seed, 1))
        return found | {
            name: rng.random(self.inputs[name].shape).astype(self.inputs[name].dtype) for name in self.sources
        }


class SiteCalls(WithSites, UpdateCalls):
    """Those of an update."""

    def __init__(self, problem: UpdateProblem, backend: str, steps: int = 1) -> None:
        super().__init__(problem, backend)
        self.add_sites(backend, steps)
        self.timed = (*self.sources, *self.receivers)

    def plan(self, programs: Memo[Program], schedule: UpdateSchedule, steps: int, variant: Any) -> Plan:
        return replace(super().plan(programs, schedule, steps, variant).of_rows(), backwards=self.problem.backwards)

    def one(self, arrays: Mapping[str, Any], steps: int) -> HostArrays:
        placed, made = self.problem.placed, dict[str, Any]()
        for name, group in self.receivers.items():
            made[name] = np.empty((steps, len(group.points)), self.outputs[name].dtype)

        def sites(step: int, fields: Mapping[str, Any]) -> None:
            row = steps - 1 - step if self.problem.backwards else step
            for name, group in self.sources.items():
                reference.add(fields[group.field], placed[group.name], arrays[name][row])
            for name, group in self.receivers.items():
                reference.record(fields[group.field], placed[group.name], made[name][row])

        return self._one(arrays, steps, sites) | made


def _part(signal: Any, first: int, last: int, backwards: bool) -> Any:
    """The rows of the steps from ``first`` to before ``last`` of a signal: its last axis but one, or its only one."""
    axis = max(0, signal.ndim - 2)
    if backwards:
        first, last = signal.shape[axis] - last, signal.shape[axis] - first
    if not axis:
        return signal[first:last]
    part = signal[:, first:last]
    return part.contiguous() if hasattr(part, "contiguous") else part.copy()


def _moved(array: Any, like: Any) -> Any:
    """A host array where another one is, and a tensor beside a tensor: the same memory on the host, a copy on a GPU."""
    view = describe(like)
    if view.layout.library == "torch":
        return sys.modules["torch"].from_numpy(array).to(view.owner.device)
    if view.layout.device_kind == "host" or view.layout.library != "cupy":
        return array
    made = empty_like(view, array.shape, array.dtype)
    made.set(array)
    return made
