"""Points of small planes, which CUDA cores add to the products' accumulators, read through L1 from global memory."""

from __future__ import annotations

from functools import cached_property, reduce
from itertools import groupby
from math import prod

import numpy as np

from sparsegen.cost.counts.base import Pass
from sparsegen.cost.counts.covering import Kind, covering
from sparsegen.cost.counts.elements import aligned, both, period, request, touched
from sparsegen.cost.counts.fused import Fused, Offsets
from sparsegen.cost.counts.stored import Pairs
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.tiles import Choices, Ints, mapped

Axes = list[list[Kind]]  #: kinds of tiles on each axis


class Points:
    """The points ``points`` (their offsets) added to the outputs of all tiles of ``size``.

    A request's lanes read one row, so sectors depend on its columns, and on where in a sector the field's row begins.
    """

    def __init__(self, p: Pass, f: Fused, size: tuple[int, ...], points: Offsets, pairs: Pairs, vector: int) -> None:
        self.f, self.size, self.points, self.pairs, self.vector = f, size, points, pairs, vector
        self.warps, self.item, self.every = p.schedule.warps, f.dtype.nbytes, period(f.dtype.nbytes)
        self.low, self.high = ([end(at[axis] for at in points) for axis in range(3)] for end in (min, max))
        self.apart = [prod(f.shape[axis + 1 :]) for axis in range(3)]

    def add(self, tally: Tally) -> None:
        """Tiles whose cells all lie inside together with their neighbours, and those at a border."""
        inner = [[k for k in of if self._inner(k.at, axis)] for axis, of in enumerate(self._axes)]
        inside, tiles = (prod(sum(k.many for k in of) for of in axes) for axes in (inner, self._axes))
        taps, requests = len(self.points), len(self.pairs.rows)
        tally.issue("ld.param", taps * self.warps * tiles)
        tally.issue(f"fma.{self.f.dtype}", 2 * taps * requests * tiles)
        if inside:
            self._inside(tally, reduce(both, (sum((k.starts for k in of), 0 * of[0].starts) for of in inner)))
        if border := tiles - inside:
            # each point's offset on each axis, one for all lanes, then single cells, of lanes without outputs as well
            request(tally, "ld.global", np.zeros((1, 32), np.int64), 4, aligned(4, 3 * taps * self.warps * border))
            tally.moved("ld.global", np.full(1, 32), self.item, 2 * taps * requests * border)
            tally.issue("sectors.global.read", self._mapped(self._axes) - (self._mapped(inner) if inside else 0))
            tally.issue(f"select.{self.f.dtype}", self._selects() * taps * border)

    @cached_property
    def _axes(self) -> Axes:
        """Tiles by axis; those are alike which no lane's neighbours leave the field from."""
        last = (0, int(self.pairs.rows.max()), int(self.pairs.cols.max()) + 1)  # lanes without outputs are beyond
        return [
            covering(n, size, (-low, n - 1 - end - high + size), apart, self.item)
            for n, size, low, high, end, apart in zip(
                self.f.shape, self.size, self.low, self.high, last, self.apart, strict=True
            )
        ]

    def _inner(self, at: int, axis: int) -> bool:
        return at >= -self.low[axis] and at + self.size[axis] + self.high[axis] <= self.f.shape[axis]

    def _inside(self, tally: Tally, starts: Ints) -> None:
        """Row by row of the points: the cells that a pair needs, two at once where both are needed."""
        some = self.pairs.valid.any(axis=1)
        on, cells = self.pairs.valid[some], (self.pairs.rows * self.apart[1] + self.pairs.cols)[some]
        cost = {wide: touched(cells, self.item, on, wide) for wide in (1, 2)}
        for row, of in groupby(self.points, key=lambda at: at[:-1]):
            cols = sorted({at[-1] + j for at in of for j in (0, 1)})
            far, i = sum(n * apart for n, apart in zip(row, self.apart, strict=False)), 0
            while i < len(cols):
                wide = 2 if self.vector == 2 and cols[i] % 2 == 0 and cols[i] + 1 in cols else 1
                tally.moved("ld.global", on.sum(axis=1), wide * self.item, int(starts.sum()))
                tally.issue("sectors.global.read", int(cost[wide] @ np.roll(starts, (far + cols[i]) % self.every)))
                i += wide

    def _mapped(self, axes: Axes) -> int:
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
            index = mapped(kind.at + far + np.arange(self.size[axis]), self.f.shape[axis], self.f.sides[axis])
            for cell in (index - kind.at) * self.apart[axis] % self.every:
                out += np.roll(kind.starts, cell)
        return out

    def _cols(self, of: list[Kind], far: int) -> Ints:
        """Sectors of a row's requests, by the element of a sector that the field's row begins at."""
        row = self.pairs.cols[self.pairs.rows[:, 0] == 0]
        out = np.zeros(self.every, dtype=np.int64)
        for kind in of:
            index = mapped(kind.at + far + row, self.f.shape[2], self.f.sides[2])
            cost = touched(index - kind.at, self.item)
            out += np.array([kind.starts @ np.roll(cost, -first) for first in range(self.every)])
        return out

    def _selects(self) -> int:
        """Selects of a point for the requests of a tile; a side that no tile's columns reach is not tested for."""
        last = [(n - 1) // size * size for n, size in zip(self.f.shape, self.size, strict=True)]
        total = 0
        for op in np.unique(self.pairs.ops):
            cols = self.pairs.cols[self.pairs.ops == op]
            for j in (0, 1):
                first = (0, 0, int(cols.min()) + j)
                end = (0, self.size[1] - 1, int(cols.max()) + j)
                spans = (
                    (a + low, at + b + high)
                    for a, b, low, high, at in zip(first, end, self.low, self.high, last, strict=True)
                )
                total += len(cols) * Choices.of(tuple(zip(spans, self.f.shape, self.f.sides, strict=True))).read
        return total
