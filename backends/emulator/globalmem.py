"""Global memory: shadows that last for the whole launch, and what blocks know of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir.types import Buffer

from .memory import BARRIER, OpInfo

if TYPE_CHECKING:
    from .machine import Machine, Run

#: A stamp: block + 1 above bit 32, below it clock, warp and lane as in shared memory.
ACROSS = (
    "give each block its own elements, or order them: fence gpu, then an atomic in the writer; an atomic on the same "
    "element that sees it, then fence gpu, in the reader"
)


class Global:
    """A global buffer: the caller's array (None: it holds nothing), and a shadow if the program writes it."""

    def __init__(self, run: Run, buf: Buffer, data: Any, *, written: bool = False, read: bool = False,
                 atomic: bool = False, uninit: bool = False, dirty: Any = None) -> None:  # fmt: skip
        self.buf, self.data, self.uninit, self.dirty = buf, data, uninit, dirty
        self.size = buf.size if data is None else len(data)
        self.race = run.race and written
        self.tracked = self.race or (uninit and run.uninit)
        self.check_uninit = uninit and run.uninit
        self.ws = np.zeros(self.size if self.tracked else 0, dtype=np.int64)
        self.seen = np.zeros(self.size if self.check_uninit else 0, dtype=bool)
        self.r1 = np.zeros(self.size if self.race and read else 0, dtype=np.int64)
        self.r2 = np.zeros(self.size if self.race and read else 0, dtype=np.int64)
        self.at = np.zeros(self.size if self.race and atomic else 0, dtype=np.int64)
        self.releases: dict[int, dict[int, Any]] = {}  # element -> block -> what atomics there have published

    # -------------------------------------------------------------------------------------------- accesses
    def check_read(self, m: Machine, flat: Any, row: Any, lane: Any, stamp: Any, info: OpInfo) -> None:
        """A plain read by the threads with these stamps (all arrays of one shape)."""
        if self.check_uninit:
            never = ~self.seen.take(flat)
            if never.any():
                self._report(m, "uninit", never, flat, row, lane, info, "read of {} that nothing has written",
                             "write the element before, or do not read it")  # fmt: skip
        if not self.race:
            return
        s = self.ws.take(flat)
        if s.any():
            if self.dirty is not None and (d := self.dirty.take(flat) & (s > 0)).any():
                self._report(m, "dirty", d, flat, row, lane, info,
                             "read of {}, a dirty element that several threads write",
                             "read live elements only; dirty ones hold whatever came last")  # fmt: skip
                s = np.where(d, 0, s)
            self._against(m, s, flat, row, lane, stamp, info, "read", "the write")
        if len(self.at):
            self._against(m, self.at.take(flat), flat, row, lane, stamp, info, "read", "an atomic access")
        if len(self.r1):
            old = self.r1.take(flat)
            other = (old != 0) & (((old ^ stamp) >> 32 != 0) | ((old ^ stamp) & 0xFFF != 0))
            if other.any():
                self.r2[flat[other]] = old[other]
            self.r1[flat] = stamp
            lost = self.r1.take(flat) != stamp
            if lost.any():
                self.r2[flat[lost]] = stamp[lost]

    def check_write(
        self, m: Machine, flat: Any, row: Any, lane: Any, stamp: Any, info: OpInfo, what: str = "write"
    ) -> None:
        """A plain write."""
        if self.check_uninit:
            self.seen[flat] = True
        if not self.race:
            return
        if self.dirty is not None and (d := self.dirty.take(flat)).any():
            self.ws[flat[d]] = stamp[d]
            live = ~d
            flat, stamp = flat[live], stamp[live]
            row, lane = np.broadcast_to(row, live.shape)[live], np.broadcast_to(lane, live.shape)[live]
            if not flat.size:
                return
        s = self.ws.take(flat)
        if s.any():
            self._against(m, s, flat, row, lane, stamp, info, what, "the write")
        self._others(m, flat, row, lane, stamp, info, what)
        if len(self.at):
            self._against(m, self.at.take(flat), flat, row, lane, stamp, info, what, "an atomic access")
            if self.releases:
                for cell in flat.reshape(-1).tolist():
                    self.releases.pop(cell, None)
        self.ws[flat] = stamp
        lost = self.ws.take(flat) != stamp
        if lost.any():
            k = int(np.flatnonzero(lost)[0])
            first = int(self.ws[flat.reshape(-1)[k]])
            self._race(m, flat, row, lane, info, what, "the write", k, first, int(lost.sum()), lost.shape)

    def check_atomic(self, m: Machine, flat: Any, row: Any, lane: Any, stamp: Any, info: OpInfo) -> None:
        """An atomic access: it races with plain ones only."""
        if self.check_uninit:
            never = ~self.seen.take(flat)
            if never.any():
                self._report(m, "uninit", never, flat, row, lane, info, "atomic access to {} that nothing has written",
                             "set the element before the launch")  # fmt: skip
            self.seen[flat] = True
        if not self.race:
            return
        self._against(m, self.ws.take(flat), flat, row, lane, stamp, info, "atomic access", "the write")
        self._others(m, flat, row, lane, stamp, info, "atomic access")
        self.at[flat] = stamp

    # -------------------------------------------------------------------------------------------- judging
    def _others(self, m: Machine, flat: Any, row: Any, lane: Any, stamp: Any, info: OpInfo, what: str) -> None:
        if len(self.r1):
            for shadow in (self.r1, self.r2):
                s = shadow.take(flat)
                if s.any():
                    self._against(m, s, flat, row, lane, stamp, info, what, "the read")

    def _against(self, m: Machine, s: Any, flat: Any, row: Any, lane: Any, stamp: Any, info: OpInfo, what: str,
                 by: str) -> None:  # fmt: skip
        cand = np.flatnonzero((s != 0) & (((s ^ stamp) >> 32 != 0) | ((s ^ stamp) & 0xFFF != 0)))
        if not len(cand):
            return
        r = np.broadcast_to(row, s.shape).reshape(-1)[cand]
        ln = np.broadcast_to(lane, s.shape).reshape(-1)[cand]
        c = s.reshape(-1)[cand]
        low = c & 0xFFFFFFFF
        mine = (c >> 32) == m.gblk[r] + 1
        bad = np.ones(len(cand), dtype=bool)
        if mine.any():
            at = np.flatnonzero(mine)
            x = low[at]
            bad[at] = m.clk.unordered(x >> 12, (x >> 5) & 127, x & 31, r[at], ln[at])
        far = np.flatnonzero(~mine)
        if len(far) and m.far.learned:
            m.far.clear_known(bad, far, r, ln, c)
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            self._race(m, flat, row, lane, info, what, by, int(cand[k]), int(c[k]), int(bad.sum()), s.shape)

    def _race(self, m: Machine, flat: Any, row: Any, lane: Any, info: OpInfo, what: str, by: str, k: int, other: int,
              n: int, shape: tuple[int, ...]) -> None:  # fmt: skip
        r = int(np.broadcast_to(row, shape).reshape(-1)[k])
        ln = int(np.broadcast_to(lane, shape).reshape(-1)[k])
        cell, block = int(flat.reshape(-1)[k]), (other >> 32) - 1
        who = f"warp {(other >> 5) & 127} lane {other & 31}"
        same = block == int(m.gblk[r])
        m.find("global", info, f"{what} of @{self.buf.name}[{cell}] is not ordered after {by} by "
               + (who if same else f"block {block}, {who}"), BARRIER if same else ACROSS,
               index=cell, row=r, lane=ln, times=n)  # fmt: skip

    def _report(self, m: Machine, kind: str, hit: Any, flat: Any, row: Any, lane: Any, info: OpInfo, text: str,
                fix: str) -> None:  # fmt: skip
        k = int(np.flatnonzero(hit)[0])
        i = int(flat.reshape(-1)[k])
        r, ln = np.broadcast_to(row, hit.shape).reshape(-1)[k], np.broadcast_to(lane, hit.shape).reshape(-1)[k]
        m.find(kind, info, text.format(f"@{self.buf.name}[{i}]"), fix, index=i, row=int(r), lane=int(ln),
               times=int(hit.sum()))  # fmt: skip
