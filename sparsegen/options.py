"""What a choice is made from: schedules with their costs, those that are refused, and what is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sparsegen.cost.cost import Cost
from sparsegen.schedule import Schedule


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


@dataclass
class Listed(Options):
    """Options that are all worked out already."""

    costs: tuple[Cost, ...]
    rejected: tuple[Rejected, ...] = ()
