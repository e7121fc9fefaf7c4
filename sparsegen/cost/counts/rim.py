"""The launch that mends what time fusion leaves wrong near a border: exact steps of small tiles in shared memory.

Each block fetches the window of a tile, does one step after the other on what is left of it, and stores the tile.
What the steps ask of shared memory is in :mod:`sparsegen.cost.counts.rim_steps`.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import prod

import numpy as np

from sparsegen.cost.counts.base import Launch, Pass
from sparsegen.cost.counts.fused import Fused
from sparsegen.cost.counts.rim_steps import Step, Tiles
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.tiles import Choices, Ints, Kinds, Range, kinds, starts, unit
from sparsegen.cost.counts.window import Window
from sparsegen.cost.terms import RIM_ROW, RIM_ROW_THREADS, RIM_THREADS, RIM_TILE
from sparsegen.families import family
from sparsegen.ir.op import Box, tile_counts


def launches(p: Pass) -> tuple[Launch, ...]:
    """The rim's launch of a pass, or none if time fusion leaves nothing to it."""
    f = Fused.of(p)
    if not f.boxes:
        return ()
    row = p.footprint.flat and family(p.schedule).RIM == "all"
    rows, cols, threads = (1, RIM_ROW, RIM_ROW_THREADS) if row else (RIM_TILE, RIM_TILE, RIM_THREADS)
    return (Launch(f"{f.name}_rim", _Rim(f, rows, cols, threads).counts()),)


class _Rim:
    """The rim of a pass in tiles of ``rows`` x ``cols`` for blocks of ``threads``."""

    def __init__(self, f: Fused, rows: int, cols: int, threads: int) -> None:
        self.f, self.size, self.warps, self.tally = f, (rows, cols), threads // 32, Tally()
        halo = (f.radius[0] * f.steps, f.radius[1] * f.steps)
        window = (rows + 2 * halo[0], cols + 2 * halo[1])
        self.window = Window(*window, halo, (f.shape[0], f.shape[1]), f.sides, f.dtype, f.sums)
        self.first = starts(f.boxes, self.size)

    def counts(self) -> dict[str, int]:
        """Those of the launch."""
        f, tally = self.f, self.tally
        blocks = sum(prod(tile_counts(box, self.size)) for box in f.boxes)
        tally.issue("ld.param", len(f.once) * self.warps * blocks)
        tally.issue("barrier", (f.steps + 1) * self.warps * blocks)
        across = 0
        for box in f.boxes:
            y, x = (self._kinds(axis, box[axis]) for axis in (0, 1))
            times = np.outer(y.times, x.times)
            self.window.copy(tally, y, x, times)
            edge = self.window.crosses(0, y.first)[:, None] | self.window.crosses(1, x.first)
            across += int((edge * times).sum())
            self._put(y, x, times, box)
        tally.issue(f"select.{f.dtype}", self.window.choices(self.first) * self.window.turns * across)
        self._steps()
        return tally.result()

    def _kinds(self, axis: int, cells: Range) -> Kinds:
        """The tiles along an axis of a box, by what their windows reach and what they store."""
        low, high = self.window.plain(axis, self.size[axis])
        stride = self.f.shape[1] if axis == 0 else 1
        return kinds(cells, self.size[axis], (low, min(high, cells[1])), unit(stride, self.f.dtype.nbytes))

    def _put(self, y: Kinds, x: Kinds, times: Ints, box: Box) -> None:
        """Cells of the tile that lie in its box, from shared memory to the field."""
        f, (rows, cols) = self.f, self.size
        e = np.arange(rows * cols).reshape(-1, 32)
        r, c = e // cols, e % cols
        row, col = y.first[:, None, None, None] + r, x.first[:, None, None] + c
        on = ((row < box[0][1]) & (col < box[1][1])).reshape(-1, 32)
        every = np.repeat(times.reshape(-1), len(e))
        local = (r + self.window.before[0]) * self.window.cols + c + self.window.before[1]
        at = np.broadcast_to(local, (*times.shape, *e.shape)).reshape(-1, 32)
        self.tally.request("ld.shared", at * f.sums.nbytes, f.sums.nbytes, on, every)
        self.tally.request("st.global", (row * f.shape[1] + col).reshape(-1, 32) * f.dtype.nbytes, f.dtype.nbytes, on,
                           every)  # fmt: skip
        if f.narrow:
            self.tally.issue(f"cvt.{f.dtype}.{f.sums}", (on.any(axis=1) * every).sum())

    def _steps(self) -> None:
        """All steps of all tiles."""
        f, tally, w, tiles, kept = self.f, self.tally, self.window, self._tiles(), self._keeps()
        selects = sum(map(self._choices, f.once)) + kept
        down = sorted({0, *(tap[0] for tap in f.once)})
        for s in range(1, f.steps + 1):
            step = Step(s, w.rows, w.cols, f.sums.nbytes, (f.radius[0], f.radius[1]), w.extent, f.sides, tiles, down)
            tally.issue(f"mul.{f.sums}", step.warps)
            tally.issue(f"fma.{f.sums}", (len(f.once) - 1) * step.warps)
            tally.issue(f"select.{f.sums}", selects * step.warps)
            for y, x in (*f.once, *[(0, 0)] * kept):
                step.request(tally, "ld.shared", y, x)
            step.request(tally, "st.shared", 0, 0)

    def _tiles(self) -> Tiles:
        """Where windows begin; those that cross no border on an axis behave as one that begins with the field."""
        w, found = self.window, Counter[tuple[int, int]]()
        for box in self.f.boxes:
            y, x = (self._kinds(axis, box[axis]) for axis in (0, 1))
            down, over = (
                np.where(w.crosses(axis, k.first), k.first - w.before[axis], 0).tolist() for axis, k in ((0, y), (1, x))
            )
            for (i, a), (j, b) in product(enumerate(down), enumerate(over)):
                found[a, b] += int(y.times[i] * x.times[j])
        ys, xs = (sorted({at[axis] for at in found}) for axis in (0, 1))
        return Tiles(np.array(ys), np.array(xs), np.array([[found[a, b] for b in xs] for a in ys]))

    def _span(self, axis: int) -> Range:
        """Bounds of the cells that are worked out, as range analysis has them."""
        (low, high), r, n = self.first[axis], self.f.radius[axis], (self.window.rows, self.window.cols)[axis]
        last = n - 1 - r if axis == 1 else min(n - 1, n - 1 - 2 * r + r * self.f.steps)
        return low - self.window.before[axis] + r, high - self.window.before[axis] + last

    def _choices(self, tap: tuple[int, ...]) -> int:
        """``select`` of the read of a neighbour: only across borders that are not periodic."""
        axes = tuple(
            ((self._span(axis)[0] + o, self._span(axis)[1] + o), self.f.shape[axis], self.f.sides[axis])
            for axis, o in enumerate(tap)
            if self.f.sides[axis][0][0] != "periodic"
        )
        return Choices.of(axes).read

    def _keeps(self) -> int:
        """1 if cells are tested for a frozen border, which keeps their values."""
        f = self.f
        for axis, (low, high) in enumerate(f.sides):
            least, most = self._span(axis)
            if (low[0] == "frozen" and least < f.radius[axis]) or (
                high[0] == "frozen" and most >= f.shape[axis] - f.radius[axis]
            ):
                return 1
        return 0
