"""``column`` for general updates on three axes: a block walks down a column of the fields, one time step a pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.layers import SAVED, registers, resident
from sparsegen.cost.update_column import cost, numbers
from sparsegen.dsl.update import Update
from sparsegen.families.base import MAX_REGISTERS
from sparsegen.families.stream import chunk_rows
from sparsegen.families.update.base import UpdateFamily
from sparsegen.ir.numbers.layers import Layers
from sparsegen.registry import register
from sparsegen.schedule import UpdateSchedule, Word, integer
from sparsegen.sizes import ITEMSIZE

if TYPE_CHECKING:
    from sparsegen.ir.passes.manager import Pass

#: Planes of a block where neither the schedule nor a field says how many.
PLANES = 64


class ColumnUpdate(UpdateFamily):
    """A warp has ``lines`` adjacent rows of 16 bytes a lane, a block ``warps`` of them one below the other and
    ``planes`` outputs on the slowest axis; ``stages`` planes of each array are under way."""

    name = "column"
    telling = ("lines", "warps")
    words = (
        Word("lines", integer, 2, 1, 8), Word("planes", integer, auto=True), Word("warps", integer, 8, 1, 32),
        Word("stages", integer, 3, 2, 8),
    )  # fmt: skip

    def candidates(self, update: Update, steps: int) -> Iterator[UpdateSchedule]:
        for lines in (1, 2, 4):
            for warps in (4, 8, 16):
                for stages in (2, 3, 4):
                    yield UpdateSchedule("column", lines=lines, warps=warps, stages=stages)

    def misfit(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile
    ) -> tuple[str, str] | None:
        if (why := super().misfit(update, shape, s, device)) is not None:
            return why
        if update.ndim != 3:
            return f"column takes fields of 3 axes, not of {update.ndim}", "take stream or direct"
        n: Layers = numbers(update, s, s.planes or PLANES)
        most = min(MAX_REGISTERS, int(SAVED * device.regs_sm) // s.threads)  # nvcc saves a few where blocks are large
        if (needed := registers(n, update.dtype == "f64")) > most:
            return (
                f"about {needed} registers a thread; {device.name} gives {most}",
                "take fewer lines or warps, or direct",
            )
        shared = n.elements * ITEMSIZE[update.dtype]
        if shared > device.smem_block:
            given = f"{device.name} gives {device.smem_block}"
            return f"{shared} bytes of shared memory a block; {given}", "take fewer lines, warps or stages"
        return None

    def filled(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile
    ) -> UpdateSchedule:
        """``planes=auto``: chunks such that the blocks keep the GPU busy."""
        if s.planes is not None:
            return s
        n, (nz, ny, nx) = numbers(update, s, PLANES), shape
        across = -(-ny // n.tile[1]) * -(-nx // n.tile[2])
        return s.but(planes=chunk_rows(nz, across, resident(n, ITEMSIZE[update.dtype], device) * device.sms, n.delay))

    def cost(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int = 1
    ) -> Cost:
        return cost(update, shape, self.filled(update, shape, s, device), device)

    def passes(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int
    ) -> list[Pass]:
        from sparsegen.ir.kernels.column_update import ColumnUpdate as Kernel

        s = self.filled(update, shape, s, device)
        blocks = resident(numbers(update, s, s.planes), ITEMSIZE[update.dtype], device)
        return [Kernel(s.lines, s.planes, s.warps, s.stages, 1, blocks)]


FAMILY = register(ColumnUpdate())
