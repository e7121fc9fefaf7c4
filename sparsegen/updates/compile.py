"""``sg.compile`` and ``sg.schedules`` for general updates: check, choose a schedule, hand back a kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparsegen.dsl.update import Update
from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import ITEMSIZE
from sparsegen.target import Target
from sparsegen.updates.cost import UpdateCost, cost
from sparsegen.updates.schedule import UpdateSchedule, candidates

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile

#: Blocks an SM that a schedule with several cells a thread must leave: fewer threads hide less latency.
_BLOCKS_AN_SM = 8
#: 32-bit registers that the numbers read for several cells may take.
_REGISTERS = 64
#: Nodes of the formula that a thread with several cells may work out: code that is longer takes nvcc long.
_NODES = 2000


@dataclass(frozen=True)
class UpdateChoice:
    """A schedule, all costs (cheapest first), and whether it was chosen or given."""

    cost: UpdateCost
    ranking: tuple[UpdateCost, ...]
    automatic: bool

    @property
    def schedule(self) -> UpdateSchedule:
        """What was chosen."""
        return self.cost.schedule


def rank(update: Update, shape: tuple[int, ...], device: DeviceProfile) -> tuple[UpdateCost, ...]:
    """The cost of every candidate, cheapest first; of equally cheap ones that whose other units have least to do."""

    def fits(c: UpdateCost) -> bool:
        s = c.schedule
        if s.column == 1:
            return True
        if update.ndim == 1 or shape[-2] < s.block[1] * s.column or len(update.code) * s.column > _NODES:
            return False
        if c.values["loads"] * s.column * words > _REGISTERS:
            return False
        return math.prod(shape) >= s.threads * s.column * _BLOCKS_AN_SM * device.sms

    words = ITEMSIZE[update.dtype] // 4
    costs = [cost(update, shape, s, device) for s in candidates()]
    return tuple(sorted(filter(fits, costs), key=lambda c: (c.time, sum(c.terms.values()))))


def choose(update: Update, shape: tuple[int, ...], target: Target, schedule: Any) -> UpdateChoice:
    """The schedule of ``schedule=``: ``"auto"``, a line, or an UpdateSchedule; ScheduleError for anything else."""
    ranking = rank(update, shape, target.profile)
    if isinstance(schedule, str) and schedule.strip() == "auto":
        return UpdateChoice(ranking[0], ranking, True)
    if isinstance(schedule, str):
        schedule = UpdateSchedule.parse(schedule)
    if not isinstance(schedule, UpdateSchedule):
        raise ScheduleError(
            f"schedule={schedule!r} is no schedule of a general update",
            hint="pass 'auto', or a line such as 'direct block=32x8 column=4'",
        )
    return UpdateChoice(cost(update, shape, schedule, target.profile), ranking, False)
