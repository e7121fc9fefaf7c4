"""Counts of ``stream``: warps walk down strips; what a strip costs depends on its place across, a row's on its own."""

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
from sparsegen.families.base import up

LANES = np.arange(32)


def launches(p: Pass) -> tuple[Launch, ...]:
    """The strips, if they have a cell to store, and the rim."""
    f = Fused.of(p)
    own = (Launch(f.name, _Strips(p, f).counts()),) if f.stored else ()
    return (*own, *rim.launches(p))


@dataclass(frozen=True)
class _Strips:
    """The numbers of a pass, in columns and rows."""

    p: Pass
    f: Fused

    @cached_property
    def piece(self) -> int:
        """Columns of 16 bytes."""
        return 16 // self.f.dtype.nbytes

    @cached_property
    def together(self) -> int:
        """Columns that are copied and stored at once: pieces, where every row starts with a whole one."""
        return self.piece if self.f.shape[1] % self.piece == 0 else 1

    @cached_property
    def through(self) -> bool:
        """Whether lanes pass values to one another through the ring: their columns are not one piece."""
        return self.together < self.p.schedule.cols

    @cached_property
    def radius(self) -> tuple[int, int]:
        """How far a level reaches."""
        ry, rx = self.f.radius
        return ry * self.p.schedule.fuse, rx * self.p.schedule.fuse

    @cached_property
    def lead(self) -> int:
        """Columns of a strip before the first that it stores."""
        return up(self.p.schedule.levels * self.radius[1], self.piece)

    @cached_property
    def step(self) -> int:
        """Columns that a strip stores."""
        return 32 * self.p.schedule.cols - 2 * self.lead

    @cached_property
    def turns(self) -> int:
        """Rows that a warp takes in."""
        return self.p.geometry.rows + 2 * self.p.schedule.levels * self.radius[0]

    @cached_property
    def chunks(self) -> int:
        """Warps one below the other."""
        return -(-self.f.shape[0] // self.p.geometry.rows)

    @cached_property
    def strips(self) -> Kinds:
        """The strips of all warps side by side."""
        s, nx = self.p.schedule, self.f.shape[1]
        count = -(-nx // (s.warps * self.step)) * s.warps
        return windows(count, self.step, self.lead, 32 * s.cols, nx, unit(1, self.f.dtype.nbytes))

    @cached_property
    def local(self) -> Ints:
        """Columns of a strip where pieces begin, [pieces, 32]: lane l has pieces l, l + 32, ..."""
        return np.arange(0, 32 * self.p.schedule.cols, self.together).reshape(-1, 32)

    @cached_property
    def at(self) -> Ints:
        """The same as columns of the field, [strips, pieces, 32]."""
        return self.strips.first[:, None, None] + self.local

    def counts(self) -> dict[str, int]:
        """Those of the launch."""
        tally, warps = Tally(), int(self.strips.times.sum()) * self.chunks
        self._fetch(tally)
        self._read(tally, warps * self.turns)
        self._levels(tally, warps * self.turns)
        self._pass_on(tally, warps * self.p.geometry.rows)
        self._store(tally)
        if 4 <= self.together * self.f.dtype.nbytes:  # else copies wait for their loads
            tally.issue("cp_commit", warps * (self.turns + self.p.schedule.stages - 1))
            tally.issue("cp_wait", warps * self.turns)
        return tally.result()

    def _fetch(self, tally: Tally) -> None:
        """Rows into the ring, past the registers if cp.async takes so few bytes."""
        f, s, nbytes = self.f, self.p.schedule, self.together * self.f.dtype.nbytes
        (ny, nx), (down, _), item = f.shape, f.sides, f.dtype.nbytes
        load, put = ("cp_async", "cp_async.shared") if nbytes >= 4 else ("ld.global", "st.shared")
        chunks = windows(self.chunks, self.p.geometry.rows, s.levels * self.radius[0], self.turns, ny, unit(nx, item))
        rows = rows_fetched(chunks, self.turns, ny, down, nx * item)
        at = fetched(self.at, nx, self.together).reshape(-1, 32)
        along(tally, load, at * item, nbytes, np.repeat(self.strips.times, len(self.local)), rows)
        every = int(self.strips.times.sum()) * self.chunks * self.turns
        tally.request(put, self._place(self.local), nbytes, times=every)

    def _read(self, tally: Tally, rows: int) -> None:
        """A lane's own columns out of the ring."""
        tally.request("ld.shared", self._own(), 16, times=rows)
        if self.through:
            tally.issue("sync", rows)
        if self.f.narrow:
            tally.issue(f"cvt.{self.f.sums}.{self.f.dtype}", rows * self.p.schedule.cols)

    def _levels(self, tally: Tally, rows: int) -> None:
        """A row's way through all levels; the sum that it is the first to touch begins with a product."""
        s, taps, (ry, rx), kind = self.p.schedule, self.f.taps, self.radius, self.f.sums
        begins = int(any(dy == -ry for dy, _ in taps))
        tally.issue("ld.param", rows * len(taps))
        tally.issue("shfl", rows * s.levels * 2 * rx)
        tally.issue(f"mul.{kind}", rows * s.levels * s.cols * begins)
        tally.issue(f"fma.{kind}", rows * s.levels * s.cols * (len(taps) - begins))

    def _pass_on(self, tally: Tally, rows: int) -> None:
        """Finished rows across the lanes, so that adjacent ones store adjacent pieces."""
        f = self.f
        if f.narrow:
            tally.issue(f"cvt.{f.dtype}.{f.sums}", rows * self.p.schedule.cols)
        if not self.through:
            return
        tally.request("st.shared", self._own(), 16, times=rows)
        tally.issue("sync", rows)
        for piece, stored in zip(self.local, self._may_store(), strict=True):
            if stored:
                tally.request("ld.shared", self._place(piece[None]), self.together * f.dtype.nbytes, times=rows)

    def _may_store(self) -> list[bool]:
        """Which of a lane's pieces are stored by any warp, so far as bounds tell; no other is read."""
        low, high = self.f.box[1]
        first, last = self.at.min(axis=(0, 2)), self.at.max(axis=(0, 2)) + self.together - 1
        inside = (self.local[:, -1] >= self.lead) & (self.local[:, 0] < self.lead + self.step)
        return [bool(x) for x in inside & (first < high) & (last >= low)]

    def _store(self, tally: Tally) -> None:
        """Pieces of the box, single columns where it ends inside one."""
        item, (low, high) = self.f.dtype.nbytes, self.f.box[1]
        rows = rows_of(self.f.box[0], self.f.shape[1] * item)
        times, at = np.repeat(self.strips.times, len(self.local)), self.at.reshape(-1, 32)
        mine = (self.local >= self.lead) & (self.local < self.lead + self.step)
        mine = np.broadcast_to(mine, self.at.shape).reshape(-1, 32)
        inside = [mine & (at + e >= low) & (at + e < high) for e in range(self.together)]
        whole = np.logical_and.reduce(inside)
        along(tally, "st.global", at * item, self.together * item, times, rows, whole)
        for e, on in enumerate(inside if self.together > 1 else ()):
            along(tally, "st.global", (at + e) * item, item, times, rows, on & ~whole)

    def _place(self, column: Ints) -> Ints:
        """Bytes from a slot of the ring to a column: a piece is left out after every eight."""
        return (column + column // (8 * self.piece) * self.piece) * self.f.dtype.nbytes

    def _own(self) -> Ints:
        """Where a lane's own columns are, 16 bytes at a time."""
        return self._place(LANES * self.p.schedule.cols + np.arange(0, self.p.schedule.cols, self.piece)[:, None])
