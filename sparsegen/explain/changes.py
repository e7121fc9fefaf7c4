"""What would change the choice of a stencil's schedule: other figures of the device, grids, GPUs, more steps a call."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from sparsegen.choose import Choice
from sparsegen.cost.search import most_steps, rank, space
from sparsegen.cost.total import cheapest, total_time
from sparsegen.explain.page import Change
from sparsegen.explain.parts import other_profiles
from sparsegen.explain.units import plural, size
from sparsegen.footprint import Footprint
from sparsegen.geometry import legal, misfit
from sparsegen.ir.errors import ScheduleError
from sparsegen.options import Options
from sparsegen.problems.stencil import StencilProblem
from sparsegen.rows import MAX_CELLS
from sparsegen.schedule import StencilSchedule
from sparsegen.shapes import MAX_FUSE

if TYPE_CHECKING:
    from sparsegen.cost.cost import Cost
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.kernel import Kernel

#: Figures of a device whose doubling is tried: key of the profile -> what it is in words.
_LEVERS = {
    "hbm_copy_gbs": "DRAM bandwidth",
    "l2_bytes_per_clk_sm": "bandwidth between an SM and L2",
    "smem_bytes_per_clk_sm": "bandwidth of shared memory and L1",
    "f64_fma_per_clk_sm": "FP64 FMA rate",
    "f32_fma_per_clk_sm": "FP32 FMA rate",
}
#: Schedules of stencil2row, of each fusion and mma shape, that are ranked anew for a changed device.
_POOL = 24
#: Growths of an edge of the grid that are tried.
_GROWTHS = (2, 4, 16)


def changes(kernel: Kernel, choice: Choice) -> tuple[Change, ...]:
    """All that was tried, whether it changes the choice or not."""
    return tuple(_changes(kernel, choice))


def _changes(kernel: Kernel, choice: Choice) -> Iterator[Change]:
    problem: StencilProblem = kernel.problem  # type: ignore[assignment]
    fp, shape, steps, profile = problem.footprint, problem.grid, kernel.steps, kernel.device
    pool = _pool(choice.options, choice.cost)

    def best(device: DeviceProfile, shape: tuple[int, ...], schedules: list[StencilSchedule]) -> Cost:
        return cheapest(rank(fp, device, shape, schedules=schedules).costs, steps)

    usual = _kind(best(profile, shape, pool))
    for what, device in _figures(profile):
        yield _change("figure", f"twice the {what}", best(device, shape, pool), steps, usual)
    for growth in _GROWTHS:
        larger = tuple(n * growth for n in kernel.shape)
        if math.prod(larger) <= MAX_CELLS:
            there = best(profile, replace(problem, shape=larger).grid, pool)
            yield _change("grid", f"a grid of {size(larger)}", there, steps, usual)
    for device in other_profiles(profile).values():
        schedules = list(_legal_there(problem, device, steps, choice.request.exact))
        if schedules:
            note = "costs only" if device.explain_only else ""
            yield _change("device", device.name, best(device, shape, schedules), steps, usual, note)
        else:
            yield Change("device", device.name, None, None, None, None, True, "no legal schedule")
    if steps < MAX_FUSE:
        what = f"more than {plural(steps, 'step')} a call"
        yield Change("steps", what, None, None, None, None, True, "time steps can be fused")


def _kind(c: Cost) -> tuple[str, int, str]:
    """What makes a choice another one: family, steps of a pass, mma shape."""
    return c.schedule.family, c.schedule.steps, c.schedule.mma


def _change(
    kind: Literal["figure", "grid", "device"], what: str, there: Cost, steps: int, usual: tuple[str, int, str],
    note: str = "",
) -> Change:  # fmt: skip
    time, other = total_time(there, steps), _kind(there) != usual
    return Change(kind, what, str(there.schedule), time, there.rate, there.binds, other, note)


def _pool(ranking: Options, cost: Cost) -> list[StencilSchedule]:
    """The chosen schedule, and of stencil2row, which has thousands, the best of each fusion and mma shape."""
    count: Counter[tuple[str, int, str]] = Counter()
    pool = [cost.schedule]
    for c in ranking.costs:
        count[_kind(c)] += 1
        if (c.schedule.family != "stencil2row" or count[_kind(c)] <= _POOL) and c.schedule != cost.schedule:
            pool.append(c.schedule)
    return pool


def _figures(profile: DeviceProfile) -> Iterator[tuple[str, DeviceProfile]]:
    for key, what in _LEVERS.items():
        yield what, replace(profile, **{key: 2 * getattr(profile, key)})
    if any(name.startswith("f64") for name in profile.cpi):
        faster = tuple((name, c / 2 if name.startswith("f64") else c) for name, c in profile.cpi_table)
        yield "rate of FP64 mma", replace(profile, cpi_table=faster)


@lru_cache(maxsize=64)
def _few(fp: Footprint, limit: int) -> tuple[StencilSchedule, ...]:
    """The search's space without what is hardly ever the best: tables, predicated stores, deep rings of stencil2row."""
    return tuple(
        s
        for s in space(fp, limit)
        if s.family != "stencil2row" or not (s.lut or not s.dirty or s.stages > 2)
    )  # fmt: skip


def _legal_there(problem: StencilProblem, device: DeviceProfile, steps: int, exact: bool) -> Iterator[StencilSchedule]:
    fp, extents = problem.footprint, problem.stencil.weights.shape
    for s in _few(fp, min(steps, most_steps())):
        if (exact and s.widens) or misfit(s, extents, problem.grid):
            continue
        try:
            legal(s, fp, device)
        except ScheduleError:
            continue
        yield s
