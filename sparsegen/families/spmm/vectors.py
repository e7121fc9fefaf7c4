"""What the families of products with vectors have in common: what they refuse, and how W's values lie."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import AMPERE, DeviceProfile
from sparsegen.families.spmm.listed import ListedFamily
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.numbers.vectors import HIGH
from sparsegen.ir.op_spmm import VECTORS
from sparsegen.products.tasks import Pieces
from sparsegen.products.vectors import VectorNumbers, values
from sparsegen.products.vectors_cost import mma_of, sums_of
from sparsegen.products.weights import Prepared
from sparsegen.schedule import Schedule

MAX_WARPS: Final = 32
_VALUES: Final = (
    "words of the values: of each step of 32 vectors and each digit the second operand of an mma, lane by lane (values "
    "in sparsegen/products/vectors.py)"
)
_CUTS: Final = (
    "of each vector row, where those of more than {most} steps are cut into several tasks: the slot of its first one, "
    "how many there are, its first step, its steps (pieces in sparsegen/products/tasks.py)"
)


class VectorFamily(ListedFamily):
    """Base of families that multiply vectors."""

    formats = VECTORS
    nonfinite = "integers have none"
    counted = "two for each element of a kept vector and column"
    because = "what is not stored does not multiply"
    scratch = "x, row by row and of whole pieces"

    def operations(self, cost: Cost) -> float:
        """A multiply-add of every element of a vector and column."""
        p: VectorNumbers = cost.facts
        return 2.0 * p.vectors * HIGH * p.n


class StepFamily(VectorFamily):
    """Base of families that multiply vectors of integers or floats in steps of 32."""

    nonfinite = "integers have none; of floats a NaN or Inf of x reaches all of the 8 rows of W that read it together"

    @abstractmethod
    def unfit(self, facts: VectorNumbers, schedule: Schedule, shape: Any) -> ScheduleError | None:
        """Why blocks of a complete schedule do not fit a device of which only the numbers in ``shape`` matter."""

    def refusal(
        self, facts: VectorNumbers, schedule: Schedule, device: DeviceProfile, shape: Any
    ) -> ScheduleError | None:
        """Why a complete schedule cannot run the product on the device; None if it can."""
        if device.compute_capability < AMPERE:
            which = mma_of(facts).partition(".")[2]
            return ScheduleError(
                f"{self.name} multiplies by mma.{which}, which {device.name} ({device.arch}) has not",
                hint="take a GPU from Ampere on",
            )
        if not sums_of(facts, schedule.wide).units:
            return ScheduleError(f"wide={schedule.wide} bytes are no 16 columns of {facts.x}", hint="raise wide")
        return self.unfit(facts, schedule, shape)


#: W's values.
VALUES: Final = Prepared(("vector values",), values, _VALUES, words=True)


def cuts(most: int, found: Callable[[SparseMatrix], Pieces], lists: int = 0) -> Prepared:
    """Which vector rows are cut, where they have more than ``most`` steps, with slots of all or of one of ``lists``
    lists; kernels without such rows do not take it."""
    return Prepared(("vector cuts", most, lists), lambda w: found(w).cuts, _CUTS.format(most=most))
