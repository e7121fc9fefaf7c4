"""One pass on a piece and its halo: the kernel of that shape, and the arrays that its levels turn in.

The boundary of the problem holds at the edges of a frame too, wherever these lie.  At an edge of the domain that is
what is meant.  Elsewhere it makes wrong numbers, in the halo alone: they spread by one radius a step, and a halo is as
wide as all steps of a pass.  So the kernel of a piece is that of the same problem on another shape, by the same
schedule, and every cell is worked out by the same program as on one GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from sparsegen.arrays import describe, host_array, launch_stream
from sparsegen.calls.grid import GridCalls
from sparsegen.choose import Request, choose
from sparsegen.distributed.partition import Box, Piece, within
from sparsegen.distributed.sites import bare, beyond
from sparsegen.distributed.told import Told
from sparsegen.families.update.base import family
from sparsegen.geometry import geometry
from sparsegen.ir.op_sites import record, signal
from sparsegen.ir.op_update import SCALARS
from sparsegen.ir.passes.ends_first import TOLD
from sparsegen.kernel import Kernel
from sparsegen.memo import Memo
from sparsegen.pipelines import ends_first
from sparsegen.plan import Part, Plan, Step
from sparsegen.problem import Problem
from sparsegen.problems.stencil import StencilProblem
from sparsegen.problems.update import UpdateProblem, tried
from sparsegen.run import emulator
from sparsegen.run.host import HostArray
from sparsegen.schedule import Schedule, StencilSchedule

#: Rows of arrays on a GPU begin at multiples of so many bytes.
_ROW = 16
#: Rows and columns of the tiles that products of matrices take, or a multiple of them.
_TILE = 8


def pass_schedules(kernel: Kernel, shape: tuple[int, ...]) -> list[Schedule]:
    """The schedules that passes on pieces of about a shape may have: the kernel's own, unless that makes all steps in
    one launch; then the cheapest of each number of steps a pass that do not.  The numbers of an update depend on none.

    What a schedule may leave to the cost model is chosen anew for each shape.
    """
    schedule: Schedule = kernel.schedule
    found = {schedule.steps: schedule}
    if schedule.op == "update" and family(schedule).whole:
        there = bare(kernel.problem).at(shape)
        there = there.update or there if isinstance(there, StencilProblem) else there
        assert isinstance(there, UpdateProblem)
        found = {}
        for cost in tried(there, kernel.device, kernel.steps).costs:
            if not family(cost.schedule).whole:
                found.setdefault(cost.steps_per_launch, cost.schedule)
    return [s.but(**{word.name: None for word in s.rules.words if word.auto}) for s in found.values()]


def reach(problem: Problem, steps: int) -> tuple[int, ...]:
    """Cells on each axis that so many steps read around a cell: coefficients may be read further off than fields, and
    receivers see cells beyond their own."""
    what = problem.described
    each = zip(what.radius, what.extents, beyond(problem), strict=True)
    return tuple((steps - 1) * radius + max(radius, extent // 2) + more for radius, extent, more in each)


def grain(problem: Problem, schedule: Schedule) -> tuple[int, ...]:
    """Cells on each axis after which a schedule adds the terms of a sum in the same order again.

    A piece that begins at such a multiple has the numbers of the whole domain, bit for bit.  Families without products
    of matrices have one order for all cells.  With products a cell's place in a group of ``k + 1`` columns
    (stencil2row), or in a tile of 8 x 8 (others), says which of its terms the rows and the columns of an mma hold.
    """
    axes = len(problem.shape)
    if schedule.op != "stencil" or not schedule.widens:
        return (1,) * axes
    assert isinstance(problem, StencilProblem) and isinstance(schedule, StencilSchedule)
    columns = geometry(schedule, problem.footprint).k + 1 if schedule.family == "stencil2row" else _TILE
    return (*(1,) * (axes - 2), *(_TILE,) * (axes > 1), columns)


class LocalKernel:
    """The passes of at most ``steps`` time steps of a problem on frames of one shape, with sites in the same cells.

    ``ends``: cells at both ends of the first axis that others wait for while a pass runs on ``device``, a GPU, or none:
    halos and what neighbours get.
    """

    def __init__(self, of: Kernel, problem: Problem, schedule: Schedule, ends: int = 0, device: Any = None) -> None:
        choice = choose(problem, of.device, schedule, Request(schedule.steps))
        self.kernel = Kernel(problem.under(choice.schedule), schedule.steps, of._target, choice, of.loc)
        calls = self.kernel._calls
        assert isinstance(calls, GridCalls)
        self.calls, self.shape = calls, problem.shape

        *rows, cols = self.shape
        item = calls.dtype.itemsize
        wide = of.backend == "cuda" and rows
        #: Elements from row to row: on a GPU all begin where wide loads may.
        self.pitch = -(-cols * item // _ROW) * _ROW // item if wide else cols
        self._plans: Memo[tuple[Plan, int]] = Memo(self._plan)
        self._ends = ends
        #: Who counts the blocks at the ends.
        self.told = Told(device) if ends else None

    def empty(self, device: Any) -> Any:
        """A tensor for a level."""
        torch = import_module("torch")
        *rows, cols = self.shape
        return torch.empty((*rows, self.pitch), dtype=getattr(torch, self.calls.dtype.name), device=device)[..., :cols]

    def _plan(self, steps: int) -> tuple[Plan, int]:
        """The passes of so many steps, without the copies of levels that stay as they are; and of one pass whose ends
        come first, how many blocks are there."""
        apart = None if self.pitch == self.shape[-1] else (self.pitch,) * len(self.calls.arguments)
        plan = self.kernel._plan(steps, apart)
        copies = sum(max(0, len(levels) - steps) for levels in self.calls.fields.values())
        plan = replace(plan, parts=plan.parts[: len(plan.parts) - copies])
        if not self._ends or plan.passes > 1:
            return plan, 0
        (step,) = plan.parts[0].cycle[:1]
        program, count = ends_first(step.program, self._ends, self.kernel.device)
        if not count:
            return plan, 0
        part = Part((Step(program, (*step.arrays, (TOLD, TOLD))),))
        return replace(plan, parts=(part,), given=(*plan.given, TOLD), main=program), count

    def early(self, steps: int) -> bool:
        """Whether ``told`` says of a pass of so many steps when its ends are done."""
        return bool(self._ends and self._plans.get(steps)[1])

    def run(self, arrays: Mapping[str, Any], steps: int, scalars: HostArray | None = None) -> None:
        """Do so many steps (asynchronously on a GPU) from the arrays called ``in...`` to those called ``out...``;
        ``scalars``: their numbers, if their formula takes any."""
        views = {name: describe(a) for name, a in arrays.items()}
        first = next(iter(views.values()))
        if self.kernel.backend == "cuda":
            handle = launch_stream(first)
            executor = self.kernel._executor(first.layout.device_index or 0, handle)
            where = {name: view.pointer for name, view in views.items()}
            plan, count = self._plans.get(steps)
            if count and self.told:
                where[TOLD] = self.told.address
            executor.run(plan.of(scalars), where, handle, first)
            if count and self.told:
                self.told.expect(count)
            return
        host = {name: host_array(view) for name, view in views.items()}
        given = {name: host[name] for name in self.calls.inputs}
        new = {name: a for name, a in host.items() if name not in given}
        if self.kernel.backend == "reference":
            made = self.calls.reference(given if scalars is None else {**given, SCALARS: scalars}, steps)
            for name, a in new.items():
                a[...] = made[name]
            return
        plan = self._plans.get(steps)[0].of(scalars)
        emulator.run_plan(plan, given, new, self.calls.work(plan.passes), self.calls.cells)


class Levels:
    """The arrays of one field on a frame: its levels, newest first, and those that the next pass may write."""

    def __init__(self, held: Sequence[Any], spare: Sequence[Any]) -> None:
        self.held, self._spare = list(held), list(spare)

    def next(self, steps: int) -> list[Any]:
        """The arrays of the levels that a pass of so many steps writes, newest first."""
        return self._spare[: min(len(self.held), steps)]

    def turn(self, steps: int) -> None:
        """What was written is the newest now; the oldest levels may be written next."""
        new = self.next(steps)
        kept = len(self.held) - len(new)
        self.held, self._spare = new + self.held[:kept], self._spare[len(new) :] + self.held[kept:]


class Held:
    """What a piece holds during a call: the levels of each field and the coefficients, with halos.

    ``which``: tensors that say which sites it has of each group; ``given``: the arrays of the call of ``count`` time
    steps, of the cells of ``block``; ``scalars``: the numbers of its time steps, if any.  ``records``: what its
    receivers record.
    """

    def __init__(
        self, kernel: LocalKernel, which: Mapping[str, Any], piece: Piece, block: Box, given: Mapping[str, Any],
        device: Any, count: int, scalars: HostArray | None,
    ) -> None:  # fmt: skip
        self._kernel, self._piece, self._scalars, self._done = kernel, piece, scalars, 0
        calls, most = kernel.calls, kernel.kernel.steps

        def filled(name: str) -> Any:
            made = kernel.empty(device)
            made[within(piece.own, piece.frame)].copy_(given[name][within(piece.own, block)])
            return made

        self._fields = {
            of: Levels(
                [filled(name) for name in calls.parameters[of]],
                [kernel.empty(device) for _ in range(min(most, len(levels)))],
            )
            for of, levels in calls.fields.items()
        }
        fixed = (name for of, levels in calls.parameters.items() if of not in calls.fields for name in levels)
        self._fixed = {name: filled(name) for name in fixed}
        sources = {signal(name): sites for name, sites in which.items() if signal(name) in calls.inputs}
        self._signals = {name: given[name].to(device)[:, sites] for name, sites in sources.items()}
        torch, heard = import_module("torch"), {record(name): len(sites) for name, sites in which.items()}
        self.records = {
            name: torch.empty((count, heard[name]), dtype=getattr(torch, output.dtype.name), device=device)
            for name, output in calls.outputs.items() if name in heard
        }  # fmt: skip

    def every(self) -> list[Any]:
        """All arrays whose halos a pass reads."""
        return [*(a for levels in self._fields.values() for a in levels.held), *self._fixed.values()]

    def next(self, steps: int) -> list[Any]:
        """The arrays that a pass of so many steps writes."""
        return [a for levels in self._fields.values() for a in levels.next(steps)]

    def early(self, steps: int) -> Told | None:
        """Who says when the ends of a pass of so many steps are done, if anybody does before it is over."""
        return self._kernel.told if self._kernel.early(steps) else None

    def run(self, steps: int) -> None:
        """Do so many steps; what they write is the newest then."""
        calls, arrays = self._kernel.calls, dict(self._fixed)
        for of, levels in self._fields.items():
            arrays |= dict(zip(calls.parameters[of], levels.held, strict=True))
            arrays |= dict(zip(calls.fields[of], levels.next(steps), strict=False))
        rows = slice(self._done, self._done + steps)
        arrays |= {name: a[rows] for name, a in (*self._signals.items(), *self.records.items())}
        self._kernel.run(arrays, steps, None if self._scalars is None else self._scalars[rows])
        self._done += steps
        for levels in self._fields.values():
            levels.turn(steps)

    def store(self, new: Mapping[str, Any], block: Box) -> None:
        """Copy the piece's own cells to the arrays that a call gives back, of the cells of ``block``."""
        own, frame = self._piece.own, self._piece.frame
        for of, levels in self._fields.items():
            for name, a in zip(self._kernel.calls.fields[of], levels.held, strict=True):
                new[name][within(own, block)].copy_(a[within(own, frame)])
