"""``resident`` for general updates: fields stay in the registers of all SMs, one launch makes all steps of a call."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.update_resident import arrays, cost, numbers, reach, registers, shared
from sparsegen.dsl.update import Update
from sparsegen.families.base import MAX_REGISTERS
from sparsegen.families.update.base import UpdateFamily
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.registry import register
from sparsegen.schedule import UpdateSchedule, Word, integer, pair
from sparsegen.sizes import ITEMSIZE

if TYPE_CHECKING:
    from sparsegen.ir.passes.manager import Pass

#: Warps of a block, and steps between exchanges, that are tried.
_WARPS, _EVERY = (4, 8, 12, 16), (1, 2, 3, 4, 6, 8)
#: Rows and columns of a thread at most.
_ROWS, _COLS = 32, 8
#: Registers are given to threads by so many.
_STEP = 8
#: Share of the SMs that has to have a block, of the tiles that are tried.
_BUSY = 0.75


class ResidentUpdate(UpdateFamily):
    """``tiles`` blocks down x across, one an SM, of ``warps`` warps with ``rows`` rows of ``cols`` columns a lane;
    cells around a block's own come from the others after ``every`` steps."""

    name = "resident"
    telling = ("tiles", "every")
    whole = True
    pieces = False
    left_out = (
        "resident is only taken where a schedule names it: its speed is a formula that no GPU has confirmed yet",
        "try schedule='resident'",
    )
    words = (
        Word("tiles", pair, auto=True), Word("cols", integer, None, 1, _COLS, auto=True),
        Word("rows", integer, None, 1, _ROWS, auto=True), Word("warps", integer, None, 1, 32, auto=True),
        Word("every", integer, None, 1, 32, auto=True),
    )  # fmt: skip

    def candidates(self, update: Update, steps: int) -> Iterator[UpdateSchedule]:
        yield UpdateSchedule("resident")

    def misfit(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile
    ) -> tuple[str, str] | None:
        if update.ndim != 2:
            return f"resident takes fields of 2 axes, not of {update.ndim}", "take stream, column or direct"
        if device.compute_capability < (8, 0):
            return f"resident was written for sm_80 and newer; {device.name} is {device.arch}", "take direct"
        if any(len({pair[0].kind == "periodic" for pair in pairs}) > 1 for pairs in zip(*update.sides, strict=True)):
            return "an axis wraps for one field and not for another: a cell outside is then two", "take direct"
        grid = cast("tuple[int, int]", shape)
        if None in s.values.values():
            if _best(update, grid, s, device) is None:
                return _too_large(update, grid, device)
            return None
        return _misfit(update, grid, s, device)

    def filled(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile
    ) -> UpdateSchedule:
        """The schedule with what is ``auto`` as the cost model has it."""
        if None not in s.values.values():
            return s
        found = _best(update, cast("tuple[int, int]", shape), s, device)
        assert found is not None  # misfit has said so
        return found

    def cost(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int = 1
    ) -> Cost:  # fmt: skip
        return cost(update, cast("tuple[int, int]", shape), self.filled(update, shape, s, device), device, steps)

    def passes(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int
    ) -> list[Pass]:
        from sparsegen.ir.kernels.resident_update import ResidentUpdate as Kernel

        s = self.filled(update, shape, s, device)
        return [Kernel(s.tiles, s.rows, s.cols, s.warps, s.every, steps)]


def _misfit(update: Update, shape: tuple[int, int], s: UpdateSchedule, device: DeviceProfile) -> tuple[str, str] | None:
    """Why a complete schedule cannot run."""
    held = numbers(update, shape, s)
    if (why := held.legal()) is not None:
        return why, "take other tiles, rows, cols or warps, or fewer steps between exchanges"
    if held.blocks > device.sms:
        return f"{held.blocks} blocks that run together, one an SM; {device.name} has {device.sms}", "take fewer tiles"
    most = min(MAX_REGISTERS, device.regs_sm // up(s.threads, 32 * device.sub_cores) // _STEP * _STEP)
    if (needed := registers(update, s)) > most:
        given = f"{device.name} gives {most}"
        return f"about {needed} registers a thread; {given}", "take fewer rows or cols, or more tiles"
    if (nbytes := shared(update, s)) > device.smem_block:
        return f"{nbytes} bytes of shared memory a block; {device.name} gives {device.smem_block}", "take more tiles"
    return None


def _too_large(update: Update, shape: tuple[int, int], device: DeviceProfile) -> tuple[str, str]:
    """Why no schedule of the family fits: mostly because the fields do not."""
    needed = arrays(update) * shape[0] * shape[1] * ITEMSIZE[update.dtype]
    there = f"the registers of {device.name} hold {device.sms * device.regs_sm * 4}"
    return (
        f"fields and levels take {needed} bytes and halos of blocks besides; {there}",
        "take a smaller field, or stream or direct, which leave it in memory",
    )


@lru_cache(maxsize=256)
def _best(
    update: Update, shape: tuple[int, int], s: UpdateSchedule, device: DeviceProfile
) -> UpdateSchedule | None:  # fmt: skip
    """The cheapest way to fill in what the schedule leaves open; None if nothing fits."""
    best: tuple[float, UpdateSchedule] | None = None
    for t in _fillings(update, shape, s, device):
        if _misfit(update, shape, t, device) is None:
            time = cost(update, shape, t, device, 1000).time
            if best is None or time < best[0]:
                best = time, t
    return best[1] if best else None


def _fillings(
    update: Update, shape: tuple[int, int], s: UpdateSchedule, device: DeviceProfile
) -> Iterator[UpdateSchedule]:  # fmt: skip
    """Windows as small as they can be for every number of blocks that keeps the GPU busy."""
    (ny, nx), (ry, rx) = shape, reach(update)
    tiles = [s.tiles] if s.tiles else [
        (down, device.sms // down) for down in range(1, min(ny, device.sms) + 1)
        if down * (device.sms // down) >= _BUSY * device.sms and device.sms // down <= nx
    ]  # fmt: skip
    for down, across in tiles or [(1, 1)]:
        for every in (s.every,) if s.every else _EVERY:
            cols = s.cols or -(-(-(-nx // across) + 2 * every * rx) // 32)
            for warps in (s.warps,) if s.warps else _WARPS:
                rows = s.rows or -(-(-(-ny // down) + 2 * every * ry) // warps)
                if cols <= _COLS and rows <= _ROWS:
                    yield s.but(tiles=(down, across), cols=cols, rows=rows, warps=warps, every=every)


FAMILY = register(ResidentUpdate())
