"""The numbers of several time steps of an update in ``column``: which planes of which time levels a block keeps.

Time 0 is the newest level that a pass reads, -1 the one before; step t makes time t.  In a turn step t makes the plane
that lies ``lag`` planes above that of step t - 1, so that whatever it reads beside its own rows was written a turn ago:
one barrier a turn is enough.  A thread keeps its own cells of every time in registers; planes whose rows other threads
read have rings in shared memory, and so have arrays that come in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .arithmetic import PIECE, skew, up
from .layers import Array, Read
from .rows import newest


@dataclass(frozen=True)
class Ring:
    """A ring of planes in shared memory, of the window with ``halo`` rows above and below it.

    A turn brings the plane ``ahead`` of the one that the first step makes; ``slots`` planes lie in the ring.
    """

    ahead: int
    slots: int
    halo: int


class LayerLevels:
    """Windows of ``warps * lines`` rows, a piece of 16 bytes a lane; ``planes`` outputs along the slowest axis.

    ``reads`` are those of the formula on three axes, ``fields`` the time levels of each field, ``levels`` the time
    steps of a pass; ``stages`` planes of each array are under way.  Each step spoils a radius of rows and columns at
    the rim of the window; the tile is what the last one leaves.  All in elements.
    """

    def __init__(
        self, *, reads: Iterable[Read], fields: Mapping[str, int], levels: int, nbytes: int, lines: int, planes: int,
        warps: int, stages: int,
    ) -> None:  # fmt: skip
        self.reads, self.fields, self.levels, self.stages = tuple(sorted(set(reads))), dict(fields), levels, stages
        self.lines, self.warps, self.piece = lines, warps, PIECE // nbytes
        own = [offset for name, _, offset in self.reads if name in fields]
        #: Planes, rows and columns that a step reaches, and planes that it reads above and below.
        self.radius = tuple(max([0, *(abs(o[axis]) for o in own)]) for axis in range(3))
        self.below = max([0, *(o[0] for o in own)])
        # planes that are read below the last one may be images of some above it
        self.above = max([0, self.below - 1, *(-o[0] for o in own)])
        #: Columns that any array is read beside a cell.
        self.beside = max([0, *(abs(o[2]) for _, _, o in self.reads)])
        #: Planes from a step to the next: rows of other threads must have been written a turn ago.
        self.lag = max([self.radius[0], *(1 + o[0] for o in own if o[1])])
        self.window = warps * lines, 32 * self.piece  #: rows and columns that every step makes
        spoiled = (levels - 1) * self.radius[2] + max(self.radius[2], self.beside)
        self.lead = (levels - 1) * self.radius[1], up(spoiled, self.piece)  #: of these around the tile
        self.tile = planes, self.window[0] - 2 * self.lead[0], self.window[1] - 2 * self.lead[1]  #: a block's outputs
        names = [*((name, -age) for name, n in fields.items() for age in range(n))]
        names += sorted({(name, 0) for name, _, _ in self.reads if name not in fields})
        #: The arrays that come in, as (name, time); such that no step reads are left out.
        self.came = {source: self._came(source) for source in names if self._users(source)}
        made = [(name, time) for name in fields for time in range(1, levels)]
        #: The times that steps make and others read in other threads' rows.
        self.made = {source: ring for source in made if (ring := self._made(source)).slots}
        #: Planes that a thread keeps of its own cells of a field's times, besides the one that a turn brings.
        self.kept = {(name, time): self._kept((name, time)) for name in fields for time in range(levels)}
        #: Turns before the first step's first plane.
        self.filled = max([0, *(self._late(source) for source in self.came)])
        self.turns = planes + self.delay(levels)  #: planes that a block walks over

    # ---------------------------------------------------------------------------------------- who reads what
    def source(self, read: tuple[str, int], step: int) -> Array:
        """What a parameter and level of the formula mean in a step, as (name, time)."""
        name, level = read
        return (name, step - 1 - level if name in self.fields else 0)

    def back(self, source: Array, step: int, dz: int) -> int:
        """How many turns ago the plane came that a step reads ``dz`` planes below its own."""
        ahead = self.came[source].ahead if source in self.came else (1 - source[1]) * self.lag
        return ahead + (step - 1) * self.lag - dz

    def at_hand(self, source: Array, back: int, row: int) -> bool:
        """Whether a thread has a piece of a plane's row, so many rows from its first, in its registers."""
        return back <= self.kept.get(source, -1) and 0 <= row < self.lines

    def _users(self, source: Array) -> list[tuple[int, tuple[int, int, int]]]:
        """(step, offset) of all reads of an array or a time."""
        steps = range(1, self.levels + 1)
        return [(step, read[2]) for read in self.reads if read[0] == source[0]
                for step in steps if self.source(read[:2], step) == source]  # fmt: skip

    def _came(self, source: Array) -> Ring:
        users = self._users(source)
        ahead = max(o[0] - (step - 1) * self.lag for step, o in users)
        # own cells of the newest level are in registers from the turn on in which they come
        waits = [ahead + (step - 1) * self.lag - o[0] for step, o in users
                 if source[0] not in self.fields or source[1] or o[1]]  # fmt: skip
        return Ring(ahead, self.stages + max([0, *waits]), max(abs(o[1]) for _, o in users))

    def _made(self, source: Array) -> Ring:
        waits = [self.back(source, step, o[0]) for step, o in self._users(source) if o[1]]
        return Ring((1 - source[1]) * self.lag, 1 + max(waits) if waits else 0, 0)

    def _kept(self, source: Array) -> int:
        own = [self.back(source, step, o[0]) for step, o in self._users(source) if not o[1]]
        mirrored = 2 * self.below - 1 if source[1] else 0  # the plane whose image is the farthest one below the last
        return max([0, mirrored, *own])

    def _late(self, source: Array) -> int:
        """Turns that an array needs before the first step's first plane, for all that later steps read of it."""
        ahead = self.came[source].ahead
        return max(ahead - o[0] - (step - 1) * self.above for step, o in self._users(source))

    # ---------------------------------------------------------------------------------------- turns
    def delay(self, step: int) -> int:
        """A turn's number less the plane of the tile that a step makes in it."""
        return self.filled + (self.levels - 1) * self.above + (step - 1) * self.lag

    def first(self, step: int) -> int:
        """The turn in which a step begins."""
        return self.filled + (step - 1) * (self.lag + self.above)

    # ---------------------------------------------------------------------------------------- what it takes
    @property
    def outputs(self) -> tuple[tuple[str, int], ...]:
        """(name, steps before the last) of what a pass writes."""
        return newest(self.fields.items(), self.levels)

    def slot(self, ring: Ring) -> int:
        """Elements of a plane of a ring."""
        return (self.window[0] + 2 * ring.halo) * self.window[1]

    def size(self, ring: Ring) -> int:
        """Elements of a ring's slots."""
        return ring.slots * self.slot(ring)

    @property
    def skew(self) -> int:
        """Elements before the first slot of a ring of what comes in."""
        return skew(self.lead[1], self.piece)

    @property
    def elements(self) -> int:
        """Elements of shared memory a block."""
        return self.skew * len(self.came) + sum(map(self.size, (*self.came.values(), *self.made.values())))

    @property
    def held(self) -> int:
        """Elements that a thread keeps in registers, for each of its cells."""
        return sum(depth + 1 for depth in self.kept.values())

    def legal(self, shape: Sequence[int]) -> str | None:
        """Why there is no such kernel on a grid of ``shape``; None if there is."""
        if min(self.tile) <= 0:
            rows, columns = self.window
            return f"{self.levels} steps leave nothing of a window of {rows} rows and {columns} columns"
        reach = [max(self.levels * r, *(abs(o[axis]) + (self.levels - 1) * r for _, _, o in self.reads))
                 for axis, r in enumerate(self.radius)]  # fmt: skip
        if any(far > n for far, n in zip(reach, shape, strict=True)):
            return f"{self.levels} steps reach {' x '.join(map(str, reach))} cells, past the field"
        return None
