"""The one choice: which schedule does what a problem asks for soonest, by the cost model, or the one that was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.ir.errors import ScheduleError
from sparsegen.options import Options, Request
from sparsegen.problem import Problem
from sparsegen.schedule import KINDS, OPERATIONS, Schedule


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
    kind = next(k for k in KINDS if k.op == problem.op)
    what, example = OPERATIONS[problem.op]
    automatic = isinstance(schedule, str) and schedule.strip() == "auto"
    wanted = kind.parse(schedule) if isinstance(schedule, str) and not automatic else None if automatic else schedule
    if wanted is not None and (not isinstance(wanted, Schedule) or wanted.op != problem.op):
        told = f"{wanted}" if isinstance(wanted, Schedule) else f"schedule={wanted!r}"
        raise ScheduleError(
            f"{told} is no schedule of {what}", hint=f"pass 'auto', a line such as {example!r}, or a {kind.__name__}"
        )
    options = problem.options(wanted, device, request)
    if wanted is not None and wanted.complete:
        return Choice(problem.price(wanted, device, request), options, False, request)
    best = options.best
    if best is None:
        raise problem.none(device, options, wanted)
    return Choice(best, options, True, request)
