"""How sources and receivers of an update come into its passes, and what they add to their time.

Behind a pass of one step they change and read what it has stored.  Passes of several steps, and those of an adjoint,
whose sites come before the step, have windows of ``tiled`` made again, of as many steps; of the shapes that fit that is
taken which is expected to take least time, for as many windows as have a site.

Where one launch makes all steps the threads that have a site's cell act between them, and all blocks wait for the
slowest of them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparsegen.cost import terms
from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.update_resident import numbers as resident_numbers
from sparsegen.cost.update_tiled import numbers, resident
from sparsegen.dsl.sites import Sites
from sparsegen.dsl.update import Update
from sparsegen.families.update.tiled import FAMILY, shapes
from sparsegen.ir.numbers.held import Held
from sparsegen.ir.numbers.sites import TESTED, everywhere, own
from sparsegen.schedule import UpdateSchedule
from sparsegen.sizes import ITEMSIZE

if TYPE_CHECKING:
    from sparsegen.ir.passes.manager import Pass

#: What their term is, of passes that windows are made again for, and of steps between which they act.
AGAIN: Final = "what happens at sources and receivers: behind a pass of several steps windows around them again"
HELD: Final = "what the thread with most cells of sources and receivers does between steps, and making the records"
#: First estimated, clocks: what a group of sites takes of a thread that has none of its cells; a source's cell, whose
#: place is loaded and whose number is on its way, and each register of its thread, one of which it is; and a register
#: that a thread looks at because receivers see it, or one of those beside it.
_NONE, _ENTRY, _REGISTER, _SEEN = 8.0, 60.0, 2.0, 6.0
#: Registers that a group takes of every thread.
_TAKEN: Final = 5


class SiteWindows(NamedTuple):
    """A schedule of windows, and the seconds that those with a site add to a pass."""

    schedule: UpdateSchedule
    seconds: float


def site_pass(
    update: Update, shape: tuple[int, ...], levels: int, device: DeviceProfile, backwards: bool = False
) -> Pass | None:
    """What puts kernels for the sites behind a pass of so many steps; None where no windows fit."""
    from sparsegen.ir.kernels.stored_sites import StoredSites
    from sparsegen.ir.kernels.update_sites import UpdateSites

    if levels == 1 and not backwards:
        return StoredSites()
    if (found := site_windows(update, shape, levels, device)) is None:
        return None
    s = found.schedule
    return UpdateSites(s.planes, s.rows, s.cols, s.warps, levels, resident(update, s, device))


def site_seconds(
    update: Update, shape: tuple[int, ...], levels: int, device: DeviceProfile, backwards: bool = False
) -> float | None:
    """What sites add to the time of a pass of so many steps; None where no windows fit."""
    if levels == 1 and not backwards:
        return len(update.sites) * terms.STARTING * device.launch_s
    found = site_windows(update, shape, levels, device)
    return None if found is None else found.seconds


@lru_cache(maxsize=1 << 8)
def site_windows(update: Update, shape: tuple[int, ...], levels: int, device: DeviceProfile) -> SiteWindows | None:
    """The windows to take for passes of so many steps; None where none fit."""
    alone, best = replace(update, sites=()), None
    sources, receivers = (_cells(update, shape, source) for source in (True, False))
    for s in shapes(update.ndim, levels):
        if FAMILY.misfit(alone, shape, s, device) is not None:
            continue
        held = numbers(alone, shape, s)
        assert held is not None  # misfit has said so
        count = _listed(held, sources, receivers)
        cost, room = FAMILY.cost(alone, shape, s, device), device.own_sms * resident(alone, s, device)
        start = terms.STARTING * device.launch_s
        launches = (1 + len(update.receivers)) * start
        seconds = launches + (cost.time - start) * -(-count // room) / -(-held.blocks // room)
        if best is None or seconds < best.seconds:
            best = SiteWindows(s, seconds)
    return best


def held_site_registers(update: Update) -> int:
    """32-bit registers that sites take of a thread that has the fields in its own."""
    return _TAKEN * len(update.sites)


@lru_cache(maxsize=1 << 8)
def held_site_seconds(
    update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int
) -> float:
    """What sites add to a launch of ``steps`` time steps, between which fields stay in registers: each group takes as
    long as the thread, or the warp, that has most to do."""
    held, size = resident_numbers(update, shape, s), ITEMSIZE[update.dtype]
    clocks, moved, threads = 0.0, 0, 32 * held.warps
    for group in update.sites:
        cells = _of_group(update, shape, group)
        if group.source:
            found = everywhere(held, cells)
            each = _ENTRY + _REGISTER * prod(held.share) * max(1, size // 4)
            clocks += _NONE + each * _most(found.owners(np.arange(held.blocks), threads))
        else:
            cells = np.unique(cells, axis=0)
            found = own(held, cells)
            warps, tests = found.owners(np.arange(held.blocks), threads) // 32, -(-prod(held.share) // TESTED)
            looked = np.unique(warps * tests + found.registers // TESTED) // tests
            clocks += _NONE + tests + _SEEN * TESTED * _most(looked)
            moved += len(cells) + len(group.points) * 2 ** len(shape)
    launches = len(update.receivers) * terms.STARTING * device.launch_s
    return steps * (clocks / device.clock + moved * max(4, size) / device.bw_global) + launches


def _most(numbers: npt.NDArray[Any]) -> int:
    """How often the number comes that comes most often."""
    return int(np.unique(numbers, return_counts=True)[1].max())


def _cells(update: Update, shape: tuple[int, ...], source: bool) -> npt.NDArray[Any]:
    """The cells [n, 3] near the sites of one kind, each once."""
    found = [np.zeros((0, 3), np.int64)]
    for group in update.sites:
        if group.source == source:
            found.append(_of_group(update, shape, group))
    return np.unique(np.concatenate(found), axis=0)


def _of_group(update: Update, shape: tuple[int, ...], group: Sites) -> npt.NDArray[Any]:
    """The cells [n, 3] near the sites of a group, one for each pair of a site and a cell."""
    sides = update.sides[[name for name, _ in update.fields].index(group.field)]
    cells = group.placed(shape, sides).cells
    return np.concatenate([np.zeros((len(cells), 3 - len(shape)), np.int64), cells], 1)


def _listed(held: Held, sources: npt.NDArray[Any], receivers: npt.NDArray[Any]) -> int:
    """About how many windows have one of the cells: a source's counts as far as a window's halo reaches."""
    steps = [sorted({-far, 0, far}) for far in held.halo]
    near = [np.clip(sources + step, 0, np.array(held.shape) - 1) for step in product(*steps)]
    return len(np.unique(own(held, np.concatenate([receivers, *near])).blocks))


def with_sites(cost: Cost, seconds: float | None, reason: str) -> Cost:
    """The cost of a pass with the seconds of its sites, for which it has windows; ``reason``: what these are."""
    assert seconds is not None  # who asks has made sure
    law = _law(cost.law, reason)
    values = {**cost.values, "sites": seconds}
    more = law.evaluate(cost.schedule, values, cost.profile, cost.shape, cost.facts, cost.steps_per_launch)
    return replace(more, binds=cost.binds if seconds < cost.time else "sites")


@lru_cache(maxsize=16)
def _law(law: Law, reason: str) -> Law:
    """The law of a pass with sites behind it."""

    def equations(s: Any, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
        time, found = law.equations(s, v, a)
        return time + v.sites, {**found, "sites": v.sites}

    return replace(
        law, equations=equations, symbols={**law.symbols, "sites": "seconds of what happens at sources and receivers"},
        reasons={**law.reasons, "sites": reason}, beside=law.beside | {"sites"},
    )  # fmt: skip
