"""The legal schedules of a stencil on a device, and their order by predicted time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from sparsegen.choose import Rejected
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.stencil import evaluate
from sparsegen.dsl.stencil import Stencil
from sparsegen.families import stencil2row
from sparsegen.families.base import named
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry, legal, misfit
from sparsegen.ir.errors import ScheduleError
from sparsegen.registry import families
from sparsegen.schedule import StencilSchedule
from sparsegen.sizes import MAX_CELLS, MAX_FUSE


@dataclass(frozen=True)
class Ranking:
    """All legal schedules, cheapest a time step first, and the others with their reasons."""

    costs: tuple[Cost, ...]
    rejected: tuple[Rejected, ...]

    def best_of_families(self) -> dict[str, Cost]:
        """The cheapest schedule of each family."""
        best: dict[str, Cost] = {}
        for c in self.costs:
            best.setdefault(c.schedule.family, c)
        return best


def space(fp: Footprint, limit: int = MAX_FUSE, ablation: bool = False) -> Iterator[StencilSchedule]:
    """Every schedule that is tried, legal or not, of at most ``limit`` time steps a pass.

    With ``ablation`` also stencil2row with pad=off and transform=explicit.
    """
    for name in families("stencil"):
        if fp.axes in named(name).axes:
            yield from stencil2row.space(fp, limit, ablation) if name == "stencil2row" else named(name).space(fp, limit)


def candidates(
    fp: Footprint,
    device: DeviceProfile,
    shape: tuple[int, ...],
    limit: int = MAX_FUSE,
    rejected: list[Rejected] | None = None,
    ablation: bool = False,
) -> Iterator[StencilSchedule]:
    """Every legal schedule for a stencil; what is not legal goes into ``rejected`` with its reason.

    A grid smaller than what a pass reaches cannot be wrapped or mirrored in one piece, so such a fusion is refused.
    """
    extents = (1, fp.k) if fp.flat else (fp.k,) * fp.axes
    for s in space(fp, limit, ablation):
        try:
            if reason := misfit(s, extents, shape):
                raise ScheduleError(reason, hint="lower fuse or levels")
            legal(s, fp, device)
        except ScheduleError as e:
            if rejected is not None:
                rejected.append(Rejected(s, e.message))
            continue
        yield s


def rank(
    fp: Footprint,
    device: DeviceProfile,
    shape: tuple[int, ...],
    limit: int = MAX_FUSE,
    schedules: Iterable[StencilSchedule] | None = None,
    ablation: bool = False,
) -> Ranking:
    """All candidates (or the given legal schedules) by predicted time a step, then by what would bind next."""
    rejected: list[Rejected] = []
    ranked: list[tuple[tuple[float, float], Cost]] = []
    if schedules is None:
        schedules = candidates(fp, device, shape, limit, rejected, ablation)
    for s in schedules:
        c = evaluate(fp, shape, s, device, geometry(s, fp))
        ranked.append((order(c), c))
    return Ranking(tuple(c for _, c in sorted(ranked, key=lambda r: r[0])), tuple(rejected))


def order(c: Cost) -> tuple[float, float]:
    """What costs are sorted by: seconds a step, then what would bind next; of equal ones the first comes first."""
    return round(c.time_per_step, 12), c.terms["l2"] + c.terms["exposed"]


@cache
def most_steps() -> int:
    """The most time steps of a pass of any family."""
    return max(
        math.prod(family.by_name[word].high or 1 for word in ("fuse", "levels") if family.has(word))
        for family in families("stencil").values()
    )


def ranked(stencil: Stencil, shape: tuple[int, ...], limit: int, profile: DeviceProfile, exact: bool) -> Ranking:
    """All legal schedules of at most ``limit`` steps a pass, cheapest first, and the others with their reasons."""
    fp, rejected, fitting = Footprint.of(stencil), list[Rejected](), list[StencilSchedule]()
    for s in candidates(fp, profile, (MAX_CELLS,) * len(shape), limit, rejected):
        reason = misfit(s, stencil.weights.shape, shape)
        if reason is None and exact and s.widens:
            reason = "nonfinite='exact': it may spread a NaN or Inf farther than the stencil"
        if reason is None:
            fitting.append(s)
        else:
            rejected.append(Rejected(s, reason))
    return Ranking(rank(fp, profile, shape, schedules=fitting).costs, tuple(rejected))
