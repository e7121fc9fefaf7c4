"""The copy of a tile's window to shared memory: of warps that walk its elements (or pieces) in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.tiles import Choices, Ints, Kinds, Range, held, mapped
from sparsegen.ir.op import Sides
from sparsegen.ir.types import DType


@dataclass(frozen=True)
class Window:
    """``rows`` x ``cols`` elements that begin ``before`` a tile, of a packed field of ``extent``, in shared rows of
    ``cols``.

    ``vector``: adjacent elements of a piece; ``asynchronous``: past the registers.  ``dst``: their type there.
    """

    rows: int
    cols: int
    before: tuple[int, int]
    extent: tuple[int, int]
    sides: Sides
    src: DType
    dst: DType
    vector: int = 1
    asynchronous: bool = False

    def crosses(self, axis: int, first: Ints) -> Ints:
        """Of tiles on an axis: 1 where their windows reach outside it, else 0."""
        begin = first - self.before[axis]
        return ((begin < 0) | (begin + (self.rows, self.cols)[axis] > self.extent[axis])).astype(np.int64)

    def plain(self, axis: int, size: int) -> Range:
        """Which cells tiles lie in whose windows do not reach outside."""
        after = (self.rows, self.cols)[axis] - self.before[axis] - size
        return self.before[axis], self.extent[axis] - after

    @property
    def turns(self) -> int:
        """Warps' turns of an element a lane."""
        return -(-self.rows * self.cols // 32)

    def choices(self, first: tuple[Range, ...]) -> int:
        """``select`` of a turn across a border, for bounds of the tile's first cell."""
        spans = [
            (low - before, high - before + n - 1)
            for (low, high), before, n in zip(first, self.before, (self.rows, self.cols), strict=True)
        ]
        found = Choices.of(tuple(zip(spans, self.extent, self.sides, strict=True)))
        return found.constant if self._past_registers else found.read

    @property
    def _past_registers(self) -> bool:
        return self.asynchronous and self.src.nbytes >= 4

    def copy(self, tally: Tally, y: Kinds, x: Kinds, times: Ints) -> None:
        """The copies of ``times`` [kinds of y, kinds of x] tiles, without their ``select``."""
        across = (self.crosses(0, y.first)[:, None] | self.crosses(1, x.first)[None, :]).astype(bool)
        for edge in (False, True):
            pairs = np.argwhere((across == edge) & (times > 0))
            if len(pairs):
                self._pairs(tally, y.first[pairs[:, 0]], x.first[pairs[:, 1]], times[pairs[:, 0], pairs[:, 1]], edge)

    def _pairs(self, tally: Tally, y: Ints, x: Ints, times: Ints, edge: bool) -> None:
        """Tiles that all reach across a border, or none of which does."""
        vector = self.vector if self.asynchronous and not edge else 1
        nbytes, wide = vector * self.src.nbytes, self.cols // vector
        total = self.rows * wide
        e = np.arange(-(-total // 32) * 32).reshape(-1, 32)
        on, e = e < total, np.minimum(e, total - 1)
        r, c = e // wide, e % wide * vector
        rows = (y - self.before[0])[:, None] + np.arange(self.rows)
        cols = (x - self.before[1])[:, None] + np.arange(self.cols)
        inside = held(rows, self.extent[0], self.sides[0])[:, r] & held(cols, self.extent[1], self.sides[1])[:, c]
        if edge:
            rows, cols = mapped(rows, self.extent[0], self.sides[0]), mapped(cols, self.extent[1], self.sides[1])
        at = ((rows[:, r] * self.extent[1] + cols[:, c]) * self.src.nbytes).reshape(-1, 32)
        every, mask = np.repeat(times, len(e)), np.broadcast_to(on, (len(y), *on.shape)).reshape(-1, 32)
        to = np.tile(e * vector * self.dst.nbytes, (len(y), 1))
        if not self._past_registers if edge else not self.asynchronous:
            tally.request("ld.global", at, nbytes, mask, every)
            tally.request("st.shared", e * self.dst.nbytes, self.dst.nbytes, on, int(times.sum()))
            if self.src != self.dst:
                tally.issue(f"cvt.{self.dst}.{self.src}", len(e) * int(times.sum()))
            return
        if not edge:
            tally.request("cp_async", at, nbytes, mask, every)
            tally.request("cp_async.shared", e * vector * self.dst.nbytes, nbytes, on, int(times.sum()))
            return
        found = inside.reshape(-1, 32)
        tally.request("cp_async", at, nbytes, mask & found, every)
        tally.request("cp_async.shared", to, nbytes, mask & found, every)
        tally.request("st.shared", to, nbytes, mask & ~found, every)
