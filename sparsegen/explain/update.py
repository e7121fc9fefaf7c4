"""What the page of a general update's kernel says: also why no other family can do it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sparsegen.choose import Request
from sparsegen.explain.kind import Kind
from sparsegen.explain.page import Fact
from sparsegen.explain.units import seconds
from sparsegen.problems.update import UpdateProblem
from sparsegen.schedule import WHY_UPDATES

if TYPE_CHECKING:
    from sparsegen.choose import Choice
    from sparsegen.cost.cost import Cost
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.kernel import Kernel


class UpdatePage(Kind):
    """Of the formula: every floating-point instruction counts."""

    kind = "update"
    unit = "a step"
    terms_of = "one step (they overlap; * binds)"
    across, up = "FLOP of the formula per byte of DRAM traffic", "FLOP/s of the formula"
    nonfinite = "a NaN or Inf reaches only the cells whose formula takes it"

    def __init__(self, kernel: Kernel, choice: Choice, plan: Any) -> None:
        super().__init__(kernel, choice, plan)
        self.workspace = "one more array for each field" if plan.workspaces else ""
        stays = "" if self.cost.values["dram"] else "all arrays stay in L2: the bytes are those of a step through it; "
        self.note = f"{stays}each floating-point instruction counts as two operations, as a multiply-add does"

    def seconds(self, cost: Cost) -> float:
        return float(self.plan.passes * cost.time)

    def facts(self) -> Iterator[Fact]:
        plan, steps = self.plan, self.plan.steps
        if plan.passes > 1:
            copies = f", and {plan.passes - steps} copies of input levels" * (plan.passes > steps)
            yield Fact("launches", f"{steps}{copies}; {seconds(self.seconds(self.cost))} in all")
        v = self.cost.values
        yield Fact("families", WHY_UPDATES)
        yield Fact(
            "formula",
            f"{v['flops']:.0f} floating-point instructions and {v['loads']:.3g} loads a cell, "
            f"{v['reads']:.0f} arrays read and {v['writes']:.0f} written a step",
        )

    def work(self, cost: Cost) -> tuple[float, float]:
        """The formula's instructions, each as the two operations that a compute roof counts for one."""
        v = cost.values
        return 2 * v["N"] * v["flops"], v["N"] * v["s"] * (v["reads"] + v["writes"])

    def best(self, device: DeviceProfile, shape: tuple[int, ...]) -> Cost | None:
        return UpdateProblem(self.kernel.update, shape).options(None, device, Request()).best
