"""Families of products whose schedules are tried one by one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from sparsegen.choose import Listed, Rejected
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.spmm import ProductFamily
from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import Schedule


class ListedFamily(ProductFamily):
    """A family that says which schedules there are, what each makes of a product in numbers, and what that costs."""

    @abstractmethod
    def space(self, facts: Any, wanted: Mapping[str, Any]) -> Iterator[Schedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``."""

    def completed(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> Schedule:
        """The schedule with what the device says of words that the space leaves open."""
        return schedule

    @abstractmethod
    def shape(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> Any:
        """The numbers of a complete schedule, legal or not."""

    @abstractmethod
    def refusal(self, facts: Any, schedule: Schedule, device: DeviceProfile, shape: Any) -> ScheduleError | None:
        """Why a complete schedule cannot run the product on the device; None if it can."""

    @abstractmethod
    def cost(self, facts: Any, schedule: Schedule, device: DeviceProfile, shape: Any) -> Cost:
        """The cost of a complete schedule that is legal there."""

    def order(self, cost: Cost) -> tuple[float, ...]:
        """What costs are sorted by: seconds, then how plain a schedule is."""
        return (round(cost.time, 9),)

    def price(self, problem: Any, schedule: Schedule, device: DeviceProfile) -> Cost:
        """The cost of a complete schedule; ScheduleError if it cannot run the product on the device."""
        facts = problem.facts
        shape = self.shape(facts, schedule, device)
        if error := self.refusal(facts, schedule, device, shape):
            raise error
        return self.cost(facts, schedule, device, shape)

    def every(self, facts: Any, device: DeviceProfile, given: Mapping[str, Any]) -> Listed:
        """All its schedules for a product in numbers, with the words that are given."""
        costs: list[Cost] = []
        rejected: list[Rejected] = []
        for left in self.space(facts, given):
            s = self.completed(facts, left, device)
            shape = self.shape(facts, s, device)
            if error := self.refusal(facts, s, device, shape):
                rejected.append(Rejected(s, error.message, error.hint))
            else:
                costs.append(self.cost(facts, s, device, shape))
        return Listed(tuple(sorted(costs, key=self.order)), tuple(rejected))
