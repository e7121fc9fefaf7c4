"""Families of schedules of sampled products: a module each."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import AMPERE, HOPPER, DeviceProfile
from sparsegen.families.spmm.listed import ListedFamily
from sparsegen.ir.errors import ScheduleError
from sparsegen.products import sampled_lists
from sparsegen.products.sddmm import SddmmNumbers
from sparsegen.products.weights import Prepared
from sparsegen.schedule import Schedule, Word, switch
from sparsegen.sizes import MAX_CELLS

#: The word of all families: launches begin while the ones before end.
OVERLAP: Final = Word("overlap", switch)


class SampledFamily(ListedFamily):
    """A family of schedules of sampled products: their kernels read lists that are made of the pattern."""

    op = "sddmm"
    nonfinite = "a and b are integers"
    counted = "two for each kept element and number of k"
    because = "what is not kept is not multiplied, but for what fills tiles of 16 vectors up"
    scratch = "a or b, along k and of whole pieces"
    #: Words that take registers or shared memory.
    large: ClassVar[tuple[str, ...]]

    def fits(self, facts: SddmmNumbers, schedule: Schedule) -> ScheduleError | None:
        """Why lists of the pattern cannot be made; None if they can."""
        return None

    @abstractmethod
    def listed(self, shape: Any, schedule: Schedule) -> int:
        """Elements of the longest list of the pattern."""

    def refusal(
        self, facts: SddmmNumbers, schedule: Schedule, device: DeviceProfile, shape: Any
    ) -> ScheduleError | None:
        """Why a complete schedule cannot run the product on the device; None if it can."""
        if device.compute_capability < AMPERE:
            return ScheduleError(
                f"{self.name} multiplies by mma of integers and copies by cp.async, which {device.name} "
                f"({device.arch}) has not",
                hint="take a GPU from Ampere on, or backend='reference'",
            )
        if error := self.fits(facts, schedule):
            return error
        if (most := self.listed(shape, schedule)) > MAX_CELLS:
            return ScheduleError(
                f"lists of the pattern have {most} elements; indices are 32 bits wide, so {MAX_CELLS} is the most",
                hint="cut the pattern by rows",
            )
        if not shape.resident:
            return ScheduleError(
                f"{shape.shared} bytes of shared memory and {shape.registers} registers a thread do not fit an SM",
                hint=f"lower {' or '.join(self.large)}",
            )
        if schedule.overlap and device.compute_capability < HOPPER:
            return ScheduleError(
                f"launches overlap from Hopper on, {device.name} is {device.arch}", hint="take overlap=off"
            )
        return None

    def operations(self, cost: Cost) -> float:
        """A multiply-add of every kept element and number of k."""
        p: SddmmNumbers = cost.facts
        return 2.0 * p.vectors * p.height * p.k

    @abstractmethod
    def lists(self, facts: Any, schedule: Schedule) -> dict[str, Prepared]:
        """What its kernels read of the pattern, by role: how each is made of it."""

    def pointers(self, stride: int) -> dict[str, Prepared]:
        """What kernels read besides where the result has blocks of ``stride`` vectors."""
        if not stride:
            return {}
        about = "s32: of each vector row its first vector and the end"
        return {"ptr": Prepared(("ptr", stride), partial(sampled_lists.pointers, stride=stride), about)}
