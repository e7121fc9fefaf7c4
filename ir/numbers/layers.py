"""The numbers of an update in ``column``: what a block keeps of every array while it walks along the slowest axis.

An array that is read beside a cell has a ring of planes in shared memory, each the block's tile with its halo; what a
thread reads above and below its own cells stays in its registers.  An array that is read at the cell alone goes through
slots of the thread's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from .arithmetic import PIECE, skew, up

#: 32-bit registers that a thread keeps of planes above and below from which on they are crowded.
CROWDED: Final = 128
#: A read: parameter, time level, (planes, rows, columns) away.
Read = tuple[str, int, tuple[int, int, int]]
#: An array: parameter and time level.
Array = tuple[str, int]


@dataclass(frozen=True)
class Planes:
    """A ring of planes of an array.

    A turn brings the plane ``ahead`` of the one that is made; beside a cell those are read that came up to ``lag``
    turns ago.  ``kept`` planes of a thread's own cells stay in registers, besides the newest one (0: none does).
    ``halo``: rows and columns around the tile, whole pieces of these, of which ``columns`` are read; ``corners``:
    whether those of the tile are read.
    """

    ahead: int
    lag: int
    kept: int
    halo: tuple[int, int]
    columns: int
    corners: bool


class Layers:
    """Tiles of ``warps * lines`` rows, a piece of 16 bytes a lane, ``planes`` outputs along the slowest axis.

    ``reads`` are those of the formula on three axes, ``fields`` the time levels of each field; ``stages`` planes of
    each array are under way.  All in elements.
    """

    def __init__(
        self, *, reads: Iterable[Read], fields: Mapping[str, int], nbytes: int, lines: int, planes: int, warps: int,
        stages: int,
    ) -> None:  # fmt: skip
        self.reads, self.stages, self.lines, self.warps = tuple(sorted(set(reads))), stages, lines, warps
        self.piece = PIECE // nbytes  #: columns of a lane
        self.tile = planes, warps * lines, 32 * self.piece  #: outputs of a block
        arrays = {
            (name, level): [o for n, k, o in self.reads if (n, k) == (name, level)] for name, level, _ in self.reads
        }
        #: The arrays that are read beside a cell, and those that are read at the cell alone.
        self.rings = {array: self._planes(offsets) for array, offsets in arrays.items() if any(map(any, offsets))}
        self.owns = tuple(array for array in arrays if array not in self.rings)
        #: Turns before a block's first plane is made.
        self.delay = max([0, *(p.ahead + max(0, *(-o[0] for o in arrays[a])) for a, p in self.rings.items())])
        self.turns = planes + self.delay

    def _planes(self, offsets: list[tuple[int, int, int]]) -> Planes:
        ahead = max(0, *(dz for dz, _, _ in offsets))
        beside = [o for o in offsets if o[1] or o[2]]
        above = [dz for dz, dy, dx in offsets if not (dy or dx)]
        kept = ahead - min(above) if any(above) else 0
        # the own cells of the plane that is made are read from the ring where no registers hold them
        lags = [ahead - dz for dz, _, _ in beside] + [ahead - dz for dz in above if not kept]
        rows, columns = (max([0, *(abs(o[axis]) for o in offsets)]) for axis in (1, 2))
        return Planes(
            ahead, max([0, *lags]), kept, (rows, up(columns, self.piece)), columns, any(o[1] and o[2] for o in beside)
        )

    def window(self, array: Array) -> tuple[int, int]:
        """Rows and columns of a plane in the ring."""
        rows, columns = self.rings[array].halo
        return self.tile[1] + 2 * rows, self.tile[2] + 2 * columns

    def ring(self, array: Array) -> int:
        """Elements of an array's ring, or of the slots of all threads."""
        if array not in self.rings:
            return self.stages * self.tile[1] * self.tile[2]
        rows, columns = self.window(array)
        return self.skew(array) + (self.stages + self.rings[array].lag) * rows * columns

    def skew(self, array: Array) -> int:
        """Elements of a ring before its first slot."""
        return skew(self.rings[array].halo[1], self.piece)

    def slots(self, array: Array) -> int:
        """Planes of an array that a block holds."""
        return self.stages + (self.rings[array].lag if array in self.rings else 0)

    @property
    def elements(self) -> int:
        """Elements of shared memory a block."""
        return sum(map(self.ring, (*self.rings, *self.owns)))

    @property
    def crowded(self) -> bool:
        """Whether what a thread keeps takes half of the registers that it may have."""
        return self.kept * self.lines * max(PIECE // 4, self.piece) >= CROWDED

    @property
    def kept(self) -> int:
        """Elements that a thread keeps of planes above and below, for each of its cells."""
        return sum(planes.kept for planes in self.rings.values())
