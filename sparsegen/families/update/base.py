"""What a family of schedules for general updates is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, cast

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import AMPERE, DeviceProfile
from sparsegen.dsl.update import Update
from sparsegen.registry import families
from sparsegen.schedule import Schedule, UpdateSchedule, Vocabulary

if TYPE_CHECKING:
    from sparsegen.ir.passes.manager import Pass


class UpdateFamily(Vocabulary):
    """Its words, what it tries, what that costs and the passes that make it."""

    op = "update"
    #: Whether it moves 16 bytes at once where rows start at such boundaries.
    pieces: ClassVar[bool] = True
    #: Whether one launch makes all time steps of a call.
    whole: ClassVar[bool] = False
    #: Whether it is tried for linear stencils too, most of whose families are their own.
    linear: ClassVar[bool] = False
    #: Whether fields may be of bytes.
    bytes: ClassVar[bool] = False

    @abstractmethod
    def candidates(self, update: Update, steps: int) -> Iterator[UpdateSchedule]:
        """What the search tries, plainest first: at most so many time steps a pass."""

    def refused(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile
    ) -> tuple[str, str] | None:
        """Why a schedule cannot run there, and what would help; None if it can."""
        if update.dtype == "u8" and not self.bytes:
            return f"{self.name} does not round to bytes after each step", "take direct"
        return self.misfit(update, shape, s, device)

    def misfit(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile
    ) -> tuple[str, str] | None:
        """What only this family asks, as ``refused`` says it."""
        if self.pieces and device.compute_capability < AMPERE:
            return f"{self.name} copies with cp.async, which needs sm_80; {device.name} is {device.arch}", "take direct"
        return None

    def fitting(self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile) -> str | None:
        """The remedy where a pass of so many time steps does not fit: how many do; None if not even one does."""
        most = 0
        while most + 1 < s.levels and self.misfit(update, shape, s.but(levels=most + 1), device) is None:
            most += 1
        return f"levels={most} fits" if most else None

    def least(self, update: Update, shape: tuple[int, ...], device: DeviceProfile, steps: int) -> float:
        """Seconds that no schedule of the family stays below for so many time steps: so there is no need to look."""
        return 0.0

    def reach(self, update: Update, s: UpdateSchedule) -> int:
        """Cells beyond the end of a row that a pass copies with it: it finds them there, as ghosts, between passes.

        0 where it finds the cells across a border itself, which ``stream`` does sooner than it stores ghosts
        (Gray-Scott on 8191 x 8189 cells, one H200: 1048 and 981 GS/s).
        """
        return 0

    def worth(self, cost: Cost) -> bool:
        """Whether ``auto`` may take a schedule that can run."""
        return True

    @abstractmethod
    def cost(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int = 1
    ) -> Cost:
        """The cost of one launch on a grid of ``shape``; of ``steps`` time steps, if it makes all of a call."""

    @abstractmethod
    def passes(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int
    ) -> list[Pass]:
        """The passes from the op level to the tile level, of ``steps`` time steps at once."""


def family(s: Schedule) -> UpdateFamily:
    """The family of a schedule."""
    return cast("UpdateFamily", families("update")[s.family])
