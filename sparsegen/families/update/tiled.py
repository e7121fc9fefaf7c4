"""``tiled`` for general updates: windows in registers that overlap, several time steps a pass, on one to three axes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.update_tiled import cost, numbers, resident
from sparsegen.cost.update_windows import differ, edges, registers
from sparsegen.dsl.update import Update
from sparsegen.families.base import MAX_REGISTERS
from sparsegen.families.update.base import UpdateFamily
from sparsegen.registry import register
from sparsegen.schedule import UpdateSchedule, Word, integer

if TYPE_CHECKING:
    from sparsegen.ir.passes.manager import Pass

#: What is tried, by the number of axes: planes, rows, columns of a thread, warps.
_TRIED = {
    1: ((1,), (1,), (1, 2, 4, 8, 16), (1,)), 2: ((1,), (1, 2, 3, 4, 6, 8, 12), (1, 2, 3, 4), (4, 8, 16)),
    3: ((2, 4, 6, 8, 12, 16), (1, 2, 4), (1, 2), (4, 8, 16)),
}  # fmt: skip
#: Time steps of a pass that are tried.
_LEVELS = (1, 2, 3, 4, 6, 8, 12)


class TiledUpdate(UpdateFamily):
    """A block has ``warps`` warps with ``rows`` rows of ``cols`` columns a lane, on three axes of ``planes`` planes;
    ``levels`` time steps spoil the ends of its window, and the next one overlaps it by as much."""

    name = "tiled"
    telling = ("levels",)
    pieces = False
    words = (
        Word("levels", integer, 1, 1, 32), Word("cols", integer, 1, 1, 32), Word("rows", integer, 4, 1, 32),
        Word("planes", integer, 1, 1, 64), Word("warps", integer, 8, 1, 32),
    )  # fmt: skip

    def candidates(self, update: Update, steps: int) -> Iterator[UpdateSchedule]:
        for levels in (n for n in _LEVELS if n <= steps):
            yield from shapes(update.ndim, levels)

    def misfit(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile
    ) -> tuple[str, str] | None:
        if (why := differ(update)) is not None:
            return why
        if (s.planes > 1 and update.ndim < 3) or (s.rows * s.warps > 1 and update.ndim < 2):
            return f"{s.planes} planes of {s.warps} x {s.rows} rows of fields of {update.ndim} axes", "take 1"
        if (needed := registers(update, s)) > (most := min(MAX_REGISTERS, device.regs_sm // s.threads)):
            given = f"{device.name} gives {most}"
            return f"about {needed} registers a thread; {given}", "take fewer planes, rows, cols or warps"
        if (nbytes := edges(update, s)) > device.smem_block:
            return (
                f"{nbytes} bytes of shared memory a block; {device.name} gives {device.smem_block}",
                "take fewer cols",
            )
        held = numbers(update, shape, s)
        if held is None:
            window = f"{s.planes} planes, {s.warps * s.rows} rows and {32 * s.cols} columns"
            return (
                f"windows of {window} do not fit the field, or {s.levels} steps leave nothing of them",
                "take others, or direct, which takes any field",
            )
        return None if (small := held.legal()) is None else (small, "take more rows or cols, or direct")

    def cost(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int = 1
    ) -> Cost:  # fmt: skip
        return cost(update, shape, s, device)

    def passes(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int
    ) -> list[Pass]:
        from sparsegen.ir.kernels.tiled_update import TiledUpdate as Kernel

        return [Kernel(s.planes, s.rows, s.cols, s.warps, steps, resident(update, s, device))]


def shapes(ndim: int, levels: int) -> Iterator[UpdateSchedule]:
    """The windows that are tried for fields of so many axes and passes of so many steps."""
    for p, k, c, w in product(*_TRIED[ndim]):
        yield UpdateSchedule("tiled", levels=levels, cols=c, rows=k, planes=p, warps=w)


FAMILY = register(TiledUpdate())
