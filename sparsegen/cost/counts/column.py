"""Counts of ``column``: blocks walk down columns of the field plane by plane; a border costs more where it is near."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sparsegen.cost.counts.axis import mapped, rows_between, rows_read, together, windows
from sparsegen.cost.counts.base import Launch, Pass
from sparsegen.cost.counts.column_levels import PERIODIC, Levels, Masks
from sparsegen.cost.counts.fields import fused_radius, fused_taps
from sparsegen.cost.counts.tally import Tally
from sparsegen.families.base import up
from sparsegen.ir.boundary import Sides

LANES = np.arange(32)


def launches(p: Pass) -> tuple[Launch, ...]:
    """One launch: the border holds at every level, so no rim is left."""
    return (_Column(p).launch(),)


@dataclass(frozen=True)
class _Column:
    """The numbers of a pass, axis by axis (slowest first) where there are three."""

    p: Pass

    @cached_property
    def piece(self) -> int:
        """Columns of a lane: 16 bytes."""
        return 16 // self.p.footprint.itemsize

    @cached_property
    def size(self) -> tuple[int, int]:
        """Rows and columns of a block's window."""
        return self.p.schedule.warps * self.p.schedule.lines, 32 * self.piece

    @cached_property
    def lead(self) -> tuple[int, int]:
        """Rows and columns of it before the first that is stored."""
        _, ry, rx = fused_radius(self.p)
        return self.p.schedule.levels * ry, up(self.p.schedule.levels * rx, 2 * self.piece)

    @cached_property
    def step(self) -> tuple[int, int]:
        """Rows and columns that a block stores."""
        return self.size[0] - 2 * self.lead[0], self.size[1] - 2 * self.lead[1]

    @cached_property
    def sides(self) -> Sides:
        """The boundary; an axis that no tap leaves has none."""
        return tuple(pair if r else PERIODIC
                     for pair, r in zip(self.p.stencil.sides, self.p.stencil.radius, strict=True))  # fmt: skip

    @cached_property
    def lag(self) -> int:
        """Planes from a level to the next: a star's are complete without their neighbours."""
        rz, taps = fused_radius(self.p)[0], fused_taps(self.p)
        return rz if rz and bool((np.count_nonzero(taps, axis=1) <= 1).all()) else rz + 1

    @cached_property
    def above(self) -> int:
        """Planes before the first that is stored."""
        return self.p.schedule.levels * fused_radius(self.p)[0]

    @cached_property
    def turns(self) -> int:
        """Planes that a block takes in."""
        delay = self.above + (self.p.schedule.levels - 1) * self.lag + fused_radius(self.p)[0]
        return self.p.geometry.planes + delay

    @cached_property
    def blocks(self) -> tuple[int, int, int]:
        """Blocks along each axis."""
        nz, ny, nx = self.p.shape
        return -(-nz // self.p.geometry.planes), -(-ny // self.step[0]), -(-nx // self.step[1])

    def launch(self) -> Launch:
        s, t = self.p.schedule, Tally()
        warps = int(np.prod(self.blocks)) * s.warps
        t.add("cp_commit", warps * (self.turns + s.stages - 1))
        t.add("cp_wait", warps * self.turns)
        t.add("barrier", warps * self.turns)
        self._move(t, warps)
        self._levels(t)
        return t.launch(self.p.stencil.name)

    def _move(self, t: Tally, warps: int) -> None:
        """Planes into the ring and out of it, and results to the field."""
        p, s, itemsize = self.p, self.p.schedule, self.p.footprint.itemsize
        (nz, ny, nx), planes = p.shape, p.geometry.planes
        wraps = [low.kind == "periodic" for low, _ in self.sides]
        row, plane = nx * itemsize, ny * nx * itemsize
        deep = windows(self.blocks[0], planes, self.above, self.turns, nz, plane)
        down = windows(self.blocks[1], self.step[0], self.lead[0], self.size[0], ny, row)
        across = windows(self.blocks[2], self.step[1], self.lead[1], self.size[1], nx, itemsize)

        count = self.piece if nx % self.piece == 0 else 1  # columns that are copied and stored at once
        local = np.arange(0, self.piece, count)[:, None] + LANES * self.piece
        column, times = across.starts[:, None, None] + local, np.repeat(across.times, len(local))
        rows = together(rows_read(deep, self.turns, nz, wraps[0], plane),
                        rows_read(down, self.size[0], ny, wraps[1], row))  # fmt: skip
        at = mapped(column, nx, wraps[2], count).reshape(-1, 32)
        t.along("cp_async", at * itemsize, count * itemsize, times, rows)
        lines = warps * self.turns * s.lines
        t.shared("cp_async.shared", local * itemsize, count * itemsize, lines)
        t.shared("ld.shared", LANES[None] * 16, 16, lines)

        on = (local >= self.lead[1]) & (local < self.lead[1] + self.step[1]) & (column < nx)
        t.along("st.global", column.reshape(-1, 32) * itemsize, count * itemsize, times,
                together(rows_between(0, nz, plane), rows_between(0, ny, row)), on.reshape(-1, 32))  # fmt: skip

    def _levels(self, t: Tally) -> None:
        """The levels of every turn, by what border its window touches."""
        s, (bz, by, bx), planes = self.p.schedule, self.blocks, self.p.geometry.planes
        first = np.arange(bz)[:, None] * planes - self.above + np.arange(self.turns)
        last = (s.levels - 1) * self.lag + 2  # planes from the one that the last level completes to the first one's
        deep = self._near(0, first - last, last + 2)
        near_y, near_x = (
            int(self._near(axis, np.arange(n) * self.step[axis - 1] - self.lead[axis - 1], self.size[axis - 1]).sum())
            for axis, n in ((1, by), (2, bx))
        )
        beside = by * bx - (by - near_y) * (bx - near_x)
        masks = Masks.of(self.sides, self.p.shape, self.lead, self.step, (by, bx), s.warps, s.lines, self.piece)
        for sides, turns in (
            (self.sides, int(deep.sum()) * by * bx),
            ((PERIODIC, *self.sides[1:]), int((~deep).sum()) * beside),
            ((), int((~deep).sum()) * (by * bx - beside)),
        ):
            levels = Levels(fused_taps(self.p), fused_radius(self.p), s.lines, self.piece, self.p.shape, sides,
                            self.lag == fused_radius(self.p)[0], masks, self.p.footprint.dtype)  # fmt: skip
            levels.add(t, turns * s.warps * s.levels)
            for plane, add in ((0, levels.add_image_before), (self.p.shape[0] - 1, levels.add_image_behind)):
                hits = sum(int((deep & (first - level * self.lag == plane)).sum()) for level in range(s.levels))
                add(t, hits * by * bx * s.warps)

    def _near(self, axis: int, first: Any, size: int) -> Any:
        """Whether windows of an axis reach beyond a side of it that is not periodic."""
        if self.sides[axis][0].kind == "periodic":
            return np.zeros(np.shape(first), bool)
        return (first < 0) | (first + size > self.p.shape[axis])
