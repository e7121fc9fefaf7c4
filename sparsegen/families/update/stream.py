"""``stream`` for general updates: a warp walks down a strip with several time levels of every field in registers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.update_stream import cost, numbers, period, registers, resident
from sparsegen.cost.update_windows import differ
from sparsegen.dsl.update import Update
from sparsegen.families.base import MAX_REGISTERS
from sparsegen.families.stream import LANE_COLUMNS, ROWS, chunk_rows
from sparsegen.families.update.base import UpdateFamily
from sparsegen.registry import register
from sparsegen.schedule import UpdateSchedule, Word, integer
from sparsegen.sizes import ITEMSIZE

if TYPE_CHECKING:
    from sparsegen.ir.passes.manager import Pass

#: Turns that are written one after the other at most.
MOST_TURNS = 5
#: Levels that are tried: beyond them either registers or halos take more than another level saves.
_LEVELS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16)


class StreamUpdate(UpdateFamily):
    """``levels`` time steps a pass; a lane has ``cols`` columns, a block ``warps`` strips side by side of ``rows``
    rows; ``stages`` rows of each array are under way."""

    name = "stream"
    telling = ("levels", "cols")
    words = (
        Word("levels", integer, 4, 1, 32), Word("cols", integer, 4, choices=LANE_COLUMNS),
        Word("rows", integer, auto=True), Word("warps", integer, 2, 1, 8), Word("stages", integer, 4, 2, 8),
        Word("unroll", integer, 1, 1, MOST_TURNS),
    )  # fmt: skip

    def candidates(self, update: Update, steps: int) -> Iterator[UpdateSchedule]:
        piece = 16 // ITEMSIZE[update.dtype]
        for levels in (n for n in _LEVELS if n <= steps):
            for cols in (piece, 2 * piece):
                s = UpdateSchedule("stream", levels=levels, cols=cols)
                turns = period(numbers(update, s, ROWS))
                for warps, unroll in product((2, 4), sorted({1, min(turns, MOST_TURNS)})):
                    yield s.but(warps=warps, unroll=unroll)

    def misfit(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile
    ) -> tuple[str, str] | None:
        if (why := super().misfit(update, shape, s, device)) is not None:
            return why
        if update.ndim > 2:
            return f"stream takes fields of 1 or 2 axes, not of {update.ndim}", "take direct"
        if (differs := differ(update)) is not None:
            return differs
        n = numbers(update, s, s.rows or ROWS)
        if (reason := n.legal(s.cols, (1, *shape)[-2:])) is not None:
            return reason, "take fewer levels, or more columns a lane"
        if (needed := registers(update, s, n)) > MAX_REGISTERS:
            remedy = self.fitting(update, shape, s, device) or "take fewer cols, or direct"
            return f"about {needed} registers a thread; a GPU gives {MAX_REGISTERS}", remedy
        shared = n.slots * n.ring * ITEMSIZE[update.dtype]
        if shared > device.smem_block:
            given = f"{device.name} gives {device.smem_block}"
            return f"{shared} bytes of shared memory a block; {given}", "take fewer levels, warps or stages"
        return None

    def filled(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile
    ) -> UpdateSchedule:
        """``rows=auto``: chunks such that the blocks keep the GPU busy."""
        if s.rows is not None:
            return s
        n, (ny, nx) = numbers(update, s, ROWS), (1, *shape)[-2:]
        slots = max(1, int(resident(update, s, n, device) * device.own_sms))
        return s.but(rows=chunk_rows(ny, -(-nx // n.tile[1]), slots, n.turns - ROWS))

    def cost(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int = 1
    ) -> Cost:
        return cost(update, shape, self.filled(update, shape, s, device), device, steps)

    def passes(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int
    ) -> list[Pass]:
        from sparsegen.ir.kernels.stream_update import StreamUpdate as Kernel
        from sparsegen.ir.passes.fuse_time import FuseTime

        s = self.filled(update, shape, s.but(levels=steps), device)
        blocks = resident(update, s, numbers(update, s, s.rows), device)
        return [FuseTime(1, steps), Kernel(s.cols, s.rows, s.warps, s.stages, s.unroll, blocks)]


FAMILY = register(StreamUpdate())
