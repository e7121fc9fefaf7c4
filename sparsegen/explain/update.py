"""What the page of a general update's kernel says: also why no family with tensor cores can do it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sparsegen.choose import Request
from sparsegen.cost.update import flops, units
from sparsegen.explain.kind import Kind
from sparsegen.explain.page import Fact
from sparsegen.explain.units import plural, seconds
from sparsegen.families.update.base import family
from sparsegen.ir.op_update import parameters
from sparsegen.problems.adjoint import AdjointProblem
from sparsegen.problems.stencil import own_and_others
from sparsegen.problems.update import UpdateProblem
from sparsegen.schedule import WHY_UPDATES
from sparsegen.sizes import ITEMSIZE

if TYPE_CHECKING:
    from sparsegen.choose import Choice
    from sparsegen.cost.cost import Cost
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.kernel import Kernel


class UpdatePage(Kind):
    """Of the formula: every floating-point instruction counts."""

    kind = "update"
    terms_of = "one pass (they overlap; * binds)"
    across, up = "FLOP of the formula per byte of DRAM traffic", "FLOP/s of the formula"
    nonfinite = "a NaN or Inf reaches only the cells whose formula takes it"

    def __init__(self, kernel: Kernel, choice: Choice, plan: Any) -> None:
        super().__init__(kernel, choice, plan)
        problem = kernel.problem
        assert isinstance(problem, UpdateProblem)
        self.problem = problem
        #: Whether a linear stencil was described, which has other schedules besides.
        self.linear = problem.described is not problem.what
        if self.linear:
            self.families, self.others = own_and_others(), 0
        self.unit = f"a pass of {plural(self.cost.steps_per_launch, 'step')}"
        whole = family(self.cost.schedule).whole
        what = "cells on their way from block to block" if whole else "more arrays for each field"
        if whole and problem.what.receivers:
            what += ", and those that receivers see, step by step"
        self.workspace = what if plan.workspaces else ""
        stays = "" if self.cost.terms["hbm"] else "all arrays stay in L2: the bytes are those of a pass through it; "
        self.note = f"{stays}each floating-point instruction counts as two operations, as a multiply-add does"

    def cheapest(self, costs: Sequence[Cost]) -> Cost:
        return min(costs, key=self.seconds)

    def facts(self) -> Iterator[Fact]:
        plan, v, s = self.plan, self.cost.values, self.cost.schedule
        if plan.passes > 1:
            launches = -(-plan.steps // s.levels)
            copies = f", and {plural(plan.passes - launches, 'array')} copied" * (plan.passes > launches)
            yield Fact("launches", f"{launches}{copies}; {seconds(self.seconds(self.cost))} in all")
        if not self.linear:
            yield Fact("families", WHY_UPDATES)
        if isinstance(self.problem, AdjointProblem):
            yield Fact("adjoint", self.problem.remark)
        yield Fact(
            "formula",
            f"{self._operations()} a cell and step; {v['reads']:.0f} arrays read and {v['writes']:.0f} written a pass",
        )

    def _operations(self) -> str:
        """What the formula costs a cell, by the units that do it."""
        of = units(self.problem.what)
        return (
            f"{sum(of.values())} floating-point instructions ("
            + ", ".join(f"{count} {name}" for name, count in of.items() if count)
            + ")"
        )

    def work(self, cost: Cost) -> tuple[float, float]:
        """The formula's instructions, each as the two operations that a compute roof counts for one."""
        what, cells = self.problem.what, cost.cells
        arrays = len(parameters(what.fields, what.coefs)) + len(what.fields)
        return 2 * cells * flops(what) * cost.steps_per_launch, cells * ITEMSIZE[what.dtype] * arrays

    def best(self, device: DeviceProfile, shape: tuple[int, ...]) -> Cost | None:
        return self.problem.at(shape).options(None, device, Request(self.kernel.steps)).best

    def seconds(self, cost: Cost) -> float:
        """The time of a call on the grid that the cost is of, which may be one that is tried."""
        of_update = cost.schedule.op == UpdateProblem.op  # the costs of others know all that their time needs
        return (self.problem.at(cost.shape) if of_update else self.problem).seconds(cost, self.kernel.steps)
