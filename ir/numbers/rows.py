"""The numbers of an update in ``stream``: which rows of which time levels a warp keeps, and where others wait.

A level makes a row ``ry`` rows above the newest one that it has (``ry``: the farthest read of a field, up or down), so
the row of turn i that level t takes in is i - t ry, and what it makes is the row i - (t + 1) ry of level t + 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import lcm

from .arithmetic import PIECE, up

#: A read: parameter, time level, (rows down, columns right).
Read = tuple[str, int, tuple[int, int]]


def newest(fields: Iterable[tuple[str, int]], steps: int) -> tuple[tuple[str, int], ...]:
    """What a pass of so many steps writes, as (name, level): a field's levels, newest first, that it has not read."""
    return tuple((name, level) for name, levels in fields for level in range(min(levels, steps)))


@dataclass(frozen=True)
class Waiting:
    """An array that stays in the ring until its rows are needed: a coefficient, or an older level of a field.

    A turn fetches the row that lies ``ahead`` of that of level 0, down the field (mostly above it: a negative number);
    ``longest``: turns that a row waits; ``early``: turns that it has to come before the halo's first (below 0: later
    would do); ``slots``: of its ring.
    """

    ahead: int
    longest: int
    early: int
    slots: int


class Rows:
    """Strips of 32 * ``per_lane`` columns, ``warps`` side by side, ``rows`` outputs down; all in elements.

    ``reads`` are those of the formula on two axes, ``fields`` the time levels of each field, ``levels`` the time steps
    of a pass; ``stages`` rows of each array are under way.
    """

    def __init__(
        self, *, reads: Iterable[Read], fields: Mapping[str, int], levels: int, nbytes: int, per_lane: int, rows: int,
        warps: int, stages: int,
    ) -> None:  # fmt: skip
        self.reads, self.fields, self.levels, self.stages = tuple(sorted(set(reads))), dict(fields), levels, stages
        of_fields = [offset for name, _, offset in self.reads if name in fields]
        self.ry = max([0, *(abs(dy) for dy, _ in of_fields)])  #: rows that a level reaches
        self.rx = max([0, *(abs(dx) for _, dx in of_fields)])  #: columns that a level reaches
        #: columns that any array is read beside a cell
        self.beside = max([0, *(abs(dx) for _, _, (_, dx) in self.reads)])
        self.piece = PIECE // nbytes  #: elements of 16 bytes
        self.width = 32 * per_lane  #: columns of a strip's window
        spoiled = (levels - 1) * self.rx + max(self.rx, self.beside)
        # whole pieces, and halves of a lane's columns: a border then lies in the same column of whatever lane has it
        self.lead = up(spoiled, lcm(self.piece, per_lane // 2))
        self.step = self.width - 2 * self.lead  #: columns that a strip stores
        self.below = levels * self.ry  #: rows of halo below the outputs
        self.gap = 8 * self.piece  #: columns of a slot after which a piece is left out (see ``Strips``)
        self.slot = self.width + self.width // self.gap * self.piece  #: elements of a row in a ring
        self.tile = rows, warps * self.step  #: outputs of a block
        self.waiting = {source: self._waiting(source) for source in self._sources()}
        #: rows of halo above the outputs: also those that wait the longest are there when the first level needs them
        self.above = self.below + max([0, *(w.early for w in self.waiting.values())])
        self.turns = rows + self.above + self.below  #: rows that a strip walks over
        #: slots of all rings of a warp, a result's own ones among them
        self.slots = sum(w.slots for w in self.waiting.values()) + stages * len(fields)
        self.slots += 2 * sum(not self.through(name, back) for name, back in self.outputs)
        self.ring = warps * self.slot  #: elements of a slot of all warps

    # ---------------------------------------------------------------------------------- what stays in registers
    def lag(self, level: int, dy: int) -> int:
        """How many rows above the newest one of a time level a read of it ``level`` steps later lies."""
        return (level + 1) * self.ry - dy

    def saved(self, name: str) -> tuple[tuple[int, int], ...]:
        """(steps, lag) of a field's rows that a level hands to those so many steps later: older levels that these
        read, and results."""
        read = {(level, self.lag(level, dy)) for n, level, (dy, _) in self.reads if n == name and level}
        return tuple(sorted(read | {(back, back * self.ry) for n, back in self.outputs if n == name and back}))

    def depth(self, name: str) -> int:
        """Rows of each level of a field that stay in registers, besides the newest."""
        down = [dy for n, level, (dy, _) in self.reads if n == name and not level]
        mirrored = 2 * max([0, *down]) - 1  # the row whose image is the farthest one below the last
        return max([self.ry, mirrored, *(self.lag(0, dy) for dy in down), *(lag for _, lag in self.saved(name))])

    @property
    def kept(self) -> int:
        """Elements a column that a thread keeps for all levels."""
        return sum(self.levels * self.depth(name) for name in self.fields)

    # ---------------------------------------------------------------------------------- what waits in shared memory
    def _sources(self) -> list[tuple[str, int]]:
        """Arrays that are not the newest level of a field, as (name, level), in order."""
        older = [(name, level) for name, levels in self.fields.items() for level in range(1, levels)]
        return older + sorted({(name, 0) for name, _, _ in self.reads if name not in self.fields})

    def users(self, source: tuple[str, int]) -> list[tuple[int, int, int]]:
        """(step, level, rows down) of the reads of an array: step t of a pass reads an older level as its own
        level + t, and a coefficient always."""
        name, older = source
        if name not in self.fields:
            return [(t, 0, dy) for n, _, (dy, _) in self.reads if n == name for t in range(self.levels)]
        return [
            (level - older, level, dy) for n, level, (dy, _) in self.reads
            if n == name and older <= level < older + self.levels
        ]  # fmt: skip

    def _waiting(self, source: tuple[str, int]) -> Waiting:
        rows = [(t, dy - (t + 1) * self.ry) for t, _, dy in self.users(source)]
        ahead = max((row for _, row in rows), default=0)
        longest = max((ahead - row for _, row in rows), default=0)
        # step t makes its first row that matters in turn 2 (t + 1) ry of the halo
        early = max((ahead - row - 2 * (t + 1) * self.ry for t, row in rows), default=0)
        return Waiting(ahead, longest, early, self.stages + longest)

    # ---------------------------------------------------------------------------------- results
    @property
    def outputs(self) -> tuple[tuple[str, int], ...]:
        """(name, steps before the last) of what a pass makes."""
        return newest(self.fields.items(), self.levels)

    def through(self, name: str, back: int) -> bool:
        """Whether a result crosses the lanes through the ring of the input level in its place: nothing waits there."""
        return not back or not self.waiting[name, back].longest

    def calm(self, rows: int) -> tuple[int, int]:
        """Of a tile that begins at row 0, the first turn with no row near the low border, and the first with one near
        the high border of ``rows``; of one further down both come as many turns sooner.

        The last level makes rows a radius above those that it reads, and a frozen side keeps another radius of them.
        """
        return self.above + (self.levels + 2) * self.ry, self.above + rows

    def legal(self, per_lane: int, shape: Sequence[int]) -> str | None:
        """Why there is no such kernel on a grid of ``shape`` (rows, columns); None if there is."""
        if per_lane % self.piece:
            return f"{per_lane} columns a lane are no whole pieces of {self.piece} (16 bytes)"
        if self.beside > per_lane:
            return f"reads {self.beside} columns away reach beyond the neighbouring lane, which has {per_lane}"
        if self.step <= 0:
            return f"{self.levels} levels of radius {self.rx} leave nothing of a strip of {self.width} columns"
        if self.below > shape[0] or self.levels * self.rx > shape[1]:
            return f"{self.levels} levels reach {self.below} rows and {self.levels * self.rx} columns, past the field"
        return None
