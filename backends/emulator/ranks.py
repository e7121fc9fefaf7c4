"""Launches of several GPUs by turns: who runs ahead, and who has to ask again for cells that others have stored."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np

from .machine import Machine, Run

#: How often another GPU than the last one goes on.
_OTHER = 0.1


class Rank:
    """A GPU with its launches, each of which has all its blocks run at once."""

    def __init__(self, launches: Sequence[Run]) -> None:
        self._left = list(launches)
        self.machine: Machine | None = None

    def turn(self) -> bool:
        """Goes on for a while; false if it cannot before another GPU does."""
        if self.machine is None:
            if not self._left:
                return False
            run = self._left.pop(0)
            self.machine = Machine(run, np.arange(math.prod(run.prog.head.grid)))
            self.machine.begin()
        if self.machine.turn():
            return True
        if self.machine.waiting and not self.machine.dead:
            return False
        self.end()
        return True

    def end(self) -> None:
        """Ends the launch that runs, and after an error all that come behind it."""
        if self.machine is not None:
            self.machine.end()
            self._left = [] if self.machine.dead else self._left
        self.machine = None


def by_turns(ranks: Sequence[Rank], seed: int) -> None:
    """Runs all launches to their end, or until all GPUs wait in vain."""
    rng, at, stuck = random.Random(seed), 0, set[int]()
    while len(stuck) < len(ranks):
        machine = ranks[at].machine
        before = machine.events if machine else 0
        able = ranks[at].turn()
        stuck = set() if able else stuck | {at}
        machine = ranks[at].machine
        if machine is not None and machine.events != before:
            for other in ranks:  # something may have come for those that wait
                if other.machine is not None and other.machine is not machine:
                    other.machine.events += 1
        if not able or not seed or rng.random() < _OTHER:
            at = (at + 1) % len(ranks) if not seed else rng.randrange(len(ranks))
    for rank in ranks:
        rank.end()
