"""``sg.compile`` and ``sg.schedules`` for general updates: check, choose a schedule, hand back a kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparsegen.updates.cost import UpdateCost, cost
from sparsegen.dsl.update import Update
from sparsegen.ir.errors import ScheduleError, StencilError
from sparsegen.schedule import ITEMSIZE
from sparsegen.target import Target
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


def fitting_shape(update: Update, sizes: Sequence[int]) -> None:
    """StencilError for a shape of the wrong rank, too small for the reads, or too large for 32-bit indices."""
    from sparsegen.compiler import MAX_CELLS

    shown = "x".join(map(str, sizes))
    if len(sizes) != update.ndim:
        raise StencilError(
            f"shape {shown} has {len(sizes)} axes, {update.name} has {update.ndim}",
            hint=f"pass {update.ndim} sizes, slowest axis first",
        )
    for axis, (n, least) in enumerate(zip(sizes, update.extents, strict=True)):
        if n < least:
            raise StencilError(
                f"shape {shown} has {n} cells on axis {axis}, but {update.name} is {least} cells wide there",
                hint=f"make axis {axis} at least {least} cells",
            )
    if math.prod(sizes) > MAX_CELLS:
        raise StencilError(
            f"shape {shown} has {math.prod(sizes)} cells; indices are 32 bits wide, so {MAX_CELLS} is the most",
            hint="split the field and exchange the rims",
        )


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
