"""``column`` for general updates on three axes: a block walks down a column of the fields, some time steps a pass."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from sparsegen.cost import layer_levels
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.layers import SAVED
from sparsegen.cost.update_column import cost, numbers, registers, resident
from sparsegen.cost.update_windows import differ
from sparsegen.dsl.update import Update
from sparsegen.families.base import MAX_REGISTERS
from sparsegen.families.stream import chunk_rows
from sparsegen.families.update.base import UpdateFamily
from sparsegen.registry import register
from sparsegen.schedule import UpdateSchedule, Word, integer
from sparsegen.sizes import ITEMSIZE

if TYPE_CHECKING:
    from sparsegen.ir.passes.manager import Pass

#: Planes of a block where neither the schedule nor a field says how many.
PLANES = 64
#: Rows of a warp, warps and planes under way that are tried: of one step a pass, and of several.
_ONE = tuple(product((1, 2, 4), (4, 8, 16), (2, 3, 4)))
_SEVERAL = tuple(product((1, 2), (8, 12, 16, 24), (2, 3)))
#: Time steps that are tried.
_LEVELS = (1, 2, 3, 4)


class ColumnUpdate(UpdateFamily):
    """``levels`` time steps a pass; a warp has ``lines`` adjacent rows of 16 bytes a lane, a block ``warps`` of them
    one below the other and ``planes`` outputs on the slowest axis; ``stages`` planes of each array are under way."""

    name = "column"
    telling = ("levels", "lines", "warps")
    words = (
        Word("levels", integer, 1, 1, 8), Word("lines", integer, 2, 1, 8), Word("planes", integer, auto=True),
        Word("warps", integer, 8, 1, 32), Word("stages", integer, 3, 2, 8),
    )  # fmt: skip

    def candidates(self, update: Update, steps: int) -> Iterator[UpdateSchedule]:
        for levels in (n for n in _LEVELS if n <= steps and (n == 1 or update.ndim == 3)):
            for lines, warps, stages in _ONE if levels == 1 else _SEVERAL:
                yield UpdateSchedule("column", levels=levels, lines=lines, warps=warps, stages=stages)

    def misfit(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile
    ) -> tuple[str, str] | None:
        if (why := super().misfit(update, shape, s, device)) is not None:
            return why
        if update.ndim != 3:
            return f"column takes fields of 3 axes, not of {update.ndim}", "take stream or direct"
        if s.levels > 1 and (why := self._several(update, shape, s)) is not None:
            return why
        needed, shared, saved = self._needs(update, s)
        most = min(MAX_REGISTERS, int(saved * device.regs_sm) // s.threads)  # nvcc saves a few where blocks are large
        fewer = "fewer levels, lines" if s.levels > 1 else "fewer lines"
        if needed > most:
            remedy = self.fitting(update, shape, s, device) or "take fewer lines or warps, or direct"
            return f"about {needed} registers a thread; {device.name} gives {most}", remedy
        if shared > device.smem_block:
            given = f"{device.name} gives {device.smem_block}"
            return f"{shared} bytes of shared memory a block; {given}", f"take {fewer}, warps or stages"
        # steps that do not fill a pass are made in one of their own
        rest = self.misfit(update, shape, s.but(levels=1), device) if s.levels > 1 else None
        return rest and (f"a pass of one step: {rest[0]}", rest[1])

    @staticmethod
    def _several(update: Update, shape: tuple[int, ...], s: UpdateSchedule) -> tuple[str, str] | None:
        """Why there is no pass of several steps."""
        if (differs := differ(update)) is not None:
            return differs[0], "take levels=1"
        why = layer_levels.numbers(update, s, s.planes or PLANES).legal(shape)
        return None if why is None else (why, "take fewer levels, or more lines or warps")

    @staticmethod
    def _needs(update: Update, s: UpdateSchedule) -> tuple[int, int, float]:
        """Registers of a thread, bytes of shared memory, and how many times its share a thread may be estimated at."""
        size, planes = ITEMSIZE[update.dtype], s.planes or PLANES
        if s.levels > 1:
            n = layer_levels.numbers(update, s, planes)
            return layer_levels.registers(update, n), n.elements * size, layer_levels.SAVED
        one = numbers(update, s, planes)
        return registers(update, one), one.elements * size, SAVED

    def filled(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile
    ) -> UpdateSchedule:
        """``planes=auto``: chunks such that the blocks keep the GPU busy."""
        if s.planes is not None:
            return s
        n, (nz, ny, nx) = (layer_levels.numbers if s.levels > 1 else numbers)(update, s, PLANES), shape
        across = -(-ny // n.tile[1]) * -(-nx // n.tile[2])
        slots = max(1, int(self._resident(update, s, PLANES, device) * device.own_sms))
        return s.but(planes=chunk_rows(nz, across, slots, n.turns - PLANES))

    @staticmethod
    def _resident(update: Update, s: UpdateSchedule, planes: int, device: DeviceProfile) -> int:
        """Blocks that an SM has room for."""
        if s.levels > 1:
            return layer_levels.resident(update, layer_levels.numbers(update, s, planes), device)
        return resident(update, numbers(update, s, planes), device)

    def reach(self, update: Update, s: UpdateSchedule) -> int:
        if s.levels > 1:
            return layer_levels.numbers(update, s, PLANES).lead[1]
        return max((planes.halo[1] for planes in numbers(update, s, PLANES).rings.values()), default=0)

    def cost(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int = 1
    ) -> Cost:
        return cost(update, shape, self.filled(update, shape, s, device), device, steps)

    def passes(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int
    ) -> list[Pass]:
        from sparsegen.ir.kernels.column_levels import ColumnLevels
        from sparsegen.ir.kernels.column_update import ColumnUpdate as Kernel
        from sparsegen.ir.passes.fuse_time import FuseTime

        s = self.filled(update, shape, s.but(levels=steps), device)
        blocks = self._resident(update, s, s.planes, device)
        if steps == 1:
            return [Kernel(s.lines, s.planes, s.warps, s.stages, 1, blocks)]
        return [FuseTime(1, steps), ColumnLevels(s.lines, s.planes, s.warps, s.stages, blocks)]


FAMILY = register(ColumnUpdate())
