"""What pages of kernels whose work a pattern decides have in common: sampled products, attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from sparsegen.explain.kind import Kind, Trial
from sparsegen.explain.page import Fact

if TYPE_CHECKING:
    from sparsegen.choose import Choice
    from sparsegen.cost.cost import Cost
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.kernel import Kernel


class PatternPage(Kind):
    """The families that there are, and no trials: other patterns would be other problems."""

    up = "operations a second"
    #: What a roofline's bytes are of.
    moved: ClassVar[str]

    def __init__(self, kernel: Kernel, choice: Choice, plan: Any) -> None:
        super().__init__(kernel, choice, plan)
        self.problem: Any = kernel.problem
        own = self.cost.schedule.rules
        apart = [term for term in self.cost.terms if term in self.cost.law.beside]
        self.terms_of = f"{self.unit} (they overlap, but for {', '.join(apart)}; * binds)"
        self.across = f"operations ({own.counted}) per byte of {self.moved}"
        self.note, self.nonfinite = own.because, own.nonfinite
        self.workspace = own.scratch if kernel.workspace_nbytes else ""

    def facts(self) -> Iterator[Fact]:
        s = self.cost.schedule
        yield Fact("blocks", s.rules.blocks(self.problem.facts, s, self.device))

    def work(self, cost: Cost) -> tuple[float, float]:
        return cost.schedule.rules.operations(cost), cost.bandwidth * cost.time

    def usual(self) -> Cost:
        return self.cost

    def trials(self) -> Iterator[Trial]:
        yield from ()

    def elsewhere(self, device: DeviceProfile) -> Trial:
        return Trial("device", device.name, self.problem.options(None, device, self.choice.request).best)
