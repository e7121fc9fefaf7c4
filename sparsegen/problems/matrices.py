"""Problems of matrices: what products and sampled products have in common."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sparsegen.choose import Options, Rejected, Request
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.passes.manager import Pass
from sparsegen.problem import Problem
from sparsegen.schedule import Schedule


class OfMatrices(Problem):
    """A problem whose families say the passes and the price of a schedule."""

    @property
    def sought(self) -> str:
        """What kind of schedule is sought, where none is found."""
        return ""

    def __str__(self) -> str:
        return str(self.what)

    def passes(self, schedule: Schedule, device: DeviceProfile, steps: int) -> list[Pass]:
        passes: list[Pass] = schedule.rules.passes(self, schedule, device)
        return passes

    def price(self, schedule: Schedule, device: DeviceProfile, request: Request) -> Cost:
        form = self.under(schedule)
        cost: Cost = schedule.rules.price(form, schedule, form.memory(schedule.rules, device))
        return cost

    def under(self, schedule: Any) -> OfMatrices:
        return self

    def memory(self, family: Any, device: DeviceProfile) -> DeviceProfile:
        """The device as costs of a family's schedules have it: with cold memory."""
        return device

    def none(self, device: DeviceProfile, options: Options, wanted: Schedule | None) -> ScheduleError:
        why, what = options.rejected[0], f"{wanted or self.sought} schedule".strip()
        return ScheduleError(f"no {what} can run the product: {why.reason}", hint=why.remedy)


def nanoseconds(cost: Cost) -> float:
    """By which costs of several families are compared, as far as each is to be believed: what differs by less than a
    nanosecond is alike, and stays in the order of its family."""
    doubt: float = cost.schedule.rules.doubt
    return round(cost.time * doubt, 9)


@dataclass(frozen=True)
class Merged(Options):
    """The schedules of several families."""

    families: tuple[Options, ...]

    @cached_property
    def best(self) -> Cost | None:
        """The cheapest; of equally cheap ones that of the first family."""
        found = [options.best for options in self.families]
        return min((cost for cost in found if cost is not None), key=nanoseconds, default=None)

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        return tuple(sorted((c for options in self.families for c in options.costs), key=nanoseconds))

    @cached_property
    def rejected(self) -> tuple[Rejected, ...]:
        return tuple(r for options in self.families for r in options.rejected)
