"""What a page says in the words of its kind of problem: of stencils, of updates, of products."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from sparsegen.explain import page
from sparsegen.explain.page import Fact, Paper
from sparsegen.explain.units import size
from sparsegen.registry import families
from sparsegen.sizes import MAX_CELLS

if TYPE_CHECKING:
    from sparsegen.choose import Choice, Options
    from sparsegen.cost.cost import Cost
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.kernel import Kernel

#: Growths of an edge of the grid that are tried.
_GROWTHS = (2, 4, 16)


class Trial(NamedTuple):
    """Something else than what the kernel was compiled for, and the cost of what would be chosen then (None: nothing).

    ``dense``: seconds of the dense product.
    """

    kind: Literal["figure", "grid", "device", "columns", "sparsity", "steps"]
    what: str
    cost: Cost | None
    note: str = ""
    dense: float | None = None


class Kind(ABC):
    """What is said of one kernel, where kinds of problems differ; as it is here for most."""

    kind: ClassVar[page.Kind]
    #: What of time a launch is, and what the terms are of.
    unit: str
    terms_of: str
    #: The axes of the roofline, and a remark below it.
    across: str
    up: str
    note: str
    #: How far a NaN or Inf spreads.
    nonfinite: str
    #: What the workspace holds; empty where there is none.
    workspace: str = ""
    #: How many other schedules of the chosen family are shown.
    others: int = 4

    def __init__(self, kernel: Kernel, choice: Choice, plan: Any) -> None:
        self.kernel, self.choice, self.plan = kernel, choice, plan
        self.cost: Cost = choice.cost
        self.device: DeviceProfile = kernel.device
        self.options: Options = choice.options
        self.ranking: Sequence[Cost] = choice.options.costs
        #: The families that could have a schedule for it, and costs of those that are not in the ranking.
        self.families: Collection[str] = families(kernel.problem.op)
        self.beside: list[Cost] = []

    def seconds(self, cost: Cost) -> float:
        """The time of a call with a schedule's cost."""
        return self.kernel.problem.seconds(cost, self.kernel.steps)

    def cheapest(self, costs: Sequence[Cost]) -> Cost:
        """Of the costs of a family, cheapest first, that of the shortest call."""
        return costs[0]

    def refusal(self, family: str) -> str:
        """Why a family of which no schedule was tried has none."""
        return "none of its schedules can run"

    def facts(self) -> Iterator[Fact]:
        """What stands at the head besides the schedule and its times."""
        yield from ()

    def rest(self) -> Iterator[Fact]:
        """What stands at the end besides the workspace and what a NaN does: what is copied in a call."""
        cuda = "device arrays are used where they are; host arrays are copied in and out once a call"
        yield Fact("arrays", cuda if self.kernel.backend == "cuda" else "host arrays, used where they are")

    @abstractmethod
    def work(self, cost: Cost) -> tuple[float, float]:
        """What a schedule counts for on the roofline: operations, and bytes of DRAM traffic, of a launch."""

    def paper(self, best: Cost) -> Paper | None:
        """ConvStencil's own alternatives beside the best schedule of all families."""
        return None

    def usual(self) -> Cost | None:
        """What trials are compared with."""
        return self.best(self.device, self.kernel.shape)

    def trials(self) -> Iterator[Trial]:
        """What would be chosen otherwise, but for other devices."""
        for growth in _GROWTHS:
            larger = tuple(n * growth for n in self.kernel.shape)
            if math.prod(larger) * self.kernel.problem.items <= MAX_CELLS:
                yield Trial("grid", f"a grid of {size(larger)}", self.best(self.device, larger))

    def elsewhere(self, device: DeviceProfile) -> Trial:
        """What would be chosen on another device."""
        return Trial("device", device.name, self.best(device, self.kernel.shape))

    def best(self, device: DeviceProfile, shape: tuple[int, ...]) -> Cost | None:
        """What would be chosen on a device for a grid of a shape; None for problems without a grid."""
        return None
