"""Counts of ``stream``: warps walk down strips; what a strip costs depends on its place across, a row's on its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sparsegen.cost.counts.axis import Rows, mapped, rows_between, rows_read, windows
from sparsegen.cost.counts.base import Launch, Pass
from sparsegen.cost.counts.fields import away_from_border, fused_radius, fused_taps, periodic_axes
from sparsegen.cost.counts.tally import Tally
from sparsegen.families.base import up
from sparsegen.ir.op import Box
from sparsegen.ir.types import DTYPES, sum_type

LANES = np.arange(32)


def launches(p: Pass) -> tuple[Launch, ...]:
    """The strips, if they have a cell to store, and the rim."""
    box = away_from_border(p)
    return () if box is None else (_Strips(p).launch(box),)


@dataclass(frozen=True)
class _Strips:
    p: Pass

    @cached_property
    def rows(self) -> int:
        """Rows that a warp stores."""
        return self.p.geometry.rows

    @cached_property
    def turns(self) -> int:
        """Rows that a warp takes in."""
        return self.rows + 2 * self.p.schedule.levels * fused_radius(self.p)[0]

    @cached_property
    def piece(self) -> int:
        """Columns of 16 bytes."""
        return 16 // self.p.footprint.itemsize

    @cached_property
    def together(self) -> int:
        """Columns that are copied and stored at once: pieces where every row starts with a whole one."""
        return self.piece if self.p.shape[1] % self.piece == 0 else 1

    @cached_property
    def lead(self) -> int:
        """Columns of a strip before the first that it stores."""
        return up(self.p.schedule.levels * fused_radius(self.p)[1], self.piece)

    def launch(self, box: Box) -> Launch:
        p, s, t = self.p, self.p.schedule, Tally()
        (ny, nx), (wraps_y, wraps_x), itemsize = p.shape, periodic_axes(p), p.footprint.itemsize
        ry = fused_radius(p)[0]
        width, lead = 32 * s.cols, self.lead
        step = width - 2 * lead
        chunks, stride = -(-ny // self.rows), nx * itemsize
        strips = windows(-(-nx // (s.warps * step)) * s.warps, step, lead, width, nx, itemsize)
        down = windows(chunks, self.rows, s.levels * ry, self.turns, ny, stride)
        warps = strips.count * chunks

        # lane l has pieces l, l + 32, ... of the strip
        local = np.arange(width // self.together).reshape(-1, 32) * self.together
        at = strips.starts[:, None, None] + local
        times = np.repeat(strips.times, len(local))
        self._fetch(t, mapped(at, nx, wraps_x, self.together).reshape(-1, 32) * itemsize, local, times,
                    rows_read(down, self.turns, ny, wraps_y, stride), warps)  # fmt: skip
        self._levels(t, warps * self.turns)
        mine = np.broadcast_to((local >= lead) & (local < lead + step), at.shape)
        self._store(t, at.reshape(-1, 32), mine.reshape(-1, 32), local, times, box, warps)
        return t.launch(p.stencil.name)

    def _place(self, column: Any) -> Any:
        """Bytes from a ring's slot to a column: a piece is left out after every eight."""
        return (column + column // (8 * self.piece) * self.piece) * self.p.footprint.itemsize

    def _own(self) -> Any:
        """Where a lane's own columns are, 16 bytes at a time."""
        return self._place(LANES * self.p.schedule.cols + np.arange(0, self.p.schedule.cols, self.piece)[:, None])

    def _fetch(self, t: Tally, at: Any, local: Any, times: Any, rows: Rows, warps: int) -> None:
        """A row into the ring and out of it."""
        s, nbytes = self.p.schedule, self.together * self.p.footprint.itemsize
        asynchronous = nbytes >= 4
        t.along("cp_async" if asynchronous else "ld.global", at, nbytes, times, rows)
        t.shared("cp_async.shared" if asynchronous else "st.shared", self._place(local), nbytes, warps * self.turns)
        if asynchronous:
            t.add("cp_commit", warps * (self.turns + s.stages - 1))
            t.add("cp_wait", warps * self.turns)
        if self.together < s.cols:  # lanes copy what others read
            t.add("sync", warps * self.turns)
        t.shared("ld.shared", self._own(), 16, warps * self.turns)
        self._convert(t, "{sum}.{field}", warps * self.turns)

    def _convert(self, t: Tally, kinds: str, rows: int) -> None:
        field, total = DTYPES[self.p.footprint.dtype], sum_type(DTYPES[self.p.footprint.dtype])
        if field != total:
            t.add(f"cvt.{kinds.format(sum=total, field=field)}", rows * self.p.schedule.cols)

    def _levels(self, t: Tally, rows: int) -> None:
        """A row's way through all levels; sums of rows not yet touched begin with a product."""
        s, taps, kind = self.p.schedule, fused_taps(self.p), sum_type(DTYPES[self.p.footprint.dtype])
        ry, rx = fused_radius(self.p)
        begins = int((taps[:, 0] == -ry).any())
        t.add("ld.param", rows * len(taps))
        t.add("shfl", rows * s.levels * 2 * rx)
        t.add(f"mul.{kind}", rows * s.levels * s.cols * begins)
        t.add(f"fma.{kind}", rows * s.levels * s.cols * (len(taps) - begins))

    def _stored(self, at: Any, local: Any, box: Box) -> Any:
        """Which pieces of a lane some warp could store, so far as bounds tell; the others are not read either."""
        columns, last = at.reshape(-1, *local.shape), self.together - 1
        step = 32 * self.p.schedule.cols - 2 * self.lead
        return ((local[:, -1] >= self.lead) & (local[:, 0] < self.lead + step)
                & (columns[:, :, -1].max(axis=0) + last >= box[1][0]) & (columns[:, :, 0].min(axis=0) < box[1][1]))  # fmt: skip

    def _store(self, t: Tally, at: Any, mine: Any, local: Any, times: Any, box: Box, warps: int) -> None:
        """The finished rows through the ring, unless a lane's columns are one piece, and into the box."""
        s, itemsize = self.p.schedule, self.p.footprint.itemsize
        self._convert(t, "{field}.{sum}", warps * self.rows)
        rows = rows_between(*box[0], self.p.shape[1] * itemsize)
        low, high = box[1]
        inside = [mine & (at + e >= low) & (at + e < high) for e in range(self.together)]
        whole = np.logical_and.reduce(inside)
        if self.together < s.cols:
            t.shared("st.shared", self._own(), 16, warps * self.rows)
            t.add("sync", warps * self.rows)
            t.shared("ld.shared", self._place(local[self._stored(at, local, box)]), self.together * itemsize,
                     warps * self.rows)  # fmt: skip
        t.along("st.global", at * itemsize, self.together * itemsize, times, rows, whole)
        for e, on in enumerate(inside if self.together > 1 else ()):  # where the box ends inside a piece
            t.along("st.global", (at + e) * itemsize, itemsize, times, rows, on & ~whole)
