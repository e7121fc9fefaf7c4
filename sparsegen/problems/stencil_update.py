"""Time steps of a linear stencil as those of the update that it is: for families that only updates have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparsegen.choose import Options, Request
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.problem import Problem
from sparsegen.problems.update import UpdateProblem
from sparsegen.schedule import Schedule

if TYPE_CHECKING:
    from sparsegen.problems.stencil import StencilProblem


@dataclass(frozen=True)
class StencilUpdate(UpdateProblem):
    """``what`` is the update, ``stencil`` the problem that it was made of: both have the same schedules."""

    stencil: StencilProblem

    @property
    def described(self) -> Any:
        return self.stencil.what

    def at(self, shape: tuple[int, ...]) -> Problem:
        return self.stencil.at(shape)

    def identity(self) -> dict[str, Any]:
        return self.stencil.identity()

    def seconds(self, cost: Cost, steps: int) -> float:
        return super().seconds(cost, steps) if cost.schedule.op == self.op else self.stencil.seconds(cost, steps)

    def options(self, wanted: Schedule | None, device: DeviceProfile, request: Request) -> Options:
        return self.stencil.options(wanted, device, request)

    def __str__(self) -> str:
        return str(self.stencil)
