"""``dense``: the dense product of the arrays' own library, torch's or CuPy's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparsegen.choose import Listed
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.spmm import ProductFamily
from sparsegen.ir.passes.manager import Pass
from sparsegen.products.cost import dense_cost
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem


class DenseFamily(ProductFamily):
    """A library's product: it has no words, and no program of ours."""

    name = "dense"
    formats = ("bitmap", "nm")
    library = True
    words = ()

    def every(self, facts: Any, device: DeviceProfile, given: Mapping[str, Any]) -> Listed:
        return Listed((dense_cost(facts, device),))

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """The library's matter."""
        return ""

    def price(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> Cost:
        """The cost of the dense product of a library."""
        return dense_cost(problem.facts, device)

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """None: the library has its own kernels."""
        return []


FAMILY = register(DenseFamily())
DENSE = SpmmSchedule("dense")
