"""Buffers with a shadow: who wrote and read each element last, and whether an access to it is in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir.types import Buffer

from .clocks import BULK, CP, CP_LANE, DIRTY, MANY, SPECIAL, TIME, WHOLE, parts
from .values import LANES, pick

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


#: What orders two accesses: of one block (or cluster), and of two.
BARRIER = "put a barrier between the two accesses (warp.sync is enough if both threads are in one warp)"
ACROSS = (
    "give each block its own elements, or order them: fence gpu, then an atomic in the writer; an atomic on the same "
    "element that sees it, then fence gpu, in the reader"
)


class Shadowed:
    """A buffer whose elements remember who accessed them; what shared and global memory have in common.

    ``data`` is None if it holds nothing, ``size`` the elements of one block (of the array, for global memory).
    """

    m: Machine
    data: Any
    kind: str  # of error, where accesses are not ordered

    def __init__(self, buf: Buffer, size: int) -> None:
        self.buf, self.size = buf, size

    def report(self, kind: str, hit: Any, flat: Any, row: Any, lane: Any, info: OpInfo, text: str, fix: str) -> None:
        """An error of elements ``flat`` where ``hit`` holds; {} in the text is the element."""
        if hit.any():
            place = flat % self.size
            self.m.find(kind, info, lambda at: text.format(f"@{self.buf.name}[{at(place)}]"), fix, bad=hit, index=place,
                        row=row, lane=lane)  # fmt: skip

    def unordered(self, bad: Any, flat: Any, row: Any, lane: Any, info: OpInfo, what: str, by: str, agent: Any,
                  source: Any, block: Any = None) -> None:  # fmt: skip
        """Where ``bad`` holds, an access is not ordered after one of lane ``source`` of an agent (of another block)."""
        m, place = self.m, flat % self.size
        size = m.cluster.size
        near = np.ones(np.shape(bad), dtype=bool) if block is None else block // size == m.gblk[row] // size

        def text(at: Callable[[Any], int]) -> str:
            who = m.agent_name(at(agent), at(source))
            who = who if at(near) else f"block {at(block)}, {who}"
            return f"{what} of @{self.buf.name}[{at(place)}] is not ordered after {by} by {who}"

        m.find(self.kind, info, text, lambda at: BARRIER if at(near) else ACROSS, bad=bad, index=place, row=row,
               lane=lane)  # fmt: skip


class Shared(Shadowed):
    """A shared buffer of all blocks of the batch; element ``i`` of local block ``b`` is ``b * size + i``."""

    kind = "race"
    releases: dict[int, dict[int, Any]]  # element -> block -> what atomics there have published

    def __init__(self, m: Machine, buf: Buffer) -> None:
        super().__init__(buf, buf.size)
        self.m = m
        self.dirty: Any = None  # the elements of a block that several threads may write
        for name, first, last in m.prog.head.scratch:
            if name == buf.name:
                self.dirty = np.zeros(buf.size, dtype=bool) if self.dirty is None else self.dirty
                self.dirty[first : last + 1] = True
        dt, total = buf.dtype.numpy(), m.blocks * buf.size
        self.data = None
        if buf.name not in m.run.blank:
            self.data = np.full(total, np.nan, dt) if buf.dtype.kind == "float" else np.zeros(total, dt)
        if buf.dtype.is_int:
            self.data.view(np.uint8)[:] = 0xCD
        self.tracked = m.race or m.uninit or m.asyncs
        if self.tracked:
            self.ws = np.zeros(total, dtype=np.int32)
        self.releases = {}
        self.lent: Any = None  # how many products in flight read an element
        self.rd: Any = None
        self.rmax: Any = None
        self.at: Any = None

    def cells(self, at: Any, row: Any) -> Any:
        """Where the elements ``at`` of the blocks of these warps are."""
        return at + self.m.lblk[row] * self.size

    def stamp(self, g: Group, sel: Any) -> Any:
        """Stamps of an access by a group, or by its lanes ``sel``."""
        return g.stamp() if sel is None else g.stamp().reshape(-1)[sel]

    # -------------------------------------------------------------------------------------------- reading
    def check_read(self, flat: Any, row: Any, lane: Any, stamp: Any, info: OpInfo, *, atomic: bool = False,
                   later: bool = False) -> None:  # fmt: skip
        """A read of elements ``flat`` by threads (row, lane); ``flat`` of one column means all lanes of a warp.

        ``later``: it goes on, and is recorded once it has ended.
        """
        m = self.m
        if flat.ndim == 2 and flat.shape[1] == 1:
            lane = np.full((1, 1), MANY)
        s = self.ws.take(flat)
        floor = m.clk.floor()
        if not (s.min() > 0 and s.max() < (floor + 1) << TIME):
            self._slow_read(s, flat, row, lane, info)
        if self.at is not None and not atomic and m.race:
            self.against(self.at.take(flat), flat, row, lane, info, "read", "an atomic access")
        if m.race and not atomic and not later:
            self.record_read(flat, row, lane)

    def _slow_read(self, s: Any, flat: Any, row: Any, lane: Any, info: OpInfo) -> None:
        self.report("uninit", s == 0, flat, row, lane, info, "read of {} that nothing has written",
                    "write the element before, or do not read it (zero padding that is read)")  # fmt: skip
        s = self._in_flight(s, flat, row, lane, info, "read")
        if self.m.race:
            self.against(s, flat, row, lane, info, "read", "the write")

    def _in_flight(self, s: Any, flat: Any, row: Any, lane: Any, info: OpInfo, what: str) -> Any:
        """Judges elements that are in a state; gives back the stamps of the others (0: none)."""
        state = s >= SPECIAL
        if not state.any():
            return s
        for code, text, fix in (
            (CP, "cp.async", "put a cp_wait that covers its group before (and a commit after the copy), and a barrier "
             "if another thread issued it"),
            (BULK, "bulk copy", "wait for its mbarrier's phase (mbar_try_wait in a loop) before"),
        ):  # fmt: skip
            text = f"{what} of {{}} while a {text} into it is in flight"
            self.report("async", s == code, flat, row, lane, info, text, fix)
        if self.m.race and what == "read":
            self.report("dirty", s == DIRTY, flat, row, lane, info,
                        "read of {}, a dirty element that several threads write",
                        "read live elements only; dirty ones hold whatever came last")  # fmt: skip
        return np.where(state, 0, s)

    def record_read(self, flat: Any, row: Any, lane: Any) -> None:
        """Threads have read elements, now: who writes them must know of it."""
        m = self.m
        if self.rd is None:
            self.rd = np.zeros(len(self.ws) * m.clk.warps, dtype=np.int32)
            self.rmax = np.zeros(len(self.ws), dtype=np.int32)
        clk = m.clk
        fi = flat * m.clk.warps + clk.wib[row]
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
        self._unlent(flat, row, lane, info, what)
        s = self.ws.take(flat)
        floor = m.clk.floor()
        if s.max() >= (floor + 1) << TIME:
            s = self._in_flight(s, flat, row, lane, info, what)
            if m.race:
                self.against(s, flat, row, lane, info, what, "the write")
        if m.race:
            if self.rmax is not None and (r := self.rmax.take(flat)).max() > floor:
                self._against_reads(r > floor, flat, row, lane, info, what)
            if self.at is not None:
                self.against(self.at.take(flat), flat, row, lane, info, what, "an atomic access")
        for cell in flat.reshape(-1).tolist() if self.releases else ():
            self.releases.pop(cell, None)
        self.ws[flat] = stamp
        if m.race:
            twice = self.ws.take(flat) != stamp
            if twice.any():
                self.report("race", twice, flat, row, lane, info, f"{what} of {{}} by two threads in one instruction",
                            "give each thread its own element, or predicate the store")  # fmt: skip
        if state:
            self.ws[flat] = state
        return live

    def check_atomic(self, flat: Any, row: Any, lane: Any, stamp: Any, info: OpInfo) -> None:
        """An atomic access: it races with plain accesses only."""
        m = self.m
        if self.at is None:
            self.at = np.zeros(len(self.ws), dtype=np.int32)
        self._unlent(flat, row, lane, info, "atomic access")
        self.check_read(flat, row, lane, stamp, info, atomic=True)
        if not m.race:
            return
        if self.rmax is not None:
            self._against_reads(self.rmax.take(flat) > m.clk.floor(), flat, row, lane, info, "atomic access")
        self.at[flat] = stamp

    def lend(self, flat: Any, more: int) -> None:
        """A product that reads these elements is in flight (1), or no longer (-1)."""
        if self.lent is None:
            self.lent = np.zeros(self.m.blocks * self.size, dtype=np.int32)
        np.add.at(self.lent, flat, more)

    def _unlent(self, flat: Any, row: Any, lane: Any, info: OpInfo, what: str) -> None:
        if self.lent is not None:
            self.report("async", self.lent.take(flat) > 0, flat, row, lane, info,
                        f"{what} of {{}}, which a wgmma in flight reads",
                        "let the warpgroup hand the tile over after a wgmma_wait that covers its group: by a barrier, "
                        "or by an arrival that the writer waits for")  # fmt: skip

    def complete(self, flat: Any, stamp: Any) -> None:
        """An asynchronous copy has arrived: from now on it is a write with this stamp."""
        if self.tracked:
            if self.dirty is not None:
                live = ~self.dirty.take(flat % self.size)
                flat, stamp = flat[live], np.broadcast_to(stamp, live.shape)[live]
            self.ws[flat] = stamp

    # -------------------------------------------------------------------------------------------- judging
    def against(self, s: Any, flat: Any, row: Any, lane: Any, info: OpInfo, what: str, by: str) -> None:
        cand = np.flatnonzero(s >= (self.m.clk.floor() + 1) << TIME)
        if len(cand):
            cell, c, r, ln = pick(cand, s.shape, flat, s, row, lane)
            clock, agent, source = parts(c)
            bad = self.m.clk.unordered(clock, agent, source, r, ln)
            if bad.any():
                self.unordered(bad, cell, r, ln, info, what, by, agent, source)

    def check_proxy(self, flat: Any, row: Any, lane: Any, info: OpInfo, what: str) -> None:
        """An asynchronous access of elements that were last written in the ordinary way needs an async fence."""
        m, clk = self.m, self.m.clk
        if not m.asyncs:
            return
        s = self.ws.take(flat).astype(np.int64)
        clock, agent, source = parts(s)
        cand = np.flatnonzero((s > 0) & (s < SPECIAL) & ((agent < clk.warps) | (source == CP_LANE)))
        if not len(cand):
            return
        clock, agent, source, r, ln = clock[cand], agent[cand], source[cand], row[cand], lane[cand]
        warp = agent < clk.warps
        writer = np.where(warp, r - clk.wib[r] + agent, r)
        ok = warp & (clk.own_fenced[writer, source] >= clock)
        own = warp & (writer == r) & (source == ln)
        if clk.fenced is not None:
            ok |= ~own & (clk.known(r, ln, agent, source, clk.fenced) >= clock)
        cell = flat[cand] % self.size

        def message(at: Callable[[Any], int]) -> str:
            by = f"an ordinary store of warp {at(agent)}" if at(warp) else "a cp.async"
            return (
                f"{what} @{self.buf.name}[{at(cell)}], which {by} has written, without a fence between the two proxies"
            )

        m.find("async", info, message,
               "put a fence async after the stores (before the barrier or arrival that hands the buffer over)",
               bad=~ok, index=cell, row=r, lane=ln)  # fmt: skip

    def check_reads(self, flat: Any, row: Any, lane: Any, info: OpInfo, what: str) -> None:
        """An asynchronous write of elements that other warps have read in the ordinary way needs an async fence: an
        arrival, or a barrier, does not wait until their loads have landed.  A warp's own have: it used what they gave.
        What a warpgroup as a WHOLE has read, it read asynchronously.
        """
        m, clk = self.m, self.m.clk
        if not m.asyncs or self.rd is None:
            return
        for agent, stamps in enumerate(self.rd.reshape(-1, clk.warps)[flat].astype(np.int64).T):
            cand = np.flatnonzero((stamps > 0) & (stamps & 63 != WHOLE) & (clk.wib[row] != agent))
            if not len(cand):
                continue
            clock, source, r, ln = stamps[cand] >> 6, stamps[cand] & 63, row[cand], lane[cand]
            own = clk.own_fenced[r - clk.wib[r] + agent]
            ok = np.where(source < MANY, own[np.arange(len(r)), np.minimum(source, MANY - 1)], own.min(1)) >= clock
            if clk.fenced is not None:
                ok |= clk.known(r, ln, np.full(len(r), agent), source, clk.fenced) >= clock
            cell = flat[cand] % self.size

            def message(at: Callable[[Any], int], warp: int = agent, cell: Any = cell) -> str:
                return (
                    f"{what} @{self.buf.name}[{at(cell)}], which warp {warp} has read, without a fence between the two "
                    "proxies: its loads may not have landed"
                )

            m.find("async", info, message,
                   "put a fence async before the copy, after the barrier or mbarrier that it waits for, or after the "
                   "reads", bad=~ok, index=cell, row=r, lane=ln)  # fmt: skip

    def _against_reads(self, maybe: Any, flat: Any, row: Any, lane: Any, info: OpInfo, what: str) -> None:
        m, cand = self.m, np.flatnonzero(maybe)
        cell, r, ln = pick(cand, maybe.shape, flat, row, lane)
        stamps = self.rd.reshape(-1, m.clk.warps)[cell].astype(np.int64)
        for agent, c in enumerate(stamps.T):
            bad = (c > 0) & m.clk.unordered(c >> 6, np.full(len(c), agent), c & 63, r, ln)
            if bad.any():
                self.unordered(bad, cell, r, ln, info, what, "the read", agent, c & 63)
                return


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
        text, many = f"of @{info.buffer} is outside 0..{size - 1}", f" ({width} elements)" if width > 1 else ""
        g.m.find("bounds", info, lambda first: f"index {first(at)} {text}{many}",
                 "clamp or wrap the index, or predicate the access with `where`",
                 bad=bad, index=at, row=row, lane=lane)  # fmt: skip
        ok = ~bad
        at, row, lane, sel = at[ok], row[ok], lane[ok], sel[ok]
        if not len(sel):
            return None
    return at, row, lane, sel


def check_align(g: Group, at: Any, row: Any, lane: Any, itemsize: int, nbytes: int, base: int, info: OpInfo) -> None:
    """Finding if an access of ``nbytes`` is not aligned to its size; ``base`` is the alignment of the buffer."""
    fix = "align the buffer and its pitch to the access, or use a narrower one"
    if base % nbytes:
        text = f"an access of {nbytes} bytes to @{info.buffer}, which is aligned to {base} bytes only"
        g.m.find("bounds", info, text, fix)
    off = (at * itemsize) & (nbytes - 1)
    if off.any():
        text = f"misaligned access of {nbytes} bytes at @{info.buffer}"
        bad = np.broadcast_to(off != 0, np.broadcast_shapes(np.shape(at), np.shape(row), np.shape(lane)))
        g.m.find("bounds", info, lambda first: f"{text}[{first(at)}]", fix, bad=bad, index=at, row=row, lane=lane)
