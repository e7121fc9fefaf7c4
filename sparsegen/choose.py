"""The one choice: which schedule does what a problem asks for soonest, by the cost model, or the one that was given.

It is made from options: schedules with their costs, and those that are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import KINDS, OPERATIONS, Schedule, read

if TYPE_CHECKING:
    from sparsegen.problem import Problem


@dataclass(frozen=True)
class Rejected:
    """A schedule that cannot run there, why, and what would help."""

    schedule: Schedule
    reason: str
    remedy: str | None = None


@dataclass(frozen=True)
class Request:
    """What is asked of a schedule besides the problem: ``steps`` time steps in all, and with ``exact`` that a NaN or
    Inf reaches no cell that the stencil does not connect it to.  With ``every`` the options hold what is chosen only
    where it is named, too."""

    steps: int = 1
    exact: bool = False
    every: bool = False


class Options:
    """The schedules that can be chosen from; what is asked for is worked out then, once."""

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost of every legal schedule, cheapest first."""
        raise NotImplementedError

    @cached_property
    def best(self) -> Cost | None:
        """The cheapest for the request; None if there is none."""
        return next(iter(self.costs), None)

    @cached_property
    def rejected(self) -> tuple[Rejected, ...]:
        """Those that are not legal, each with its reason."""
        return ()


class Listed(Options):
    """Options that are all worked out already; ``best`` is the first one if it is not given."""

    def __init__(self, costs: Iterable[Cost], rejected: Iterable[Rejected] = (), best: Cost | None = None) -> None:
        self.__dict__.update(costs=tuple(costs), rejected=tuple(rejected))
        if best is not None:
            self.__dict__["best"] = best


@dataclass(frozen=True)
class Choice:
    """A schedule with its cost, what it was chosen from, and who chose.

    ``automatic``: whether the cost model did, all of it or what a line left out.
    """

    cost: Cost
    options: Options
    automatic: bool
    request: Request

    @property
    def schedule(self) -> Any:
        """What was chosen."""
        return self.cost.schedule


def choose(problem: Problem, device: DeviceProfile, schedule: Any, request: Request) -> Choice:
    """The schedule of ``schedule=``: ``"auto"``, a line, or a Schedule; ScheduleError for anything else."""
    kinds = [kind for op in problem.takes for kind in KINDS if kind.op == op]
    what, example = OPERATIONS[problem.op]
    automatic = isinstance(schedule, str) and schedule.strip() == "auto"
    wanted = None if automatic else read(schedule, kinds) if isinstance(schedule, str) else schedule
    if wanted is not None and (not isinstance(wanted, Schedule) or wanted.op not in problem.takes):
        told = f"{wanted}" if isinstance(wanted, Schedule) else f"schedule={wanted!r}"
        a = f"a {kinds[0].__name__}"
        raise ScheduleError(f"{told} is no schedule of {what}", hint=f"pass 'auto', a line such as {example!r}, or {a}")
    options = problem.options(wanted, device, request)
    if wanted is not None and wanted.complete:
        return Choice(problem.price(wanted, device, request), options, False, request)
    best = options.best
    if best is None:
        raise problem.none(device, options, wanted)
    return Choice(best, options, True, request)
