"""Counts of ``patches``: warps walk down strips by pairs of rows; what they compute is the same in every turn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sparsegen.cost.counts.axis import mapped, rows_between, rows_read, windows
from sparsegen.cost.counts.base import Launch, Pass
from sparsegen.cost.counts.fields import away_from_border, fused_radius, periodic_axes
from sparsegen.cost.counts.tally import Tally
from sparsegen.families.base import narrowing, up
from sparsegen.families.patches import PATCH
from sparsegen.ir.op import Box
from sparsegen.schedule import MMA

LANES = np.arange(32)


def launches(p: Pass) -> tuple[Launch, ...]:
    """The strips, if they have a cell to store, and the rim."""
    box = away_from_border(p)
    return () if box is None else (_Strips(p).launch(box),)


@dataclass(frozen=True)
class _Strips:
    """The numbers of a pass; ``m`` patches side by side are the rows of an mma."""

    p: Pass

    @cached_property
    def m(self) -> int:
        return MMA[self.p.schedule.mma][0]

    @cached_property
    def window(self) -> int:
        """Columns that a patch needs."""
        return PATCH[1] + 2 * fused_radius(self.p)[1]

    @cached_property
    def slices(self) -> int:
        """Slices of four cells of a window."""
        return PATCH[0] * self.window // 4

    @cached_property
    def touched(self) -> int:
        """Pairs of output rows that need a pair of rows."""
        return -(-(PATCH[0] + 2 * fused_radius(self.p)[0]) // PATCH[0])

    @cached_property
    def columns(self) -> int:
        """Columns of a strip, with those that levels spoil."""
        return self.p.schedule.strips * self.m * PATCH[1]

    def launch(self, box: Box) -> Launch:
        p, s, t = self.p, self.p.schedule, Tally()
        (ny, nx), (wraps_y, wraps_x), itemsize = p.shape, periodic_axes(p), p.footprint.itemsize
        ry, rx = fused_radius(p)
        lead = up(rx * s.levels, 2)
        step = (self.columns - 2 * rx * (s.levels - 1)) // 4 * 4
        width = up(lead - rx * s.levels + self.columns + 2 * rx, 2)
        pitch = width + 2 if rx % 2 and width % 4 == 0 else width
        rows, chunks, stride = p.geometry.rows, -(-ny // p.geometry.rows), nx * itemsize
        groups = rows // PATCH[0]
        turns = groups + (self.touched - 1) * s.levels + s.levels - 1
        across = -(-nx // (s.warps * step))
        strips = windows(across * s.warps, step, lead, width, nx, itemsize)
        down = windows(chunks, rows, ry * s.levels, turns * PATCH[0], ny, stride)
        warps = strips.count * chunks

        table = LANES[None] * itemsize
        t.along("ld.global", table, itemsize, warps * self.slices * self.touched)
        if s.levels > 1:  # what lies between levels is zero before the first turn
            cells = np.arange(up((s.levels - 1) * PATCH[0] * pitch, 32)).reshape(-1, 32)
            t.shared("st.shared", cells * itemsize, itemsize, warps, cells < (s.levels - 1) * PATCH[0] * pitch)
        t.add("cp_commit", warps * (turns + s.stages - 1))
        t.add("cp_wait", warps * turns)
        t.add("sync", warps * turns * (1 + s.levels // 2))  # a level overwrites what the one after it has read
        self._compute(t, warps * turns, pitch)

        together = 2 if nx % 2 == 0 else 1
        local = np.arange(up(width, 32 * together), step=together).reshape(-1, 32)
        at = mapped(strips.starts[:, None, None] + local, nx, wraps_x, together)
        on = np.broadcast_to(local < width, at.shape).reshape(-1, 32)
        t.along("cp_async", at.reshape(-1, 32) * itemsize, together * itemsize, np.repeat(strips.times, len(local)),
                rows_read(down, turns * PATCH[0], ny, wraps_y, stride), on)  # fmt: skip
        t.shared("cp_async.shared", local * itemsize, together * itemsize, warps * turns * PATCH[0], local < width)

        # adjacent lanes have adjacent columns of a row: a patch is as wide as four lanes
        local = np.arange(self.columns).reshape(-1, 32)
        column = strips.starts[:, None, None] + lead + local
        on = (local < step) & (column >= box[1][0]) & (column < box[1][1])
        t.along("st.global", column.reshape(-1, 32) * itemsize, itemsize, np.repeat(strips.times, len(local)),
                rows_between(*box[0], stride), on.reshape(-1, 32))  # fmt: skip
        return t.launch(p.stencil.name)

    def _compute(self, t: Tally, turns: int, pitch: int) -> None:
        """All levels of a turn: windows out of shared memory, products, and sums for the next level into it."""
        s, itemsize = self.p.schedule, self.p.footprint.itemsize
        eights = self.m // 8  # rows of a fragment that a lane has
        operands = np.array([self._operand(i, pitch) for i in range(self.slices)])
        t.shared("ld.shared", operands * itemsize, itemsize, turns * s.levels * s.strips * eights)
        for shape, count in narrowing(s.mma, self.slices):
            t.add(f"mma.{shape}", turns * s.levels * s.strips * self.touched * count)
        place = np.array([row * pitch + LANES // 4 * PATCH[1] + LANES % 4 for row in range(PATCH[0])])
        t.shared("st.shared", place * itemsize, itemsize, turns * (s.levels - 1) * s.strips * eights)

    def _operand(self, i: int, pitch: int) -> Any:
        """Elements that the lanes read for slice ``i``: whole quads of columns row by row, then what is left of both."""
        k, quads = 4 * i + LANES % 4, self.window // 4
        rest = self.window % 4
        left = k - 4 * PATCH[0] * quads
        row = np.where(left < 0, i // quads, left // max(1, rest))
        column = np.where(left < 0, i % quads * 4 + k % 4, 4 * quads + left % max(1, rest))
        return row * pitch + LANES // 4 * PATCH[1] + column
