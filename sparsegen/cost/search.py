"""The legal schedules of a stencil on a device, and their order by predicted time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from sparsegen.choose import Listed, Rejected
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
from sparsegen.sizes import MAX_FUSE


def space(fp: Footprint, limit: int = MAX_FUSE, ablation: bool = False) -> Iterator[StencilSchedule]:
    """Every schedule that is tried, legal or not, of at most ``limit`` time steps a pass.

    With ``ablation`` also stencil2row with pad=off and transform=explicit.
    """
    for name in families("stencil"):
        if named(name).takes(fp):
            yield from stencil2row.space(fp, limit, ablation) if name == "stencil2row" else named(name).space(fp, limit)


def candidates(
    fp: Footprint, device: DeviceProfile, shape: tuple[int, ...], limit: int = MAX_FUSE,
    rejected: list[Rejected] | None = None, ablation: bool = False, extents: tuple[int, ...] = (), exact: bool = False,
) -> Iterator[StencilSchedule]:  # fmt: skip
    """Every legal schedule for a stencil; what is not legal goes into ``rejected`` with its reason.

    A grid smaller than what a pass reaches cannot be wrapped or mirrored in one piece, so such a fusion is refused.
    ``extents``: of the stencil, if not those of a cube; ``exact``: without schedules that spread a NaN.
    """
    extents = extents or ((1, fp.k) if fp.flat else (fp.k,) * fp.axes)
    for s in space(fp, limit, ablation):
        try:
            legal(s, fp, device)
            reason = misfit(s, extents, shape)
        except ScheduleError as e:
            reason = e.message
        if reason is None and exact and s.widens:
            reason = "nonfinite='exact': it may spread a NaN or Inf farther than the stencil"
        if reason is None:
            yield s
        elif rejected is not None:
            rejected.append(Rejected(s, reason))


def rank(
    fp: Footprint, device: DeviceProfile, shape: tuple[int, ...], limit: int = MAX_FUSE,
    schedules: Iterable[StencilSchedule] | None = None,
) -> Listed:  # fmt: skip
    """All candidates (or the given legal schedules) by predicted time a step, then by what would bind next."""
    rejected: list[Rejected] = []
    if schedules is None:
        schedules = candidates(fp, device, shape, limit, rejected)
    found = [evaluate(fp, shape, s, device, geometry(s, fp)) for s in schedules]
    return Listed(tuple(sorted(found, key=order)), tuple(rejected))


def order(c: Cost) -> tuple[float, float]:
    """What costs are sorted by: seconds a step, then what would bind next; of equal ones the first comes first."""
    return round(c.time_per_step, 12), c.terms["l2"] + c.terms["exposed"]


@cache
def most_steps() -> int:
    """The most time steps of a pass of any family."""
    return max(named(name).most_steps for name in families("stencil"))


def ranked(stencil: Stencil, shape: tuple[int, ...], limit: int, profile: DeviceProfile, exact: bool) -> Listed:
    """All legal schedules of at most ``limit`` steps a pass, cheapest first, and the others with their reasons."""
    fp, rejected = Footprint.of(stencil), list[Rejected]()
    fitting = candidates(fp, profile, shape, limit, rejected, extents=stencil.weights.shape, exact=exact)
    return Listed(rank(fp, profile, shape, schedules=fitting).costs, tuple(rejected))
