"""Global memory: shadows that last for the whole launch, and what blocks know of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir.types import Buffer

from .clocks import TIME, parts
from .memory import OpInfo, Shadowed
from .values import pick

if TYPE_CHECKING:
    from .group import Group
    from .machine import Run


_WRITE, _ATOMIC = ("ws", "the write"), ("at", "an atomic access")
_READS = (("r1", "the read"), ("r2", "the read"))


class Global(Shadowed):
    """A global buffer: the caller's array (None: it holds nothing), and a shadow if the program writes it.

    A stamp is the block + 1 above bit 32, below it clock, warp and lane as in shared memory.  ``m`` is the batch that
    runs at present.
    """

    kind = "global"

    def __init__(self, run: Run, buf: Buffer, data: Any, *, uninit: bool = False) -> None:
        super().__init__(buf, buf.size if data is None else len(data))
        self.data, prog = data, run.prog
        self.race = run.race and data is not None and buf.name in prog.written
        self.check_uninit = uninit and run.uninit
        self.tracked = self.race or self.check_uninit

        def shadow(used: bool, dtype: Any = np.int64) -> Any:
            return np.zeros(self.size if used else 0, dtype=dtype)

        self.ws, self.seen = shadow(self.tracked), shadow(self.check_uninit, bool)
        self.r1, self.r2 = (shadow(self.race and buf.name in prog.read) for _ in range(2))
        self.at = shadow(self.race and buf.name in prog.atomic)
        self.releases: dict[int, dict[int, Any]] = {}  # element -> block -> what atomics there have published
        #: Of tagged cells: how many that ask will still get what was there ``before`` the last store.
        self.late: Any = None
        self.before: Any = None

    def cells(self, at: Any, row: Any) -> Any:
        """Where the elements ``at`` are: blocks share them."""
        return at

    def stamp(self, g: Group, sel: Any) -> Any:
        """Stamps of an access by a group, or by its lanes ``sel``."""
        s = ((self.m.gblk[g.rows] + 1) << 32)[:, None] | g.stamp().astype(np.int64)
        return s if sel is None else s.reshape(-1)[sel]

    # -------------------------------------------------------------------------------------------- accesses
    def check_read(self, flat: Any, row: Any, lane: Any, stamp: Any, info: OpInfo) -> None:
        """A plain read by the threads with these stamps (all arrays of one shape)."""
        if self.check_uninit:
            self.report("uninit", ~self.seen.take(flat), flat, row, lane, info, "read of {} that nothing has written",
                        "write the element before, or do not read it")  # fmt: skip
        if not self.race:
            return
        self._against((_WRITE, _ATOMIC), flat, row, lane, stamp, info, "read")
        if len(self.r1):
            old = self.r1.take(flat)
            other = _of_others(old, stamp)
            if other.any():
                self.r2[flat[other]] = old[other]
            self.r1[flat] = stamp
            lost = self.r1.take(flat) != stamp
            if lost.any():
                self.r2[flat[lost]] = stamp[lost]

    def check_write(self, flat: Any, row: Any, lane: Any, stamp: Any, info: OpInfo) -> None:
        """A plain write."""
        if self.check_uninit:
            self.seen[flat] = True
        if not self.race:
            return
        self._against((_WRITE, *_READS, _ATOMIC), flat, row, lane, stamp, info, "write")
        if self.releases:
            for cell in flat.reshape(-1).tolist():
                self.releases.pop(cell, None)
        self.ws[flat] = stamp
        first = self.ws.take(flat)
        lost = np.flatnonzero(first != stamp)
        if len(lost):
            cell, c, r, ln = pick(lost, first.shape, flat, first, row, lane)
            self._unordered(np.ones(len(lost), dtype=bool), c, cell, r, ln, info, "write", "the write")

    def check_atomic(self, flat: Any, row: Any, lane: Any, stamp: Any, info: OpInfo) -> None:
        """An atomic access: it races with plain ones only."""
        if self.check_uninit:
            self.report("uninit", ~self.seen.take(flat), flat, row, lane, info,
                        "atomic access to {} that nothing has written",
                        "set the element before the launch")  # fmt: skip
            self.seen[flat] = True
        if self.race:
            self._against((_WRITE, *_READS), flat, row, lane, stamp, info, "atomic access")
            self.at[flat] = stamp

    # -------------------------------------------------------------------------------------------- judging
    def _against(self, earlier: tuple[tuple[str, str], ...], flat: Any, row: Any, lane: Any, stamp: Any, info: OpInfo,
                 what: str) -> None:  # fmt: skip
        """Judges an access by the stamps of earlier ones: the attributes that hold them, and what they are called."""
        for name, by in earlier:
            shadow = getattr(self, name)
            s = shadow.take(flat) if len(shadow) else shadow
            cand = np.flatnonzero(_of_others(s, stamp)) if s.any() else ()
            if not len(cand):
                continue
            cell, c, r, ln = pick(cand, s.shape, flat, s, row, lane)
            bad = np.ones(len(cand), dtype=bool)
            mine = ((c >> 32) - 1) // self.m.cluster.size == self.m.gblk[r] // self.m.cluster.size
            if mine.any():
                bad[mine] = self.m.clk.unordered(*parts(c[mine] & 0xFFFFFFFF), r[mine], ln[mine])
            far = np.flatnonzero(~mine)
            if len(far) and self.m.other_blocks.known:
                self.m.other_blocks.clear_known(bad, far, r, ln, c)
            if bad.any():
                self._unordered(bad, c, cell, r, ln, info, what, by)

    def _unordered(self, bad: Any, c: Any, cell: Any, row: Any, lane: Any, info: OpInfo, what: str, by: str) -> None:
        _, agent, source = parts(c)
        self.unordered(bad, cell, row, lane, info, what, by, agent, source, (c >> 32) - 1)


def _of_others(s: Any, stamp: Any) -> Any:
    """Which stamps are not of the thread that makes an access."""
    return (s != 0) & (((s ^ stamp) >> 32 != 0) | ((s ^ stamp) & ((1 << TIME) - 1) != 0))
