"""What one level of ``column`` costs a warp, with the border that its window reaches, by the structure of the taps.

A thread has ``lines`` x ``piece`` cells of a plane.  Values of other columns come by shuffle, those of other rows from
the neighbouring warp's edge rows; a border that holds at every level is a ``select`` for each value that it decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from sparsegen.cost.counts.fused import Offsets
from sparsegen.cost.counts.tally import Tally
from sparsegen.ir.op import Sides, SideSpec
from sparsegen.ir.types import DType

PERIODIC: Final[tuple[SideSpec, SideSpec]] = (("periodic", 0.0), ("periodic", 0.0))
Offset = tuple[int, ...]
_LANES = np.arange(32)


@dataclass(frozen=True)
class Block:
    """Who has which cells: ``warps`` of 32 lanes, ``lines`` x ``piece`` cells each; a triple has one for each axis."""

    warps: int
    lines: int
    piece: int  #: columns of a lane
    shape: Offset
    lead: Offset  #: cells of a window before the first that is stored
    step: Offset  #: cells from a window to the next
    blocks: Offset  #: windows

    @property
    def cells(self) -> int:
        """Cells of a thread."""
        return self.lines * self.piece

    def span(self, axis: int, place: int) -> tuple[int, int]:
        """Bounds of a cell's row (axis 1) or column (2), over all windows; ``place`` is that within its thread."""
        low = place - self.lead[axis]
        threads, own = ((self.warps, self.lines), (32, self.piece))[axis - 1]
        return low, low + (self.blocks[axis] - 1) * self.step[axis] + (threads - 1) * own


def never_kept(block: Block, sides: Sides, radius: Offset) -> frozenset[int]:
    """A thread's cells that no frozen side of the two fastest axes ever keeps, so far as bounds tell.

    In the kernel the cells that are kept are the bits of a number, of which the compiler knows the lowest and the
    highest value: bit i is clear if both, shifted by i, are the same even number.
    """
    may, must = 0, 0
    for bit, place in enumerate(np.ndindex(block.lines, block.piece)):
        some, sure = [False], [False]
        for axis, pair in enumerate(sides[1:], 1):
            low, high = block.span(axis, place[axis - 1])
            near, far = radius[axis], block.shape[axis] - radius[axis]
            if pair[0][0] == "frozen":
                some, sure = [*some, low < near], [*sure, high < near]
            if pair[1][0] == "frozen":
                some, sure = [*some, high >= far], [*sure, low >= far]
        may, must = may | any(some) << bit, must | any(sure) << bit
    return frozenset(i for i in range(block.cells) if may >> i == must >> i and not may >> i & 1)


@dataclass(frozen=True)
class Level:
    """One level's turn of a warp; ``sides`` is empty away from every border."""

    taps: Offsets
    radius: Offset
    block: Block
    sides: Sides
    star: bool  #: planes are completed from their own place alone
    free: frozenset[int]  #: cells that no frozen side of the two fastest axes keeps
    dtype: DType

    def turn(self, tally: Tally, times: int) -> None:
        """``times`` turns, without the images of a mirrored slowest axis."""
        (rz, ry, _), cells, images = self.radius, self.block.cells, [*self._before, *self._behind]
        again = len(self._behind) if self.star else 0  # a star's first part has let go of those weights
        tally.issue("ld.param", times * (len(self.taps) + again))
        begins = int(any(tap[0] == -rz for tap in self.taps))  # the farthest plane's sum begins with a product
        self._sums(tally, times, len(self.taps), begins)
        # what completes a star's plane is done before neighbours are asked
        late = [*(tap for tap in self.taps if not self.star or tap[0] < rz), *images]
        tally.issue("shfl", times * len(self._shuffled(late)))
        kept = self._kept * (rz + 1)  # of the plane itself, and of those before it that it gives to
        tally.issue(f"select.{self.dtype}", times * (self._outside * cells + self._mirrored(self.taps) + kept))
        tally.request("st.shared", _LANES[None] * 16, 16, times=times * 2 * ry)
        tally.request("ld.shared", _LANES[None] * 16, 16, times=times * self._rows_beyond(late))

    def image_before(self, tally: Tally, times: int) -> None:
        """``times`` times, what the first plane's image before it gives to the plane itself."""
        self._sums(tally, times, len(self._before), min(1, len(self._before)))
        tally.issue(f"select.{self.dtype}", times * self._mirrored(self._before))

    def image_behind(self, tally: Tally, times: int) -> None:
        """``times`` times, what the last plane's image behind it gives to the plane itself."""
        if self._kind(0, 1) == "neumann":
            self._sums(tally, times, len(self._behind), 0)
            tally.issue(f"select.{self.dtype}", times * (self._mirrored(self._behind) + self._kept))

    def _sums(self, tally: Tally, times: int, taps: int, begins: int) -> None:
        """Products of every cell with so many taps; ``begins`` of them begin a sum."""
        tally.issue(f"mul.{self.dtype}", times * begins * self.block.cells)
        tally.issue(f"fma.{self.dtype}", times * (taps - begins) * self.block.cells)

    def _kind(self, axis: int, high: int) -> str:
        return self.sides[axis][high][0] if self.sides else ""

    @cached_property
    def _before(self) -> Sequence[Offset]:
        """Taps of the image before a mirrored first plane."""
        return [tap for tap in self.taps if tap[0] == -1 and self._kind(0, 0) == "neumann"]

    @cached_property
    def _behind(self) -> Sequence[Offset]:
        """Taps of the image behind a mirrored last plane."""
        return [tap for tap in self.taps if tap[0] == 1 and self._kind(0, 1) == "neumann"]

    @cached_property
    def _kept(self) -> int:
        """Selects of values that a frozen side may keep: one a cell."""
        kinds = [{side[0] for side in pair} for pair in self.sides]
        if "frozen" in set().union(*kinds[:1]):
            return self.block.cells
        return self.block.cells - len(self.free) if "frozen" in set().union(*kinds[1:]) else 0

    @cached_property
    def _outside(self) -> int:
        """Selects of a dirichlet value for a cell: one if all sides hold the same, else one for each of them."""
        held = [value for pair in self.sides for kind, value in pair if kind == "dirichlet"]
        return len(held) if len(set(held)) > 1 else min(1, len(held))

    def _mirrored(self, taps: Iterable[Offset]) -> int:
        """Selects of edge cells across mirrored sides of the two fastest axes, for all cells and some taps."""
        total = 0
        for _, dy, dx in taps:  # of a thread's columns one can lie at the border, of its rows each
            across = self.block.lines if dx and self._kind(2, int(dx > 0)) == "neumann" else 0
            twice = dy and self._kind(1, int(dy > 0)) == "neumann"
            total += 2 * across + self.block.cells if twice else across
        return total

    def _shuffled(self, taps: Iterable[Offset]) -> set[tuple[int, int]]:
        """(row, column) of the values that come from neighbouring lanes."""
        found: set[tuple[int, int]] = set()
        for _, dy, dx in taps:
            beyond = range(dx, 0) if dx < 0 else range(self.block.piece, self.block.piece + dx)
            rows = {line + dy for line in range(self.block.lines)}
            if dy and self._kind(1, int(dy > 0)) == "neumann":
                rows |= set(range(self.block.lines))  # the edge cell may stand in
            found |= {(row, column) for row in rows for column in beyond}
        return found

    def _rows_beyond(self, taps: Iterable[Offset]) -> int:
        """Rows of the neighbouring warps that some tap reads."""
        rows = {line + dy for _, dy, _ in taps for line in range(self.block.lines)}
        return len(rows - set(range(self.block.lines)))
