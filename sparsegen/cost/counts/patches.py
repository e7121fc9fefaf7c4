"""Counts of ``patches``: warps walk down strips by pairs of rows; what they compute is the same in every turn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sparsegen.cost.counts import rim
from sparsegen.cost.counts.base import Launch, Pass
from sparsegen.cost.counts.fused import Fused
from sparsegen.cost.counts.rows import along, fetched, rows_fetched, rows_of, windows
from sparsegen.cost.counts.tally import Ints, Tally
from sparsegen.cost.counts.tiles import Kinds, unit
from sparsegen.families.base import narrowing, up
from sparsegen.families.patches import PATCH
from sparsegen.schedule import MMA

LANES = np.arange(32)


def launches(p: Pass) -> tuple[Launch, ...]:
    """The strips, if they have a cell to store, and the rim."""
    f = Fused.of(p)
    own = (Launch(f.name, _Strips(p, f).counts()),) if f.stored else ()
    return (*own, *rim.launches(p))


@dataclass(frozen=True)
class _Strips:
    """The numbers of a pass."""

    p: Pass
    f: Fused

    @cached_property
    def radius(self) -> tuple[int, int]:
        """How far a level reaches."""
        ry, rx = self.f.radius
        return ry * self.p.schedule.fuse, rx * self.p.schedule.fuse

    @cached_property
    def eights(self) -> int:
        """Rows of a fragment that a lane has: one of each eight."""
        return MMA[self.p.schedule.mma][0] // 8

    @cached_property
    def quads(self) -> tuple[int, int]:
        """Whole quads of the columns that a patch needs, and columns that are left."""
        return divmod(PATCH[1] + 2 * self.radius[1], 4)

    @cached_property
    def slices(self) -> int:
        """Slices of four cells of a pair of rows."""
        return PATCH[0] * (PATCH[1] + 2 * self.radius[1]) // 4

    @cached_property
    def touched(self) -> int:
        """Pairs of output rows that need a pair of rows."""
        return -(-(PATCH[0] + 2 * self.radius[0]) // PATCH[0])

    @cached_property
    def columns(self) -> int:
        """Columns that a strip computes, with those that levels spoil."""
        return self.p.schedule.strips * 8 * self.eights * PATCH[1]

    @cached_property
    def step(self) -> int:
        """Columns that it stores."""
        return (self.columns - 2 * self.radius[1] * (self.p.schedule.levels - 1)) // 4 * 4

    @cached_property
    def lead(self) -> int:
        """Columns that it reads before the first of those."""
        return up(self.radius[1] * self.p.schedule.levels, 2)

    @cached_property
    def width(self) -> int:
        """Columns that it reads."""
        rx = self.radius[1]
        return up(self.lead - rx * self.p.schedule.levels + self.columns + 2 * rx, 2)

    @cached_property
    def pitch(self) -> int:
        """Columns from row to row in shared memory."""
        return self.width + 2 if self.radius[1] % 2 and self.width % 4 == 0 else self.width

    @cached_property
    def turns(self) -> int:
        """Pairs of rows that a warp takes in: each level runs one turn behind the one before."""
        levels = self.p.schedule.levels
        return self.p.geometry.rows // PATCH[0] + (self.touched - 1) * levels + levels - 1

    @cached_property
    def chunks(self) -> int:
        """Warps one below the other."""
        return -(-self.f.shape[0] // self.p.geometry.rows)

    @cached_property
    def strips(self) -> Kinds:
        """The strips of all warps side by side."""
        warps, nx = self.p.schedule.warps, self.f.shape[1]
        count = -(-nx // (warps * self.step)) * warps
        return windows(count, self.step, self.lead, self.width, nx, unit(1, self.f.dtype.nbytes))

    def counts(self) -> dict[str, int]:
        """Those of the launch."""
        s, item, tally = self.p.schedule, self.f.dtype.nbytes, Tally()
        warps = int(self.strips.times.sum()) * self.chunks
        tally.request("ld.global", LANES[None] * item, item, times=warps * self.slices * self.touched)
        if s.levels > 1:  # what lies between levels is zero before the first turn
            cells = (s.levels - 1) * PATCH[0] * self.pitch
            at = np.arange(up(cells, 32)).reshape(-1, 32)
            tally.request("st.shared", at * item, item, at < cells, warps)
        tally.issue("cp_commit", warps * (self.turns + s.stages - 1))
        tally.issue("cp_wait", warps * self.turns)
        # once for the ring; then a level overwrites what the next has read, and that meeting serves the one before, too
        tally.issue("sync", warps * self.turns * (1 + s.levels // 2))
        self._fetch(tally, warps)
        self._compute(tally, warps * self.turns)
        self._store(tally)
        return tally.result()

    def _fetch(self, tally: Tally, warps: int) -> None:
        """Pairs of rows into the ring, columns by twos where rows are even."""
        f, (ny, nx), item = self.f, self.f.shape, self.f.dtype.nbytes
        height, together = self.turns * PATCH[0], 2 if nx % 2 == 0 else 1
        above = self.radius[0] * self.p.schedule.levels
        chunks = windows(self.chunks, self.p.geometry.rows, above, height, ny, unit(nx, item))
        local = np.arange(0, up(self.width, 32 * together), together).reshape(-1, 32)
        on, times = local < self.width, np.repeat(self.strips.times, len(local))
        at = fetched(self.strips.first[:, None, None] + local, nx, together)
        along(tally, "cp_async", at.reshape(-1, 32) * item, together * item, times,
              rows_fetched(chunks, height, ny, f.sides[0], nx * item),
              np.broadcast_to(on, at.shape).reshape(-1, 32))  # fmt: skip
        tally.request("cp_async.shared", local * item, together * item, on, warps * height)

    def _compute(self, tally: Tally, turns: int) -> None:
        """All levels of a turn: windows out of shared memory, products, and sums for the next level into it."""
        s, item = self.p.schedule, self.f.dtype.nbytes
        operands = np.array([self._operand(i) for i in range(self.slices)])
        tally.request("ld.shared", operands * item, item, times=turns * s.levels * s.strips * self.eights)
        for shape, count in narrowing(s.mma, self.slices):
            tally.issue(f"mma.{shape}", turns * s.levels * s.strips * self.touched * count)
        sums = np.array([row * self.pitch + LANES // 4 * PATCH[1] + LANES % 4 for row in range(PATCH[0])])
        tally.request("st.shared", sums * item, item, times=turns * (s.levels - 1) * s.strips * self.eights)

    def _operand(self, i: int) -> Ints:
        """Elements that lanes read for slice ``i``: quads of columns, row by row, then what is left of both rows."""
        (quads, rest), k = self.quads, LANES % 4
        row, column = np.divmod(4 * (i - PATCH[0] * quads) + k, max(1, rest))
        column = column + 4 * quads
        if i < PATCH[0] * quads:
            row, column = np.full(32, i // quads), i % quads * 4 + k
        return row * self.pitch + LANES // 4 * PATCH[1] + column

    def _store(self, tally: Tally) -> None:
        """A row of 32 adjacent columns at a time: a patch is as wide as four lanes."""
        item, (low, high) = self.f.dtype.nbytes, self.f.box[1]
        local = np.arange(self.columns).reshape(-1, 32)
        at = self.strips.first[:, None, None] + self.lead + local
        on = (local < self.step) & (at >= low) & (at < high)
        along(tally, "st.global", at.reshape(-1, 32) * item, item, np.repeat(self.strips.times, len(local)),
              rows_of(self.f.box[0], self.f.shape[1] * item), on.reshape(-1, 32))  # fmt: skip
