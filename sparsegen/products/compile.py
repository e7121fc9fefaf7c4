"""``sg.compile`` and ``sg.schedules`` for sparse products: check, choose a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sparsegen.ir.errors import ScheduleError
from sparsegen.products.cost import SpmmCost, cost, dense_cost
from sparsegen.products.geometry import Geometry, legal, space
from sparsegen.products.product import Problem, Product
from sparsegen.products.schedule import DENSE, SpmmSchedule

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.target import Target


#: From so many columns on, fewer warps of an SM were slower than the model says (117 us for 107): not tried by itself.
WIDE, FEW = 32, 12


@dataclass(frozen=True)
class Refused:
    """A schedule that cannot run there, why, and what would help."""

    schedule: SpmmSchedule
    reason: str
    remedy: str | None


@dataclass(frozen=True)
class SpmmChoice:
    """A schedule, all legal ones (cheapest first), what was refused, the dense product, and who chose.

    ``automatic``: whether the cost model did, all of it or what a line left out.
    """

    cost: SpmmCost
    ranking: tuple[SpmmCost, ...]
    refused: tuple[Refused, ...]
    dense: SpmmCost
    automatic: bool

    @property
    def schedule(self) -> SpmmSchedule:
        """What was chosen."""
        return self.cost.schedule


@dataclass(frozen=True)
class Ranking:
    """The legal schedules, cheapest first, and the others."""

    costs: tuple[SpmmCost, ...]
    refused: tuple[Refused, ...]


def doubtful(s: SpmmSchedule, g: Geometry) -> bool:
    """Whether a schedule has so few warps an SM for its columns that the model's time is not to be trusted."""
    return s.cols >= WIDE and g.resident * s.warps[0] * s.warps[1] < FEW


@lru_cache(maxsize=64)
def rank(p: Problem, wanted: SpmmSchedule, device: DeviceProfile) -> Ranking:
    """All schedules with the words of ``wanted``; of equally cheap ones the plainest come first.

    Runs of strips are spread over whole waves of SMs, so many values of ``rows`` give a warp the same strips: of those
    only the least is kept, unless the line names it.
    """
    costs: list[SpmmCost] = []
    refused: list[Refused] = []
    for s in space(p, wanted):
        try:
            g = legal(p, s, device)
        except ScheduleError as error:
            refused.append(Refused(s, error.message, error.hint))
            continue
        if (wanted.rows or s.rows == g.strips_warp) and (wanted.warps != (0, 0) or not doubtful(s, g)):
            costs.append(cost(p, s, device, g))
    costs.sort(key=lambda c: (round(c.time, 9), c.schedule.stages, c.schedule.splits, sum(c.terms.values())))
    return Ranking(tuple(costs), tuple(refused))


def choose(product: Product, target: Target, schedule: Any) -> SpmmChoice:
    """The schedule of ``schedule=``: ``"auto"``, a line, or an SpmmSchedule; ScheduleError for anything else.

    The dense product is chosen where it is named, and by ``"auto"`` where W was made with ``format="auto"`` and the
    model has it as the faster one.
    """
    p, device = Problem.of(product), target.profile
    automatic = isinstance(schedule, str) and schedule.strip() == "auto"
    if automatic:
        schedule = SpmmSchedule()
    elif isinstance(schedule, str):
        schedule = SpmmSchedule.parse(schedule)
    if not isinstance(schedule, SpmmSchedule):
        raise ScheduleError(
            f"schedule={schedule!r} is no schedule of a sparse product",
            hint="pass 'auto', 'dense', or a line such as 'bitmap cols=16 warps=2x8'",
        )
    dense = dense_cost(p, device)
    ranking = rank(p, SpmmSchedule() if schedule == DENSE else schedule, device)
    free = automatic and product.w.auto
    if schedule == DENSE or (free and (not ranking.costs or dense.time < ranking.costs[0].time)):
        return SpmmChoice(dense, ranking.costs, ranking.refused, dense, automatic)
    if not ranking.costs:
        why = ranking.refused[0]
        what = "" if schedule.complete else f"no {schedule} schedule can run the product: "
        raise ScheduleError(f"{what}{why.reason}", hint=why.remedy)
    return SpmmChoice(ranking.costs[0], ranking.costs, ranking.refused, dense, not schedule.complete)


def ranked(product: Product, device: DeviceProfile) -> list[SpmmCost]:
    """The cost of every legal schedule, the dense product's among them, cheapest first."""
    p = Problem.of(product)
    return sorted([*rank(p, SpmmSchedule(), device).costs, dense_cost(p, device)], key=lambda c: c.time)
