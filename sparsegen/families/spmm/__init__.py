"""What a family of schedules of sparse products is."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

from sparsegen.choose import Options
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.ir.passes.manager import Pass
from sparsegen.products.weights import Prepared
from sparsegen.schedule import Schedule, Vocabulary


class ProductFamily(Vocabulary):
    """A family of schedules of sparse products: its words, the formats that it reads, and what it makes of them."""

    op = "spmm"
    #: The formats of W that it reads; none: any.
    formats: ClassVar[tuple[str, ...]] = ()
    #: What it does besides products of one matrix: of ``gated`` pairs, and of experts, ``ragged``.
    also: ClassVar[frozenset[str]] = frozenset()

    #: Whether it is tried only where a schedule names it: its formula is an estimate.
    asked: ClassVar[bool] = False

    #: What a NaN or Inf of x does, and which operations a roofline counts and why.
    nonfinite: ClassVar[str] = "as in a dense product: a NaN or Inf of x reaches its whole column, zeros multiply too"
    counted: ClassVar[str] = "those with zeros included"
    because: ClassVar[str] = "a sparse kernel multiplies whole fragments, zeros included, as a dense product does"

    #: What its workspace holds, where it takes one.
    scratch: ClassVar[str] = "partial sums"

    def operations(self, cost: Cost) -> float:
        """The operations of a product that are counted."""
        return 2.0 * math.prod(cost.shape)

    @abstractmethod
    def every(self, facts: Any, device: DeviceProfile, given: Mapping[str, Any]) -> Options:
        """All its schedules for a product in numbers, with the words that are given."""

    def options(self, problem: Any, wanted: Schedule | None, device: DeviceProfile) -> Options:
        """Its schedules for a problem, with the words that ``wanted`` has."""
        return _options(self, problem.facts, tuple(wanted.given.items()) if wanted else (), device)

    @abstractmethod
    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """How a product is spread over blocks, for people to read; empty where that is not ours."""

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """What its kernels read of the matrix, by role: how each is made of it."""
        return {}

    def read(self, facts: Any, schedule: Schedule) -> dict[str, Prepared]:
        """The same for a product in numbers, which may have something made in another way."""
        return self.arrays(schedule)

    @abstractmethod
    def price(self, problem: Any, schedule: Schedule, device: DeviceProfile) -> Cost:
        """The cost of a complete schedule; ScheduleError if it cannot run the product on the device."""

    @abstractmethod
    def passes(self, problem: Any, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The passes from the op level to the tile level."""


@lru_cache(maxsize=64)
def _options(family: ProductFamily, facts: Any, given: tuple[tuple[str, Any], ...], device: DeviceProfile) -> Options:
    return family.every(facts, device, dict(given))
