"""``dense``: the dense product of the arrays' own library, torch's or CuPy's; of integers torch's alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparsegen.choose import Listed, Rejected
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.spmm import ProductFamily
from sparsegen.formats.matrix import NAMES
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.op_spmm import VECTORS
from sparsegen.ir.passes.manager import Pass
from sparsegen.ir.types import ELEMENTS
from sparsegen.products import dense_integers
from sparsegen.products.cost import dense_cost
from sparsegen.products.product import BitmapNumbers
from sparsegen.products.vectors import VectorNumbers
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule
from sparsegen.sizes import MAX_CELLS

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem


class DenseFamily(ProductFamily):
    """A library's product: it has no words, and no program of ours."""

    name = "dense"
    formats = ("bitmap", "nm", "csr", "hybrid", "blocked_ell", *VECTORS)
    library = True
    words = ()

    def every(self, facts: Any, device: DeviceProfile, given: Mapping[str, Any]) -> Listed:
        try:
            return Listed((_cost(facts, device),))
        except ScheduleError as error:
            return Listed((), (Rejected(DENSE, error.message, error.hint),))

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """The library's matter."""
        return ""

    def price(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> Cost:
        """The cost of the dense product of a library; ScheduleError for integers that none multiplies, and for a matrix
        that would be too large."""
        return _cost(problem.facts, device)

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """None: the library has its own kernels."""
        return []


def _cost(facts: Any, device: DeviceProfile) -> Cost:
    if facts.m * facts.k > MAX_CELLS:
        raise ScheduleError(
            f"the dense matrix has {facts.m} x {facts.k} elements; {MAX_CELLS} are the most that it is made for",
            hint="leave the schedule to the cost model",
        )
    if isinstance(facts, BitmapNumbers) and facts.narrow:
        raise ScheduleError(
            f"no library multiplies W of {NAMES[ELEMENTS[facts.dtype]]} by x of f16",
            hint="leave the schedule to the cost model; or convert W to f16, and encode it anew",
        )
    if not isinstance(facts, VectorNumbers) or not facts.integers:
        return dense_cost(facts, device)
    if error := dense_integers.lacking(facts, device):
        raise error
    return dense_integers.price(facts, device)


FAMILY = register(DenseFamily())
DENSE = SpmmSchedule("dense")
