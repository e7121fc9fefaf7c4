"""Buffers with a shadow: who wrote and read each element last, and whether an access to it is in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir.types import Buffer

from .clocks import BULK, CP, DIRTY, MANY, SPECIAL
from .values import LANES

if TYPE_CHECKING:
    from .group import Group
    from .machine import Machine


@dataclass(frozen=True)
class OpInfo:
    """What a finding says about the op that showed it."""

    text: str
    loc: Any
    buffer: str = ""
    space: str = ""


BARRIER = "put a barrier between the two accesses (warp.sync is enough if both threads are in one warp)"


class Shared:
    """A shared buffer of all blocks of the batch; element ``i`` of local block ``b`` is ``b * size + i``.

    ``data`` is None if it holds nothing.
    """

    def __init__(self, m: Machine, buf: Buffer, dirty: Any) -> None:
        self.m, self.buf, self.size, self.dirty = m, buf, buf.size, dirty
        dt, total = buf.dtype.numpy(), m.blocks * buf.size
        self.data: Any = None
        if buf.name not in m.run.blank:
            self.data = np.full(total, np.nan, dt) if buf.dtype.kind == "float" else np.zeros(total, dt)
        if buf.dtype.is_int:
            self.data.view(np.uint8)[:] = 0xCD
        self.tracked = m.race or m.uninit or m.asyncs
        if self.tracked:
            self.ws = np.zeros(total, dtype=np.int32)
        self.rd: Any = None
        self.rmax: Any = None
        self.at: Any = None

    def base(self, g: Group) -> Any:
        return g.m.lblk[g.rows].reshape(-1, 1) * self.size

    # -------------------------------------------------------------------------------------------- reading
    def check_read(self, flat: Any, row: Any, lane: Any, info: OpInfo, *, atomic: bool = False) -> None:
        """A read of elements ``flat`` by threads (row, lane); ``flat`` of one column means all lanes of a warp."""
        m = self.m
        if flat.ndim == 2 and flat.shape[1] == 1:
            lane = np.full((1, 1), MANY)
        s = self.ws.take(flat)
        floor = m.clk.floor()
        if not (s.min() > 0 and s.max() < (floor + 1) << 12):
            self._slow_read(s, flat, row, lane, info)
        if self.at is not None and not atomic and m.race:
            self._against(self.at.take(flat), flat, row, lane, info, "read", "an atomic access")
        if m.race and not atomic:
            self._record_read(flat, row, lane)

    def _slow_read(self, s: Any, flat: Any, row: Any, lane: Any, info: OpInfo) -> None:
        m = self.m
        never = s == 0
        if m.uninit and never.any():
            self._report("uninit", never, flat, row, lane, info, "read of {} that nothing has written",
                         "write the element before, or do not read it (zero padding that is read)")  # fmt: skip
        state = s >= SPECIAL
        if state.any():
            self._in_flight(s, state, flat, row, lane, info, "read")
            s = np.where(state, 0, s)
        if m.race:
            self._against(s, flat, row, lane, info, "read", "the write")

    def _in_flight(self, s: Any, state: Any, flat: Any, row: Any, lane: Any, info: OpInfo, what: str) -> None:
        m = self.m
        if m.asyncs:
            for code, text, fix in (
                (CP, f"{what} of {{}} while a cp.async into it is in flight",
                 "put a cp_wait that covers its group before (and a commit after the copy), and a barrier if another "
                 "thread issued it"),
                (BULK, f"{what} of {{}} while a bulk copy into it is in flight",
                 "wait for its mbarrier's phase (mbar_try_wait in a loop) before"),
            ):  # fmt: skip
                hit = s == code
                if hit.any():
                    self._report("async", hit, flat, row, lane, info, text, fix)
        if m.race and what == "read" and (hit := s == DIRTY).any():
            self._report("dirty", hit, flat, row, lane, info, "read of {}, a dirty element that several threads write",
                         "read live elements only; dirty ones hold whatever came last")  # fmt: skip

    def _record_read(self, flat: Any, row: Any, lane: Any) -> None:
        m = self.m
        if self.rd is None:
            self.rd = np.zeros(len(self.ws) * m.wpb, dtype=np.int32)
            self.rmax = np.zeros(len(self.ws), dtype=np.int32)
        clk = m.clk
        fi = flat * m.wpb + clk.wib[row]
        st = ((clk.clock[row] << 6) | lane).astype(np.int32)
        if st.shape != fi.shape:
            st = np.broadcast_to(st, fi.shape)
        old = self.rd.take(fi)
        self.rd[fi] = st
        if flat.ndim == 1 or flat.shape[1] > 1:
            twice = self.rd.take(fi) != st
            if twice.any():  # several lanes of a warp read one element
                self.rd[fi[twice]] = (st[twice] & ~63) | MANY
        mark = m.mark[row]
        again = (old >= (mark << 6)) & ((old ^ st) & 63 != 0)
        if again.any():
            self.rd[fi[again]] = (st[again] & ~63) | MANY
        self.rmax[flat] = clk.clock.max()

    # -------------------------------------------------------------------------------------------- writing
    def check_write(self, flat: Any, row: Any, lane: Any, stamp: Any, info: OpInfo, *, state: int = 0,
                    what: str = "write") -> Any:  # fmt: skip
        """A write; gives back the positions (bool, or None for all) that are not dirty elements."""
        m, live = self.m, None
        if self.dirty is not None:
            d = self.dirty.take(flat % self.size)
            if d.any():
                self.ws[flat[d]] = DIRTY
                live = ~d
                flat, row, lane = flat[live], np.broadcast_to(row, d.shape)[live], np.broadcast_to(lane, d.shape)[live]
                stamp = np.broadcast_to(stamp, d.shape)[live]
                if not flat.size:
                    return live
        s = self.ws.take(flat)
        floor = m.clk.floor()
        if s.max() >= (floor + 1) << 12:
            special = s >= SPECIAL
            if special.any():
                self._in_flight(s, special, flat, row, lane, info, what)
                s = np.where(special, 0, s)
            if m.race:
                self._against(s, flat, row, lane, info, what, "the write")
        if m.race:
            if self.rmax is not None and (r := self.rmax.take(flat)).max() > floor:
                self._against_reads(r > floor, flat, row, lane, info, what)
            if self.at is not None:
                self._against(self.at.take(flat), flat, row, lane, info, what, "an atomic access")
        self.ws[flat] = stamp
        if m.race:
            twice = self.ws.take(flat) != stamp
            if twice.any():
                self._report("race", twice, flat, row, lane, info, f"{what} of {{}} by two threads in one instruction",
                             "give each thread its own element, or predicate the store")  # fmt: skip
        if state:
            self.ws[flat] = state
        return live

    def check_atomic(self, flat: Any, row: Any, lane: Any, stamp: Any, info: OpInfo) -> None:
        """An atomic access: it races with plain accesses only."""
        m = self.m
        if self.at is None:
            self.at = np.zeros(len(self.ws), dtype=np.int32)
        self.check_read(flat, row, lane, info, atomic=True)
        if not m.race:
            return
        if self.rmax is not None:
            self._against_reads(self.rmax.take(flat) > m.clk.floor(), flat, row, lane, info, "atomic access")
        self.at[flat] = stamp

    def complete(self, flat: Any, stamp: Any) -> None:
        """An asynchronous copy has arrived: from now on it is a write with this stamp."""
        if self.tracked:
            if self.dirty is not None:
                live = ~self.dirty.take(flat % self.size)
                flat, stamp = flat[live], np.broadcast_to(stamp, live.shape)[live]
            self.ws[flat] = stamp

    # -------------------------------------------------------------------------------------------- judging
    def _against(self, s: Any, flat: Any, row: Any, lane: Any, info: OpInfo, what: str, by: str) -> None:
        cand = np.flatnonzero(s >= (self.m.clk.floor() + 1) << 12)
        if not len(cand):
            return
        r, ln = np.broadcast_to(row, s.shape).reshape(-1)[cand], np.broadcast_to(lane, s.shape).reshape(-1)[cand]
        c = s.reshape(-1)[cand].astype(np.int64)
        bad = self.m.clk.unordered(c >> 12, (c >> 5) & 127, c & 31, r, ln)
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            self._race(flat.reshape(-1)[cand[k]], r[k], ln[k], info, what, by, (int(c[k]) >> 5) & 127, int(c[k]) & 31,
                       int(bad.sum()))  # fmt: skip

    def _against_reads(self, maybe: Any, flat: Any, row: Any, lane: Any, info: OpInfo, what: str) -> None:
        m = self.m
        cand = np.flatnonzero(maybe)
        if not len(cand):
            return
        r, ln = (
            np.broadcast_to(row, maybe.shape).reshape(-1)[cand],
            np.broadcast_to(lane, maybe.shape).reshape(-1)[cand],
        )
        cells = flat.reshape(-1)[cand]
        stamps = self.rd.reshape(-1, m.wpb)[cells].astype(np.int64)
        for w in range(m.wpb):
            c = stamps[:, w]
            bad = (c > 0) & m.clk.unordered(c >> 6, np.full(len(c), w), c & 63, r, ln)
            if bad.any():
                k = int(np.flatnonzero(bad)[0])
                self._race(cells[k], r[k], ln[k], info, what, "the read", w, int(c[k]) & 63, int(bad.sum()))
                return

    def _race(
        self, cell: Any, row: Any, lane: Any, info: OpInfo, what: str, by: str, agent: int, source: int, n: int
    ) -> None:
        who = self.m.agent_name(agent, source)
        i = int(cell) % self.size
        self.m.find("race", info, f"{what} of @{self.buf.name}[{i}] is not ordered after {by} by {who}", BARRIER,
                    index=i, row=int(row), lane=int(lane), times=n)  # fmt: skip

    def _report(self, kind: str, hit: Any, flat: Any, row: Any, lane: Any, info: OpInfo, text: str, fix: str) -> None:
        k = int(np.flatnonzero(hit)[0])
        i = int(flat.reshape(-1)[k]) % self.size
        r, ln = np.broadcast_to(row, hit.shape).reshape(-1)[k], np.broadcast_to(lane, hit.shape).reshape(-1)[k]
        self.m.find(kind, info, text.format(f"@{self.buf.name}[{i}]"), fix, index=i, row=int(r), lane=int(ln),
                    times=int(hit.sum()))  # fmt: skip


def dense(ix: Any, n: int) -> Any:
    """An index as an array with two axes."""
    return ix if isinstance(ix, np.ndarray) and ix.ndim == 2 else np.full((1, 1), int(ix), dtype=np.int64)


def locate(g: Group, ix: Any, where: Any, size: int, width: int, info: OpInfo) -> tuple[Any, Any, Any, Any] | None:
    """(index, batch row, lane, positions) of the lanes that access memory, within bounds.

    Positions None: all lanes of all warps, and the arrays broadcast to ``[n, 32]``; else everything is 1-D.
    """
    mask = g.mask
    if where is not None:
        w = where(g.env)
        if isinstance(w, np.ndarray):
            if not w.all():
                mask = np.broadcast_to(w, (g.n, 32)) if mask is None else mask & w
        elif not w:
            return None
    a = dense(ix, g.n)
    if mask is None:
        if a.min() >= 0 and a.max() <= size - width:
            return a, g.col, LANES, None
        mask = np.ones((g.n, 32), dtype=bool)
    sel = g.sel() if mask is g.mask else np.flatnonzero(mask)
    if not len(sel):
        return None
    r, lane = sel >> 5, sel & 31
    at = a[r if a.shape[0] > 1 else 0, lane if a.shape[1] > 1 else 0]
    if np.ndim(at) == 0:
        at = np.full(len(sel), int(at), dtype=np.int64)
    row = g.rows[r]
    bad = (at < 0) | (at > size - width)
    if bad.any():
        k = int(np.flatnonzero(bad)[0])
        if g.m.bounds:
            g.m.find("bounds", info, f"index {int(at[k])} of @{info.buffer} is outside 0..{size - 1}"
                     + (f" ({width} elements)" if width > 1 else ""),
                     "clamp or wrap the index, or predicate the access with `where`",
                     index=int(at[k]), row=int(row[k]), lane=int(lane[k]), times=int(bad.sum()))  # fmt: skip
        ok = ~bad
        at, row, lane, sel = at[ok], row[ok], lane[ok], sel[ok]
        if not len(sel):
            return None
    return at, row, lane, sel


def check_align(g: Group, at: Any, row: Any, lane: Any, itemsize: int, nbytes: int, base: int, info: OpInfo) -> None:
    """Finding if an access of ``nbytes`` is not aligned to its size; ``base`` is the alignment of the buffer."""
    if not g.m.bounds:
        return
    fix = "align the buffer and its pitch to the access, or use a narrower one"
    if base % nbytes:
        g.m.find(
            "bounds", info, f"an access of {nbytes} bytes to @{info.buffer}, which is aligned to {base} bytes only", fix
        )
    off = (at * itemsize) & (nbytes - 1)
    if off.any():
        shape = np.broadcast_shapes(np.shape(at), np.shape(row), np.shape(lane))
        k = int(np.flatnonzero(np.broadcast_to(off, shape))[0])
        i, r, ln = (int(np.broadcast_to(x, shape).reshape(-1)[k]) for x in (at, row, lane))
        g.m.find(
            "bounds", info, f"misaligned access of {nbytes} bytes at @{info.buffer}[{i}]", fix, index=i, row=r, lane=ln
        )
