"""``resident`` for general updates: fields stay in the registers of all SMs, one launch makes all steps of a call."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import inf, prod
from typing import TYPE_CHECKING

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import AMPERE, DeviceProfile
from sparsegen.cost.update_resident import cost, least, numbers, registers, shared
from sparsegen.cost.update_windows import arrays, differ, on_three, reach, wraps
from sparsegen.dsl.update import Update
from sparsegen.families.base import MAX_REGISTERS
from sparsegen.families.update.base import UpdateFamily
from sparsegen.families.update.sites import held_site_registers
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.held import Cells
from sparsegen.registry import register
from sparsegen.schedule import UpdateSchedule, Word, each, integer
from sparsegen.sizes import ITEMSIZE

if TYPE_CHECKING:
    from sparsegen.ir.passes.manager import Pass

#: Warps of a block, and steps between exchanges, that are tried.
_WARPS, _EVERY = (*range(2, 13), 14, 16, 20, 24, 28, 32), (1, 2, 3, 4, 6, 8, 10, 12, 16)
#: Planes, rows and columns of a thread at most, and columns that are tried where there are rows too.
_PLANES, _ROWS, _COLS, _NARROW = 64, 32, 64, 8
#: Registers are given to threads by so many.
_STEP = 8
#: Blocks along the last of three axes at most: few cells lie beside one another in narrow windows.
_ACROSS = 8
#: How much larger than the smallest ones windows may be that are tried.
_WIDER = 1.25
#: Share of the SMs that has to have a block, of the tiles that are tried.
_BUSY = 0.75


class ResidentUpdate(UpdateFamily):
    """``tiles`` blocks along each axis, one an SM, of ``warps`` warps with ``rows`` rows of ``cols`` columns a lane, on
    three axes of ``planes`` planes; cells around a block's own come from the others after ``every`` steps."""

    name = "resident"
    telling = ("tiles", "every")
    whole = linear = True
    pieces = False
    words = (
        Word("tiles", each, auto=True), Word("cols", integer, None, 1, _COLS, auto=True),
        Word("rows", integer, None, 1, _ROWS, auto=True), Word("planes", integer, None, 1, _PLANES, auto=True),
        Word("warps", integer, None, 1, 32, auto=True), Word("every", integer, None, 1, 32, auto=True),
    )  # fmt: skip

    def candidates(self, update: Update, steps: int) -> Iterator[UpdateSchedule]:
        yield UpdateSchedule("resident")

    def misfit(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile
    ) -> tuple[str, str] | None:
        if device.compute_capability < AMPERE:
            return f"resident was written for sm_80 and newer; {device.name} is {device.arch}", "take direct"
        if not device.cooperative:
            return f"{device.name} cannot be made to run all blocks of a launch at the same time here", "take tiled"
        if (why := differ(update)) is not None:
            return why
        if s.tiles is not None and len(s.tiles) != update.ndim:
            return f"tiles={'x'.join(map(str, s.tiles))} of fields of {update.ndim} axes", "write one for each axis"
        s = _settled(update, s)
        if s.planes is not None and s.planes > 1 and update.ndim < 3:
            return f"planes={s.planes} of fields of {update.ndim} axes", "leave it away"
        if None in s.values.values():
            fits = _held(update, shape) <= _room(device) and _best(update, shape, s, device) is not None
            return None if fits else _too_large(update, shape, device)
        return _misfit(update, shape, s, device)

    def least(self, update: Update, shape: tuple[int, ...], device: DeviceProfile, steps: int) -> float:
        can = device.cooperative and _held(update, shape) <= _room(device)
        return least(device, steps) if can else inf

    def filled(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile
    ) -> UpdateSchedule:
        """The schedule with what is ``auto`` as the cost model has it."""
        s = _settled(update, s)
        if None not in s.values.values():
            return s
        found = _best(update, shape, s, device)
        assert found is not None  # misfit has said so
        return found

    def cost(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int = 1
    ) -> Cost:  # fmt: skip
        return cost(update, shape, self.filled(update, shape, s, device), device, steps)

    def passes(
        self, update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int
    ) -> list[Pass]:
        from sparsegen.ir.kernels.resident_update import ResidentUpdate as Kernel

        s = self.filled(update, shape, s, device)
        return [Kernel(s.tiles, s.planes, s.rows, s.cols, s.warps, s.every, steps)]


def _settled(update: Update, s: UpdateSchedule) -> UpdateSchedule:
    """With what there is no choice of: fields of fewer than three axes are one plane, of one axis one row."""
    if update.ndim < 3 and s.planes is None:
        s = s.but(planes=1)
    return s.but(rows=s.rows or 1, warps=s.warps or 1) if update.ndim < 2 else s


def _misfit(
    update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile
) -> tuple[str, str] | None:  # fmt: skip
    """Why a complete schedule cannot run."""
    held = numbers(update, shape, s)
    if (why := held.legal()) is not None:
        return why, "take other tiles, rows, cols or warps, or fewer steps between exchanges"
    if held.blocks > (sms := int(device.own_sms)):
        has = f"{device.name} has {device.sms}" + f", {sms} for each item of the batch" * (device.shares > 1)
        return f"{held.blocks} blocks that run together, one an SM; {has}", "take fewer tiles"
    most = min(MAX_REGISTERS, device.regs_sm // up(s.threads, 32 * device.sub_cores) // _STEP * _STEP)
    if (needed := registers(update, s, held) + held_site_registers(update)) > most:
        given = f"{device.name} gives {most}"
        return f"about {needed} registers a thread; {given}", "take fewer rows or cols, or more tiles"
    if (nbytes := shared(update, s, held)) > device.smem_block:
        return f"{nbytes} bytes of shared memory a block; {device.name} gives {device.smem_block}", "take more tiles"
    return None


def _too_large(update: Update, shape: tuple[int, ...], device: DeviceProfile) -> tuple[str, str]:
    """Why no schedule of the family fits: mostly because the fields do not."""
    there = f"the registers of {device.name} hold {_room(device)}" + " for each item" * (device.shares > 1)
    return (
        f"fields and levels take {_held(update, shape)} bytes and halos of blocks besides; {there}",
        "take a smaller field, or stream, column or direct, which leave it in memory",
    )


def _held(update: Update, shape: tuple[int, ...]) -> int:
    """Bytes of all fields and levels."""
    return arrays(update) * prod(shape) * ITEMSIZE[update.dtype]


def _room(device: DeviceProfile) -> int:
    """Bytes of all registers."""
    return int(device.own_sms) * device.regs_sm * 4


@lru_cache(maxsize=256)
def _best(
    update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile
) -> UpdateSchedule | None:  # fmt: skip
    """The cheapest way to fill in what the schedule leaves open; None if nothing fits."""
    of_every = dict[int, list[UpdateSchedule]]()
    for t in _fillings(update, shape, s, device):
        of_every.setdefault(t.every, []).append(t)
    tried = (t for some in of_every.values() for t in _smallest(update, shape, some, device))
    return min(tried, key=lambda t: (cost(update, shape, t, device, 1000).time, _cells(t)), default=None)


def _smallest(
    update: Update, shape: tuple[int, ...], some: list[UpdateSchedule], device: DeviceProfile
) -> Iterator[UpdateSchedule]:
    """Those that run and whose windows are not much larger than the smallest of these.

    Smaller ones come first, so that most need not be looked at: that takes longer than all else.
    """
    least = inf
    for t in sorted(some, key=_cells):
        if _cells(t) > _WIDER * least:
            return
        if _misfit(update, shape, t, device) is None:
            least = min(least, _cells(t))
            yield t


def _cells(s: UpdateSchedule) -> int:
    """Cells of a window, in units of a warp's lanes."""
    return int(s.planes * s.rows * s.cols * s.warps)


def _fillings(
    update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile
) -> Iterator[UpdateSchedule]:  # fmt: skip
    """Windows as small as they can be for every number of blocks that keeps the GPU busy."""
    sizes, far, around = on_three(shape), reach(update), wraps(update)
    most = _COLS if update.ndim == 1 or s.cols else _NARROW
    for tiles in [on_three(s.tiles)] if s.tiles else _tilings(sizes, update.ndim, int(device.own_sms)):
        for every in (s.every,) if s.every else _EVERY:
            planes, _, cols = (
                _share(n, count, every * r, wrap, unit)
                for n, count, r, wrap, unit in zip(sizes, tiles, far, around, (1, 1, 32), strict=True)
            )
            if (s.planes or planes) > _PLANES or (s.cols or cols) > most:
                continue
            for warps in (s.warps,) if s.warps else _WARPS:
                rows = _share(sizes[1], tiles[1], every * far[1], around[1], warps)
                if (s.rows or rows) <= _ROWS:
                    yield s.but(
                        tiles=tiles[3 - update.ndim :], planes=s.planes or planes, cols=s.cols or cols,
                        rows=s.rows or rows, warps=warps, every=every,
                    )  # fmt: skip


def _tilings(sizes: Cells, ndim: int, sms: int) -> Iterator[Cells]:
    """Blocks along each axis, as many together as keep the GPU busy; one where the field has too few cells for more."""
    found = False
    for deep in range(1, min(sizes[0], sms) + 1):
        for across in range(1, min(sizes[2], sms // deep, _ACROSS if ndim > 2 else sms) + 1):
            down = sms // (deep * across)
            if deep * down * across >= _BUSY * sms and down <= sizes[1]:
                found = True
                yield deep, down, across
    if not found:
        yield 1, 1, 1


def _share(n: int, count: int, halo: int, wraps: bool, unit: int) -> int:
    """Cells of a thread along an axis of ``n`` cells, of which ``count`` windows have ``unit`` times as many each."""
    if count == 1 and (not wraps or n % unit == 0):
        return -(-n // unit)
    return -(-(-(-n // count) + 2 * halo) // unit)


FAMILY = register(ResidentUpdate())
