"""Families of products that Hopper's warpgroups multiply: tiles of rows of W and columns of x, a ring of slots."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, ClassVar

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import HOPPER, DeviceProfile
from sparsegen.families.spmm.listed import ListedFamily
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.numbers.groups import COLS, LEAST
from sparsegen.products.gather_cost import Shape
from sparsegen.products.nm import NmNumbers
from sparsegen.schedule import Schedule, SpmmSchedule, Word, integer
from sparsegen.sizes import MAX_CELLS


def sizes(*rows: int) -> tuple[Word, ...]:
    """The words that all have: ``rows`` of W of a tile, columns of x, slots of the ring."""
    return (
        Word("rows", integer, choices=rows), Word("cols", integer, choices=COLS),
        Word("stages", integer, None, LEAST, 16),
    )  # fmt: skip


class WarpgroupFamily(ListedFamily):
    """A family with the words ``rows``, ``cols`` and ``stages``, and perhaps others, for f16 and bf16."""

    formats = ("nm",)
    telling = ("rows", "cols")
    counted = "two for each kept element and column"
    because = "what is not stored does not multiply"
    scratch = "x, row by row and of whole pieces"
    #: The values of words that are tried, of columns those that x may fill.
    tried: ClassVar[Mapping[str, tuple[int, ...]]]

    def space(self, facts: NmNumbers, wanted: Mapping[str, Any]) -> Iterator[SpmmSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``."""
        enough = next((c for c in COLS if c >= facts.n), COLS[-1])
        values = {"cols": tuple(c for c in COLS if c <= enough), **self.tried}
        for chosen in product(*((wanted[word],) if word in wanted else values[word] for word in values)):
            yield SpmmSchedule(self.name, **dict(zip(values, chosen, strict=True)))

    @abstractmethod
    def indexed(self, facts: NmNumbers, schedule: Schedule) -> int:
        """The elements (or words) of the largest array that its kernels index."""

    def cannot(self, facts: NmNumbers) -> ScheduleError | None:
        """Why its kernels cannot take such a W; None if they can."""
        return None

    def refusal(
        self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape
    ) -> ScheduleError | None:
        """Why a complete schedule cannot run the product on the device; None if it can."""
        if device.compute_capability < HOPPER or device.compute_capability >= (10, 0):
            return ScheduleError(
                f"{self.name} multiplies by warpgroups, which {device.name} ({device.arch}) has not",
                hint="take nm_lanes, or a Hopper device (H100, H200)",
            )
        if facts.item != 2:
            return ScheduleError(f"{self.name} multiplies f16 and bf16, not {facts.dtype}", hint="take nm_lanes")
        if error := self.cannot(facts):
            return error
        if (most := self.indexed(facts, schedule)) > MAX_CELLS:
            return ScheduleError(
                f"what is packed of W, or whole pieces of x, has {most} elements; "
                f"indices are 32 bits wide, so {MAX_CELLS} is the most",
                hint="cut W by rows, or x by columns",
            )
        if not shape.resident:
            return ScheduleError(
                f"{shape.shared} bytes of shared memory and {shape.registers} registers a thread do not fit an SM",
                hint="lower stages, cols or rows",
            )
        return None

    def order(self, cost: Cost) -> tuple[float, int, int]:
        """What costs are sorted by: seconds, then many slots, which hide more, then small tiles."""
        return round(cost.time, 9), -cost.schedule.stages, cost.schedule.rows

    def operations(self, cost: Cost) -> float:
        """A multiply-add of every kept element and column."""
        p: NmNumbers = cost.facts
        return 2.0 * p.kept * p.n
