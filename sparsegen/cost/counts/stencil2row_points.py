"""Points of small planes, which CUDA cores add to the products' accumulators, read through L1 from global memory."""

from __future__ import annotations

from collections import Counter
from functools import cached_property, reduce
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from sparsegen.cost.counts.access import Counts, Ints, both, period, touched
from sparsegen.cost.counts.base import Pass
from sparsegen.cost.counts.border import Span, mapped, selects, sides_of
from sparsegen.cost.counts.stencil2row_use import pairs
from sparsegen.cost.counts.covering import Kind, kinds

Offsets = list[tuple[int, ...]]


def added(p: Pass, size: tuple[int, ...], points: Any) -> Counts:
    """The points ``points`` (an offset a row) added to the outputs of all tiles of ``size``."""
    return _Points(p, size, [tuple(int(i) for i in at) for at in points]).all()


class _Points:
    """A request's lanes read one row, so sectors depend on its columns, and on where in a sector its row begins."""

    def __init__(self, p: Pass, size: tuple[int, ...], points: Offsets) -> None:
        self.p, self.size, self.points = p, size, points
        self.item, self.pairs = p.footprint.itemsize, pairs(p)
        self.every, self.requests = period(self.item), len(self.pairs.rows)
        self.low, self.high = ([end(tap[axis] for tap in points) for axis in range(3)] for end in (min, max))
        self.apart = [prod(p.shape[axis + 1 :]) for axis in range(3)]
        self.sides = sides_of(p.stencil)
        self.vector = 2 if p.shape[-1] % 2 == 0 or prod(p.shape[:-1]) == 1 else 1

    def all(self) -> Counts:
        """Tiles whose cells all lie inside together with their neighbours, and those at a border."""
        inner = [[k for k in of if self._inner(k.at, axis)] for axis, of in enumerate(self.axes)]
        insides = prod(sum(k.many for k in of) for of in inner)
        tiles = prod(sum(k.many for k in of) for of in self.axes)
        out: Counts = Counter()
        taps, warps, fma = len(self.points), self.p.schedule.warps, f"fma.{self.p.stencil.dtype}"
        out["ld.param"] += taps * warps * tiles
        out[fma] += 2 * taps * self.requests * tiles
        if insides:
            out.update(self._inside(inner, insides))
        if at_border := tiles - insides:
            reads = 2 * taps * self.requests * at_border
            offsets = 3 * taps * warps * at_border  # one entry of the table for all lanes
            out["ld.global"] += reads + offsets
            out["bytes.global.read"] += 32 * (self.item * reads + 4 * offsets)
            out["sectors.global.read"] += self._mapped(self.axes) - (self._mapped(inner) if insides else 0) + offsets
            out[f"select.{self.p.stencil.dtype}"] += self._selects() * taps * at_border
        return out

    @cached_property
    def axes(self) -> list[list[Kind]]:
        """Tiles by axis; those are alike which no lane's neighbours leave the field from."""
        last = (0, int(self.pairs.rows.max()), int(self.pairs.cols.max()) + 1)
        return [
            kinds(n, self.size[axis], (-self.low[axis], n - 1 - last[axis] - self.high[axis]), self.apart[axis],
                  self.every)
            for axis, n in enumerate(self.p.shape)
        ]  # fmt: skip

    def _inner(self, at: int, axis: int) -> bool:
        return at >= -self.low[axis] and at + self.size[axis] + self.high[axis] <= self.p.shape[axis]

    def _inside(self, inner: list[list[Kind]], tiles: int) -> Counts:
        """Row by row of the points: the cells that a pair needs, two at once where both are needed."""
        starts = reduce(both, (sum((k.starts for k in of), np.zeros(self.every, np.int64)) for of in inner))
        cells = self.pairs.rows * self.apart[1] + self.pairs.cols
        on = self.pairs.valid[self.pairs.valid.any(axis=1)]
        lanes = {wide: touched(cells[self.pairs.valid.any(axis=1)], self.item, on, wide) for wide in (1, 2)}
        out: Counts = Counter()
        for row, taps in groupby(self.points, key=lambda tap: tap[:-1]):
            cols = sorted({tap[-1] + j for tap in taps for j in (0, 1)})
            far, at = sum(i * apart for i, apart in zip(row, self.apart, strict=False)), 0
            while at < len(cols):
                wide = 2 if self.vector == 2 and cols[at] % 2 == 0 and cols[at] + 1 in cols else 1
                moved = np.roll(starts, (far + cols[at]) % self.every)
                out["ld.global"] += len(on) * tiles
                out["bytes.global.read"] += int(on.sum()) * wide * self.item * tiles
                out["sectors.global.read"] += int(lanes[wide] @ moved)
                at += wide
        return out

    def _mapped(self, axes: list[list[Kind]]) -> int:
        """Sectors of single cells, of all lanes, mapped at borders: over all tiles of these kinds."""
        planes, rows = ([self._rows(axes[axis], axis, far) for far in self._range(axis)] for axis in (0, 1))
        cols = [self._cols(axes[2], far) for far in range(self.low[2], self.high[2] + 2)]
        total = 0
        for at in self.points:
            z, y, x = (i - low for i, low in zip(at, self.low, strict=True))
            total += int(both(planes[z], rows[y]) @ (cols[x] + cols[x + 1]))
        return total

    def _range(self, axis: int) -> range:
        return range(self.low[axis], self.high[axis] + 1)

    def _rows(self, of: list[Kind], axis: int, far: int) -> Ints:
        """How often the cell ``far`` from a tile's planes or rows begins at each element of a sector."""
        out = np.zeros(self.every, dtype=np.int64)
        for kind in of:
            index, _ = mapped(kind.at + far + np.arange(self.size[axis]), self.p.shape[axis], self.sides[axis])
            for cell in (index - kind.at) * self.apart[axis] % self.every:
                out += np.roll(kind.starts, cell)
        return out

    def _cols(self, of: list[Kind], far: int) -> Ints:
        """Sectors of a row's requests, by the element of a sector that the field's row begins at."""
        row = self.pairs.cols[self.pairs.rows[:, 0] == 0]
        out = np.zeros(self.every, dtype=np.int64)
        for kind in of:
            index, _ = mapped(kind.at + far + row, self.p.shape[2], self.sides[2])
            cost = touched(index - kind.at, self.item)
            out += np.array([kind.starts @ np.roll(cost, -first) for first in range(self.every)])
        return out

    def _selects(self) -> int:
        """Selects of a point, of all requests of a tile: which of them may leave the field depends on their columns."""
        last = [self._last(axis) for axis in range(3)]
        spans = [
            Span(self.low[axis], last[axis] + self.size[axis] - 1 + self.high[axis], self.p.shape[axis], self.sides[axis])
            for axis in (0, 1)
        ]
        total = 0
        for op in np.unique(self.pairs.ops):
            cols = self.pairs.cols[self.pairs.ops == op]
            for j in (0, 1):
                lo, hi = int(cols.min()) + j + self.low[2], last[2] + int(cols.max()) + j + self.high[2]
                total += len(cols) * selects([*spans, Span(lo, hi, self.p.shape[2], self.sides[2])])
        return total

    def _last(self, axis: int) -> int:
        """Where the last tile of an axis begins."""
        return (self.p.shape[axis] - 1) // self.size[axis] * self.size[axis]
