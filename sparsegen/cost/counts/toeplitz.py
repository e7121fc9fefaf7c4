"""Counts of ``toeplitz``: every tile does the same products; what it copies and stores depends on where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsegen.cost.counts.axis import Windows, mapped, rows_between, windows
from sparsegen.cost.counts.base import Launch, Pass
from sparsegen.cost.counts.fields import away_from_border, fused_radius, periodic_axes
from sparsegen.cost.counts.tally import Tally
from sparsegen.families.base import up
from sparsegen.families.toeplitz import PAD, SEGMENT
from sparsegen.ir.op import Box
from sparsegen.schedule import MMA

LANES = np.arange(32)


def launches(p: Pass) -> tuple[Launch, ...]:
    """The tiles, if they have a cell to store, and the rim."""
    box = away_from_border(p)
    return () if box is None else (_Tiles(p).launch(box),)


@dataclass(frozen=True)
class _Tiles:
    p: Pass

    @property
    def run(self) -> int:
        """Outputs of a run."""
        return SEGMENT * self.p.schedule.products

    @property
    def together(self) -> int:
        """Columns that are copied and stored at once."""
        return 2 if self.p.shape[0] == 1 or self.p.shape[1] % 2 == 0 else 1

    def launch(self, box: Box) -> Launch:
        p, s, t = self.p, self.p.schedule, Tally()
        (ny, nx), itemsize, (m, _, k, _) = p.shape, p.footprint.itemsize, MMA[s.mma]
        radius = fused_radius(p)[1]
        lead = up(radius, 2)
        bands = up(lead + SEGMENT + radius, SEGMENT) // SEGMENT
        cols = s.warps * m * self.run
        width = cols + SEGMENT * (bands - 1)
        across = windows(-(-nx // cols), cols, lead, width, nx, itemsize)
        tiles = ny * across.count
        blocks = min(tiles, p.resident * p.device.sms)

        table = LANES[None] * itemsize
        t.along("ld.global", table, itemsize, blocks * s.warps * 2 * bands)
        t.add("cp_commit", s.warps * (tiles + blocks * (s.stages - 1)))
        t.add("cp_wait", s.warps * tiles)
        t.add("barrier", s.warps * tiles)
        self._fetch(t, across, width)
        windows_read = (s.products + bands - 1) * SEGMENT * m // 32  # loads of a lane: its part of the run's columns
        fragment = (LANES // 4 * (self.run + PAD) + LANES % 4)[None] * itemsize
        t.shared("ld.shared", fragment, itemsize, s.warps * tiles * windows_read)
        t.add(f"mma.{s.mma}", s.warps * tiles * s.products * bands * SEGMENT // k)
        self._store(t, Windows(across.starts + lead, across.times), box)
        return t.launch(p.stencil.name)

    def _fetch(self, t: Tally, across: Windows, width: int) -> None:
        """Windows inside the field in pairs of columns, those across a border column by column."""
        (ny, nx), itemsize = self.p.shape, self.p.footprint.itemsize
        edge = (across.starts < 0) | (across.starts + width > nx)
        for which, step in ((edge, 1), (~edge, self.together)):
            column = np.arange(0, up(width, 32 * step), step).reshape(-1, 32)
            at = mapped(across.starts[which][:, None, None] + column, nx, periodic_axes(self.p)[1], step)
            times = np.repeat(across.times[which], len(column))
            on = np.broadcast_to(column < width, at.shape).reshape(-1, 32)
            t.along("cp_async", at.reshape(-1, 32) * itemsize, step * itemsize, times,
                    rows_between(0, ny, nx * itemsize), on)  # fmt: skip
            t.shared("cp_async.shared", (column + column // self.run * PAD) * itemsize, step * itemsize,
                     ny * int(across.times[which].sum()), column < width)  # fmt: skip

    def _store(self, t: Tally, tiles: Windows, box: Box) -> None:
        """Eight rows of a fragment at a time, two columns a lane, single ones where the box ends between them."""
        s, itemsize, m = self.p.schedule, self.p.footprint.itemsize, MMA[self.p.schedule.mma][0]
        rows = rows_between(*box[0], self.p.shape[1] * itemsize)
        runs = (np.arange(s.warps * m // 8)[:, None] * 8 + LANES // 4) * self.run
        local = (np.arange(s.products)[:, None, None] * SEGMENT + runs + LANES % 4 * 2).reshape(-1, 32)
        at = (tiles.starts[:, None, None] + local).reshape(-1, 32)
        times = np.repeat(tiles.times, len(local))
        inside: list[Any] = [(at + e >= box[1][0]) & (at + e < box[1][1]) for e in (0, 1)]
        whole = inside[0] & inside[1] & (self.together == 2)
        t.along("st.global", at * itemsize, 2 * itemsize, times, rows, whole)
        for e, on in enumerate(inside):
            t.along("st.global", (at + e) * itemsize, itemsize, times, rows, on & ~whole)
