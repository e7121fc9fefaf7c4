"""What the steps of a rim ask of shared memory.

A warp's request for a neighbour looks the same wherever its first lane has the same column and its (two or three) rows
lead to the same places relative to each other.  So requests are counted by their looks for each kind of tile down the
field, and each look is costed for each kind of tile across it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparsegen.cost.counts.requests import wavefronts
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.tiles import Ints, mapped
from sparsegen.ir.op import Sides


@dataclass(frozen=True)
class Tiles:
    """The windows of a rim's tiles: where those of each kind begin down and across, and how many tiles are of both."""

    y: Ints
    x: Ints
    times: Ints  #: [kinds of y, kinds of x]


@dataclass
class Step:
    """One step on windows of ``rows`` x ``cols`` elements of ``nbytes``, in a field of ``extent``."""

    number: int
    rows: int
    cols: int
    nbytes: int
    radius: tuple[int, int]
    extent: tuple[int, int]
    sides: Sides
    tiles: Tiles
    down: Sequence[int]  #: all distances to neighbours down the field
    on: Any = field(init=False)  #: [kinds of x, looks, 32]: lanes that ask
    every: dict[int, Any] = field(init=False)  #: for each distance [kinds of x, looks]: how many requests
    _costs: dict[int, tuple[Any, Any]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        lost = self.radius[0] * self.number
        total, across = (self.rows - 2 * lost) * self.across, self.across
        start = np.arange(0, total, 32)
        deep = (across + 30) // across + 1  # rows of a request
        row = (start // across + lost)[:, None] + np.arange(deep)
        there = np.minimum(row, self.rows - 1)
        real = self._real(0, self.tiles.y)[:, there] & (row < self.rows - lost)
        lead = np.stack([self._lead(0, self.tiles.y, o)[:, there] for o in self.down])
        lead = np.where(real, lead - np.where(real, lead, 1 << 40).min(axis=3, keepdims=True), 0)
        code = np.broadcast_to(start % across, lead.shape[:3]).copy()
        for k in range(deep):
            code = (code * (4 * self.rows + 4) + lead[..., k]) * 2 + real[..., k]
        _, at, look = np.unique(code, return_index=True, return_inverse=True)
        tile = np.arange(lead.shape[0] * lead.shape[1])[:, None] * len(at)
        found = np.bincount((tile + look.reshape(len(tile), -1)).reshape(-1), minlength=len(tile) * len(at))
        counted = found.reshape(len(self.down), -1, len(at))
        self.every = {o: self.tiles.times.T @ n for o, n in zip(self.down, counted, strict=True)}
        lane = (start % across)[at % len(start)][:, None] + np.arange(32)
        self._col = lane % across + self.radius[1]
        self._row = np.take_along_axis(lead.reshape(-1, deep)[at], lane // across, axis=1) * self.cols
        wide = self.radius[1] * self.number
        inner = (self._col >= wide) & (self._col < self.cols - wide)
        mine = np.take_along_axis(np.broadcast_to(real, lead.shape).reshape(-1, deep)[at], lane // across, axis=1)
        self.on = self._real(1, self.tiles.x)[:, self._col] & inner & mine

    @property
    def across(self) -> int:
        """Columns that warps walk, the same at each step."""
        return self.cols - 2 * self.radius[1]

    @property
    def warps(self) -> int:
        """Warps' turns in which a lane has a cell."""
        return int((self.every[0] * self.on.any(axis=2)).sum())

    def request(self, tally: Tally, kind: str, down: int, over: int) -> None:
        """All lanes' requests for the neighbour at this distance."""
        every = self.every[down]
        if over not in self._costs:
            at = self._row + self._lead(1, self.tiles.x, over)[:, self._col]
            cost, least = wavefronts(at.reshape(-1, 32) * self.nbytes, self.nbytes, self.on.reshape(-1, 32))
            self._costs[over] = cost.reshape(every.shape), least.reshape(every.shape)
        cost, least = self._costs[over]
        tally.moved(kind, self.on.sum(axis=2), self.nbytes, every)
        tally.waves(kind, int((cost * every).sum()), int((least * every).sum()))

    def _periodic(self, axis: int) -> bool:
        return self.sides[axis][0][0] == "periodic"

    def _cells(self, axis: int, begin: Ints) -> Ints:
        return begin[:, None] + np.arange((self.rows, self.cols)[axis])

    def _real(self, axis: int, begin: Ints) -> Any:
        """[kinds, cells of the window]: cells of the field; across a periodic border the window goes on."""
        cells = self._cells(axis, begin)
        return (cells >= 0) & (cells < self.extent[axis]) | self._periodic(axis)

    def _lead(self, axis: int, begin: Ints, over: int) -> Ints:
        """[kinds, cells of the window]: the cell of the window that the neighbour at a distance is read from."""
        cells = self._cells(axis, begin) + over
        moved = cells if self._periodic(axis) else mapped(cells, self.extent[axis], self.sides[axis])
        return np.asarray(moved - begin[:, None])
