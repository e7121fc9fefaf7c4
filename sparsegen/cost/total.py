"""What several passes cost: the time of all time steps, and the schedule that does them soonest."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.stencil import Cost, cost
from sparsegen.footprint import Footprint
from sparsegen.geometry import split, with_steps
from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import StencilSchedule


def total_time(cost: Cost, steps: int) -> float:
    """Predicted seconds of ``steps`` time steps, those of a rest that does not fill a pass included.

    Infinite: the schedule has no legal pass for the rest.
    """
    passes, rest = divmod(steps, cost.steps_per_launch)
    if not rest:
        return passes * cost.time
    return passes * cost.time + _rest_time(cost.schedule, rest, cost.footprint, cost.shape, cost.profile)


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
        if best is None or steps // c.steps_per_launch * c.time < least:  # else its rest does not matter
            time = total_time(c, steps)
            if best is None or time < least:
                best, least = c, time
    assert best is not None
    return best
