"""What one level of ``column`` costs a warp, with the border that its window touches, by the structure of the taps.

A thread has ``lines`` x ``piece`` cells of a plane.  Values of other columns come by shuffle, those of other rows from
the neighbouring warp's edge rows; a border that holds at every level is a ``select`` for each value that it decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from sparsegen.boundary import periodic
from sparsegen.cost.counts.tally import Tally
from sparsegen.ir.boundary import Side, Sides

PERIODIC: Final = (periodic, periodic)
Offset = tuple[int, int, int]
_LANES = np.arange(32)


@dataclass(frozen=True)
class Masks:
    """A thread's cells that a frozen side of the two fastest axes keeps: those it may keep, those it surely does.

    As far as bounds of rows and columns tell, for all threads at once; bit i is cell i.
    """

    may: int
    must: int

    @classmethod
    def of(
        cls, sides: Sides, shape: tuple[int, ...], lead: tuple[int, int], step: tuple[int, int],
        blocks: tuple[int, int], warps: int, lines: int, piece: int,
    ) -> Masks:  # fmt: skip
        """The masks of blocks that have so many rows and columns, ``step`` of them apart."""
        units, own = (warps, 32), (lines, piece)
        may, must = 0, 0
        for bit, place in enumerate(np.ndindex(own)):
            some, sure = False, False
            for axis in (0, 1):
                low = place[axis] - lead[axis]
                high = low + (blocks[axis] - 1) * step[axis] + (units[axis] - 1) * own[axis]
                for side, first, last in ((0, low, high), (1, -high, -low)):
                    limit = 1 if side == 0 else 2 - shape[axis + 1]  # kept: below 1, or from the last cell on
                    if sides[axis + 1][side].kind == "frozen":
                        some |= first < limit
                        sure |= last < limit
            may, must = may | some << bit, must | sure << bit
        return cls(may, must)

    def never(self, bit: int) -> bool:
        """Whether bounds rule out that the cell is kept: bits are told apart only above all that may be set."""
        return self.may >> bit == self.must >> bit and not self.may >> bit & 1


@dataclass(frozen=True)
class Levels:
    """One level's turn; ``sides`` is empty away from every border, ``star`` where planes need no neighbours."""

    taps: Any  #: offsets of the weights, [taps, 3]
    radius: Offset
    lines: int
    piece: int
    shape: tuple[int, ...]
    sides: Sides
    star: bool
    masks: Masks
    dtype: str

    @cached_property
    def offsets(self) -> list[Offset]:
        return [(int(z), int(y), int(x)) for z, y, x in self.taps]

    @cached_property
    def cells(self) -> int:
        return self.lines * self.piece

    @cached_property
    def late(self) -> list[Offset]:
        """Taps that are added after the barrier: all, but of a star those that complete a plane from its own place."""
        return [o for o in self.offsets if not self.star or o[0] < self.radius[0]]

    @cached_property
    def kept(self) -> int:
        """Cells for which a frozen side may have to decide."""
        if "frozen" in (self._kind(0, 0), self._kind(0, 1)):
            return self.cells
        if any(side.kind == "frozen" for pair in self.sides[1:] for side in pair):
            return sum(not self.masks.never(i) for i in range(self.cells))
        return 0

    def add(self, t: Tally, times: int) -> None:
        """A level of a turn, ``times`` times a warp; without the images of a mirrored slowest axis."""
        rz, ry, _ = self.radius
        images = self._image(-1, "before") + self._image(1, "behind")
        t.add("ld.param", times * (len(self.offsets) + (len(self._image(1, "behind")) if self.star else 0)))
        begins = len({o[0] for o in self.offsets} & {-rz})  # the farthest plane's sum begins with a product
        t.add(f"mul.{self.dtype}", times * begins * self.cells)
        t.add(f"fma.{self.dtype}", times * (len(self.offsets) - begins) * self.cells)
        t.add("shfl", times * len(self._shuffled([*self.late, *images])))
        selects = self._outside() + self._mirrored(self.offsets) + self.kept * (2 if rz else 1)
        t.add(f"select.{self.dtype}", times * selects)
        edges = _LANES[None] * 16
        t.shared("st.shared", edges, 16, times * 2 * ry)
        t.shared("ld.shared", edges, 16, times * self._rows_beyond([*self.late, *images]))

    def add_image_before(self, t: Tally, times: int) -> None:
        """The first plane's own image, ``times`` times a warp."""
        self._add_image(t, self._image(-1, "before"), times, begins=1, kept=0)

    def add_image_behind(self, t: Tally, times: int) -> None:
        """The last plane's own image, ``times`` times a warp."""
        if self._kind(0, 1) == "neumann":
            self._add_image(t, self._image(1, "behind"), times, begins=0, kept=self.kept)

    def _add_image(self, t: Tally, taps: list[Offset], times: int, begins: int, kept: int) -> None:
        begins = min(begins, len(taps))
        t.add(f"mul.{self.dtype}", times * begins * self.cells)
        t.add(f"fma.{self.dtype}", times * (len(taps) - begins) * self.cells)
        t.add(f"select.{self.dtype}", times * (self._mirrored(taps) + kept))

    def _kind(self, axis: int, high: int) -> str:
        return self.sides[axis][high].kind if self.sides else ""

    def _image(self, dz: int, where: str) -> list[Offset]:
        """Taps of the plane's image beyond a neumann side of the slowest axis."""
        mirrored = self._kind(0, int(where == "behind")) == "neumann"
        return [o for o in self.offsets if o[0] == dz] if mirrored else []

    def _outside(self) -> int:
        """Selects of a dirichlet value: one a cell if all sides hold the same, else one for each side."""
        held: list[Side] = [side for pair in self.sides for side in pair if side.kind == "dirichlet"]
        return self.cells * (len(held) if len({side.value for side in held}) > 1 else min(1, len(held)))

    def _mirrored(self, taps: Iterable[Offset]) -> int:
        """Selects of edge cells across neumann sides of the two fastest axes, for every cell and tap."""
        total = 0
        for _, dy, dx in taps:
            across = 0
            if dx and self._kind(2, int(dx > 0)) == "neumann":
                border = self.shape[2] - 1 if dx > 0 else 0
                across = self.lines  # one column of a thread can lie at the border
                assert 0 <= border % self.piece < self.piece
            total += 2 * across + self.cells if dy and self._kind(1, int(dy > 0)) == "neumann" else across
        return total

    def _shuffled(self, taps: Iterable[Offset]) -> set[tuple[int, int]]:
        """(row, column) of the values that come from the neighbouring lanes; rows of neighbours included."""
        found: set[tuple[int, int]] = set()
        for _, dy, dx in taps:
            beyond = range(dx, 0) if dx < 0 else range(self.piece, self.piece + dx)
            rows = {line + dy for line in range(self.lines)}
            if dy and self._kind(1, int(dy > 0)) == "neumann":
                rows |= set(range(self.lines))
            found |= {(row, column) for row in rows for column in beyond}
        return found

    def _rows_beyond(self, taps: Iterable[Offset]) -> int:
        """Rows of the neighbouring warps that some tap reads."""
        rows = {line + dy for _, dy, _ in taps for line in range(self.lines)}
        return len(rows - set(range(self.lines)))
