"""How sources and receivers of an update come into its passes, and what they add to their time.

Behind a pass of one step they change and read what it has stored.  Passes of several steps, and those of an adjoint,
whose sites come before the step, have windows of ``tiled`` made again, of as many steps; of the shapes that fit that is
taken which is expected to take least time, for as many windows as have a site.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparsegen.cost import terms
from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.update_tiled import numbers, resident
from sparsegen.dsl.update import Update
from sparsegen.families.update.tiled import FAMILY, shapes
from sparsegen.ir.numbers.held import Held
from sparsegen.ir.numbers.sites import own
from sparsegen.schedule import UpdateSchedule

if TYPE_CHECKING:
    from sparsegen.ir.passes.manager import Pass

_REASON: Final = "what happens at sources and receivers: behind a pass of several steps windows around them again"


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


def _cells(update: Update, shape: tuple[int, ...], source: bool) -> npt.NDArray[Any]:
    """The cells [n, 3] near the sites of one kind, each once."""
    found = [np.zeros((0, 3), np.int64)]
    for group in update.sites:
        if group.source == source:
            sides = update.sides[[name for name, _ in update.fields].index(group.field)]
            cells = group.placed(shape, sides).cells
            found.append(np.concatenate([np.zeros((len(cells), 3 - len(shape)), np.int64), cells], 1))
    return np.unique(np.concatenate(found), axis=0)


def _listed(held: Held, sources: npt.NDArray[Any], receivers: npt.NDArray[Any]) -> int:
    """About how many windows have one of the cells: a source's counts as far as a window's halo reaches."""
    steps = [sorted({-far, 0, far}) for far in held.halo]
    near = [np.clip(sources + step, 0, np.array(held.shape) - 1) for step in product(*steps)]
    return len(np.unique(own(held, np.concatenate([receivers, *near])).blocks))


def with_sites(cost: Cost, seconds: float | None) -> Cost:
    """The cost of a pass with the seconds of its sites, for which it has windows."""
    assert seconds is not None  # who asks has made sure
    law = _law(cost.law)
    values = {**cost.values, "sites": seconds}
    more = law.evaluate(cost.schedule, values, cost.profile, cost.shape, cost.facts, cost.steps_per_launch)
    return replace(more, binds=cost.binds if seconds < cost.time else "sites")


@lru_cache(maxsize=16)
def _law(law: Law) -> Law:
    """The law of a pass with sites behind it."""

    def equations(s: Any, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
        time, found = law.equations(s, v, a)
        return time + v.sites, {**found, "sites": v.sites}

    return replace(
        law, equations=equations, symbols={**law.symbols, "sites": "seconds of what happens at sources and receivers"},
        reasons={**law.reasons, "sites": _REASON}, beside=law.beside | {"sites"},
    )  # fmt: skip
