"""Counts of ``toeplitz``: every tile does the same products; what it copies and stores depends on where it lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsegen.cost.counts import rim
from sparsegen.cost.counts.base import Launch, Pass
from sparsegen.cost.counts.fused import Fused
from sparsegen.cost.counts.rows import along, fetched, rows_of, windows
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.tiles import Kinds, unit
from sparsegen.families.base import up
from sparsegen.families.toeplitz import PAD, SEGMENT
from sparsegen.schedule import MMA

LANES = np.arange(32)


def launches(p: Pass) -> tuple[Launch, ...]:
    """The tiles, if they have a cell to store, and the rim."""
    f = Fused.of(p)
    own = (Launch(f.name, _Tiles(p, f).counts()),) if f.stored else ()
    return (*own, *rim.launches(p))


@dataclass(frozen=True)
class _Tiles:
    """The numbers of a pass."""

    p: Pass
    f: Fused

    @property
    def run(self) -> int:
        """Outputs of a run."""
        return SEGMENT * self.p.schedule.products

    @property
    def together(self) -> int:
        """Columns that are copied and stored at once."""
        return 2 if self.f.shape[0] == 1 or self.f.shape[1] % 2 == 0 else 1

    def counts(self) -> dict[str, int]:
        """Those of the launch."""
        p, s, f, tally = self.p, self.p.schedule, self.f, Tally()
        (ny, nx), item, (m, _, k, _) = f.shape, f.dtype.nbytes, MMA[s.mma]
        radius = f.radius[1] * s.fuse
        lead = up(radius, 2)
        bands = up(lead + SEGMENT + radius, SEGMENT) // SEGMENT
        cols = s.warps * m * self.run
        width = cols + SEGMENT * (bands - 1)
        across = windows(-(-nx // cols), cols, lead, width, nx, unit(1, item))
        tiles = ny * int(across.times.sum())
        blocks = min(tiles, p.resident * p.device.sms)

        tally.request("ld.global", LANES[None] * item, item, times=blocks * s.warps * 2 * bands)
        tally.issue("cp_commit", s.warps * (tiles + blocks * (s.stages - 1)))
        tally.issue("cp_wait", s.warps * tiles)
        tally.issue("barrier", s.warps * tiles)
        self._fetch(tally, across, width)
        loads = (s.products + bands - 1) * SEGMENT * m // 32  # of a lane: each element of its warp's runs once
        fragment = LANES // 4 * (self.run + PAD) + LANES % 4
        tally.request("ld.shared", fragment[None] * item, item, times=s.warps * tiles * loads)
        tally.issue(f"mma.{s.mma}", s.warps * tiles * s.products * bands * SEGMENT // k)
        self._store(tally, Kinds(across.first + lead, across.times))
        return tally.result()

    def _fetch(self, tally: Tally, across: Kinds, width: int) -> None:
        """Windows inside the field by pairs of columns, those across a border column by column."""
        (ny, nx), item = self.f.shape, self.f.dtype.nbytes
        edge = (across.first < 0) | (across.first + width > nx)
        for which, step in ((edge, 1), (~edge, self.together)):
            column = np.arange(0, up(width, 32 * step), step).reshape(-1, 32)
            first, times = across.first[which], across.times[which]
            at = fetched(first[:, None, None] + column, nx, step)
            on = np.broadcast_to(column < width, at.shape).reshape(-1, 32)
            along(tally, "cp_async", at.reshape(-1, 32) * item, step * item, np.repeat(times, len(column)),
                  rows_of((0, ny), nx * item), on)  # fmt: skip
            tally.request("cp_async.shared", (column + column // self.run * PAD) * item, step * item, column < width,
                          ny * int(times.sum()))  # fmt: skip

    def _store(self, tally: Tally, tiles: Kinds) -> None:
        """Eight rows of a fragment at a time, two columns a lane, single ones where the box ends between them."""
        s, item, (low, high) = self.p.schedule, self.f.dtype.nbytes, self.f.box[1]
        rows = rows_of(self.f.box[0], self.f.shape[1] * item)
        runs = (np.arange(s.warps * MMA[s.mma][0] // 8)[:, None] * 8 + LANES // 4) * self.run
        local = (np.arange(s.products)[:, None, None] * SEGMENT + runs + LANES % 4 * 2).reshape(-1, 32)
        at, times = (tiles.first[:, None, None] + local).reshape(-1, 32), np.repeat(tiles.times, len(local))
        inside = [(at + e >= low) & (at + e < high) for e in (0, 1)]
        whole = inside[0] & inside[1] & (self.together == 2)
        along(tally, "st.global", at * item, 2 * item, times, rows, whole)
        for e, on in enumerate(inside):
            along(tally, "st.global", (at + e) * item, item, times, rows, on & ~whole)
