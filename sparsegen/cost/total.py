"""What several passes cost: the time of all time steps, and the schedule that does them soonest."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.stencil import cost
from sparsegen.cost.terms import AFTER
from sparsegen.footprint import Footprint
from sparsegen.geometry import split, with_steps
from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import StencilSchedule
from sparsegen.sizes import GRAPH_SECONDS, padded_pitch

#: Share of its start that a short pass saves, in a graph or queued while others run, and how many passes of a call
#: save nothing.  Fitted to random kernels of an H100 and of H200s (tests/cost: random_kernels, test_drawn_updates).
QUEUED, FIRST = 0.67, 1


def total_time(cost: Cost, steps: int) -> float:
    """Predicted seconds of ``steps`` time steps on packed arrays, a rest that does not fill a pass included.

    Infinite: the schedule has no legal pass for the rest.
    """
    if not (rest := steps % cost.steps_per_launch):
        return whole_time(cost, steps)
    tail = _rest_time(cost.schedule, rest, cost.facts, cost.shape, cost.profile)
    return whole_time(cost, steps) + tail


def whole_time(cost: Cost, steps: int) -> float:
    """Predicted seconds of the passes of ``steps`` time steps that are no rest.

    All but the first and the last one of a call go between padded rows, where those of packed arrays do not start at
    16-byte boundaries; they are priced so.
    """
    passes, rest = divmod(steps, cost.steps_per_launch)
    pitch = padded_pitch((cost.profile.shares, *cost.shape), cost.facts.itemsize, cost.shape[-1], passes + bool(rest))
    alike = passes - (not rest) - bool(pitch)  # passes with the same program, between fields of the workspace
    time = passes * cost.time
    if pitch and alike > 0:
        inner = _padded_time(cost.schedule, cost.facts, cost.shape, cost.profile, pitch)
        time += alike * (inner - cost.time)
    starts = 1 + AFTER * (cost.values["rim_blocks"] > 0)  # of a pass, its rim's among them
    return time - saved(passes, cost.time, starts * cost.values["t_launch"])


def saved(passes: int, time: float, launch: float) -> float:
    """Seconds that so many passes of a call save, each of which alone takes ``time``, and ``launch`` of it to start:
    those after the FIRST are there when the pass before ends."""
    return max(0, passes - FIRST) * QUEUED * launch if time <= GRAPH_SECONDS else 0.0


@lru_cache(maxsize=1 << 14)
def _padded_time(
    schedule: StencilSchedule, fp: Footprint, shape: tuple[int, ...], profile: DeviceProfile, pitch: int
) -> float:
    """Seconds of a pass between fields of that pitch."""
    return cost(fp, shape, schedule, profile, pitch).time


@lru_cache(maxsize=1 << 14)
def _rest_time(
    schedule: StencilSchedule, rest: int, fp: Footprint, shape: tuple[int, ...], profile: DeviceProfile
) -> float:
    """Seconds of ``rest`` steps, in the passes that ``execute.Programs.plan`` makes of them; inf if it has none."""
    try:
        return sum(n * cost(fp, shape, s, profile).time for s, n in split(schedule, rest, fp.k))
    except ScheduleError:  # the rest cannot be done at once: step by step
        try:
            return rest * cost(fp, shape, with_steps(schedule, 1, fp.k), profile).time
        except ScheduleError:
            return math.inf


def cheapest(costs: Iterable[Cost], steps: int) -> Cost:
    """The first of the schedules that do ``steps`` time steps in the least time, by the model."""
    best, least = None, math.inf
    for c in costs:
        if best is None or whole_time(c, steps) < least:  # else its rest does not matter
            time = total_time(c, steps)
            if best is None or time < least:
                best, least = c, time
    assert best is not None
    return best
