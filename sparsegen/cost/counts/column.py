"""Counts of ``column``: blocks walk down columns of the field plane by plane; a border costs more where it is near."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from sparsegen.cost.counts.base import Launch, Pass
from sparsegen.cost.counts.column_levels import PERIODIC, Block, Level, never_kept
from sparsegen.cost.counts.fused import Fused
from sparsegen.cost.counts.rows import along, fetched, of_planes, rows_fetched, rows_of, windows
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.tiles import Ints, Kinds, unit
from sparsegen.families.base import up
from sparsegen.ir.op import Sides

LANES = np.arange(32)


def launches(p: Pass) -> tuple[Launch, ...]:
    """One launch: the border holds at every level, so nothing is left to a rim."""
    f = Fused.of(p)
    return (Launch(f.name, _Column(p, f).counts()),)


@dataclass(frozen=True)
class _Column:
    """The numbers of a pass; a triple has one for each axis, slowest first."""

    p: Pass
    f: Fused

    @cached_property
    def radius(self) -> tuple[int, int, int]:
        """How far a level reaches."""
        rz, ry, rx = (r * self.p.schedule.fuse for r in self.f.radius)
        return rz, ry, rx

    @cached_property
    def piece(self) -> int:
        """Columns of a lane: 16 bytes."""
        return 16 // self.f.dtype.nbytes

    @cached_property
    def together(self) -> int:
        """Columns that are copied and stored at once."""
        return self.piece if self.f.shape[2] % self.piece == 0 else 1

    @cached_property
    def star(self) -> bool:
        """Whether no plane needs its neighbours to complete another: then levels follow without a plane between."""
        return self.radius[0] > 0 and all(sum(map(bool, tap)) <= 1 for tap in self.f.taps)

    @cached_property
    def lag(self) -> int:
        """Planes from a level to the next."""
        return self.radius[0] + (not self.star)

    @cached_property
    def lead(self) -> tuple[int, int, int]:
        """Cells of a window before the first that is stored."""
        rz, ry, rx = (r * self.p.schedule.levels for r in self.radius)
        return rz, ry, up(rx, 2 * self.piece)

    @cached_property
    def size(self) -> tuple[int, int, int]:
        """Cells of a window; it has a plane a turn."""
        s = self.p.schedule
        delay = self.lead[0] + (s.levels - 1) * self.lag + self.radius[0]
        return self.p.geometry.planes + delay, s.warps * s.lines, 32 * self.piece

    @cached_property
    def step(self) -> tuple[int, int, int]:
        """Cells that a block stores."""
        return self.p.geometry.planes, self.size[1] - 2 * self.lead[1], self.size[2] - 2 * self.lead[2]

    @cached_property
    def blocks(self) -> tuple[int, int, int]:
        """How many there are."""
        z, y, x = (-(-n // step) for n, step in zip(self.f.shape, self.step, strict=True))
        return z, y, x

    @cached_property
    def sides(self) -> Sides:
        """The boundary; an axis that no tap leaves has none."""
        return tuple(pair if r else PERIODIC for pair, r in zip(self.f.sides, self.radius, strict=True))

    def counts(self) -> dict[str, int]:
        """Those of the launch."""
        s, tally = self.p.schedule, Tally()
        warps = prod(self.blocks) * s.warps
        tally.issue("cp_commit", warps * (self.size[0] + s.stages - 1))
        tally.issue("cp_wait", warps * self.size[0])
        tally.issue("barrier", warps * self.size[0])
        self._fetch(tally, warps * self.size[0] * s.lines)
        self._levels(tally)
        if len(self.local) > 1:
            tally.issue("sync", warps * self.size[0])
            self._pass_on(tally, warps * self.step[0])
        self._store(tally)
        return tally.result()

    def _windows(self, axis: int) -> Kinds:
        """The windows along an axis; cells of it are so many bytes apart as rows, or planes, are."""
        every = unit(prod(self.f.shape[axis + 1 :]), self.f.dtype.nbytes)
        return windows(self.blocks[axis], self.step[axis], self.lead[axis], self.size[axis], self.f.shape[axis], every)

    @cached_property
    def local(self) -> Any:
        """Columns of a window where pieces begin, [pieces, 32]: lane l has pieces l, l + 32, ..."""
        return np.arange(0, self.size[2], self.together).reshape(-1, 32)

    @cached_property
    def across(self) -> tuple[Any, Any]:
        """The same as columns of the field, [requests, 32], and how many windows each stands for."""
        w = self._windows(2)
        return (w.first[:, None, None] + self.local).reshape(-1, 32), np.repeat(w.times, len(self.local))

    def _fetch(self, tally: Tally, lines: int) -> None:
        """Planes into the ring and out of it; ``lines`` rows of all warps."""
        (nz, ny, nx), (deep, down, _), item = self.f.shape, self.sides, self.f.dtype.nbytes
        planes = rows_fetched(self._windows(0), self.size[0], nz, deep, ny * nx * item)
        rows = rows_fetched(self._windows(1), self.size[1], ny, down, nx * item)
        at, times = self.across
        along(tally, "cp_async", fetched(at, nx, self.together) * item, self.together * item, times,
              of_planes(planes, rows))  # fmt: skip
        tally.request("cp_async.shared", self.local * item, self.together * item, times=lines)
        tally.request("ld.shared", LANES[None] * 16, 16, times=lines)

    def _store(self, tally: Tally) -> None:
        """The cells of the window that are the block's, inside the field."""
        (nz, ny, nx), item, (at, times) = self.f.shape, self.f.dtype.nbytes, self.across
        mine = (self.local >= self.lead[2]) & (self.local < self.lead[2] + self.step[2])
        on = np.tile(mine, (len(at) // len(mine), 1)) & (at < nx)
        rows = of_planes(rows_of((0, nz), ny * nx * item), rows_of((0, ny), nx * item))
        along(tally, "st.global", at * item, self.together * item, times, rows, on)

    def _pass_on(self, tally: Tally, planes: int) -> None:
        """Finished planes across the lanes, so that adjacent ones store adjacent cells."""
        s, nbytes = self.p.schedule, self.together * self.f.dtype.nbytes
        tally.issue("sync", planes)
        tally.request("st.shared", LANES[None] * 16, 16, times=planes * s.lines)
        rows = np.arange(s.lines)[:, None] + np.arange(s.warps) * s.lines
        lines = int(self._may_store(1, rows).sum())
        pieces = self.local[self._may_store(2, self.local)]
        tally.request("ld.shared", pieces * self.f.dtype.nbytes, nbytes, times=planes * lines)

    def _may_store(self, axis: int, local: Ints) -> Any:
        """Which rows of an array of a window's cells have any that is stored, so far as bounds tell: what is read."""
        first, last = local.min(axis=1), local.max(axis=1)
        low, high = self.lead[axis], self.lead[axis] + self.step[axis]
        reaches = (last - low + (self.blocks[axis] - 1) * self.step[axis] >= 0) & (first - low < self.f.shape[axis])
        return (last >= low) & (first < high) & reaches

    def _levels(self, tally: Tally) -> None:
        """The levels of every turn, by the border that its window reaches."""
        s, (_, by, bx) = self.p.schedule, self.blocks
        rz = self.radius[0]
        behind = (s.levels - 1) * self.lag + 2 * rz  # planes from the first that matters to the first level's
        turn = self._starts(0)[:, None] + np.arange(self.size[0])
        deep = self._reaches(0, turn - behind, behind + 1 + rz)
        inner = prod(int((~self._reaches(axis, self._starts(axis), self.size[axis])).sum()) for axis in (1, 2))
        block = Block(s.warps, s.lines, self.piece, self.f.shape, self.lead, self.step, self.blocks)
        for sides, turns in (
            (self.sides, int(deep.sum()) * by * bx),
            ((PERIODIC, *self.sides[1:]), int((~deep).sum()) * (by * bx - inner)),
            ((), int((~deep).sum()) * inner),
        ):
            level = Level(
                self.f.taps, self.radius, block, sides, self.star, never_kept(block, sides, self.radius), self.f.sums
            )
            level.turn(tally, turns * s.warps * s.levels)
            for plane, image in ((0, level.image_before), (self.f.shape[0] - 1, level.image_behind)):
                hits = sum(int((deep & (turn - n * self.lag == plane)).sum()) for n in range(s.levels))
                image(tally, hits * by * bx * s.warps)

    def _starts(self, axis: int) -> Any:
        """First cells of all windows of an axis."""
        return np.arange(self.blocks[axis]) * self.step[axis] - self.lead[axis]

    def _reaches(self, axis: int, first: Any, size: int) -> Any:
        """Whether windows of an axis reach beyond a side of it that is not periodic."""
        bordered = self.sides[axis][0][0] != "periodic"
        return ((first < 0) | (first + size > self.f.shape[axis])) & bordered
