"""``direct`` for general updates: a thread works a few cells of a column out, one time step a launch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.update import cost
from sparsegen.dsl.update import Update
from sparsegen.families.update.base import UpdateFamily
from sparsegen.ir.errors import ScheduleError
from sparsegen.registry import register
from sparsegen.schedule import Schedule, UpdateSchedule, Word, integer, pair
from sparsegen.sizes import ITEMSIZE

if TYPE_CHECKING:
    from sparsegen.ir.passes.manager import Pass

#: Blocks an SM that a schedule with several cells a thread must leave: fewer threads hide less latency.
_BLOCKS_AN_SM = 8
#: 32-bit registers that the numbers read for several cells may take.
_REGISTERS = 64
#: Nodes of the formula that a thread with several cells may work out: code that is longer takes nvcc long.
_NODES = 2000


class Pointwise(UpdateFamily):
    """``block`` threads along a row x down, ``column`` cells below one another for each thread (on one axis a thread
    has one cell)."""

    name = "direct"
    telling = ("block", "column")
    pieces, bytes = False, True
    words = (Word("block", pair, (32, 8)), Word("column", integer, 1, 1, 8))

    def consistent(self, s: Schedule) -> None:
        """A block is whole warps, no more than a GPU takes."""
        if s.threads > 1024 or s.threads % 32:
            raise ScheduleError(
                f"block={s.block[0]}x{s.block[1]} has {s.threads} threads; a GPU takes whole warps",
                hint="choose a multiple of 32, up to 1024, as in block=32x8",
            )

    def candidates(self, update: Update, steps: int) -> Iterator[UpdateSchedule]:
        for column in (1, 2, 4):
            for block in ((32, 8), (64, 4), (32, 4)):
                yield UpdateSchedule("direct", block=block, column=column)

    def worth(self, cost: Cost) -> bool:
        """Whether a schedule with several cells a thread leaves enough threads, registers and nodes."""
        s, update, shape = cost.schedule, cost.facts, cost.shape
        if s.column == 1:
            return True
        return bool(
            update.ndim > 1
            and shape[-2] >= s.block[1] * s.column
            and len(update.code) * s.column <= _NODES
            and cost.values["loads"] * s.column * max(1, ITEMSIZE[update.dtype] // 4) <= _REGISTERS
            and math.prod(shape) >= s.threads * s.column * _BLOCKS_AN_SM * cost.profile.own_sms
        )

    def cost(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int = 1
    ) -> Cost:
        return cost(update, shape, s, device)

    def passes(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int
    ) -> list[Pass]:
        from sparsegen.ir.kernels.pointwise import Pointwise as Kernel

        return [Kernel(1, s.block[1], s.block[0], s.column)]


FAMILY = register(Pointwise())
