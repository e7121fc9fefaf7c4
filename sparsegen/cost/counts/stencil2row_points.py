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
from sparsegen.cost.counts.border import Ends, Span, mapped, selects, sides_of
from sparsegen.cost.counts.stencil2row_use import pairs
from sparsegen.cost.counts.tiles import Kind, kinds

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
        rows = [self._rows(axes[axis], axis) for axis in (0, 1)]
        cols = {far: self._cols(axes[2], far) for far in range(self.low[2], self.high[2] + 2)}
        first = self.every - 1 - np.arange(self.every)  # convolved with a row's place, the last element's sum counts
        total = 0
        for z, y, x in self.points:
            at = both(rows[0][z], rows[1][y])
            total += sum(int(both(at, cols[x + j][first])[-1]) for j in (0, 1))
        return total

    def _rows(self, of: list[Kind], axis: int) -> dict[int, Ints]:
        """For each offset, how often a request's rows (or planes) begin at each element of a sector."""
        raise NotImplementedError

    def _cols(self, of: list[Kind], far: int) -> Ints:
        raise NotImplementedError

    def _selects(self) -> int:
        raise NotImplementedError
