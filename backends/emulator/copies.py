"""Asynchronous copies under way: cp.async by groups of each lane, bulk copies by mbarrier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sparsegen.ir.types import Buffer

from .clocks import BULK, BULK_LANE, CP, CP_LANE, stamped
from .memory import OpInfo

if TYPE_CHECKING:
    from .globalmem import Global
    from .group import Group
    from .machine import Machine
    from .mbarrier import Bars
    from .memory import Shared


@dataclass
class Flight:
    """One executed cp_async: for each lane its thread, its group, its cells and the data that will be there."""

    mem: Shared
    info: OpInfo
    thread: Any
    number: Any
    cells: Any
    data: Any

    def part(self, which: Any) -> Flight:
        """The flight of some of its threads."""
        if which.all():
            return self
        return Flight(self.mem, self.info, self.thread[which], self.number[which], self.cells[which], self.data[which])


class Copies:
    """cp.async of all warps of a batch."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.number = np.zeros((m.W, 32), dtype=np.int64)
        self.flights: list[Flight] = []

    def start(self, g: Group, dst: Buffer, src: Buffer, cells: Any, read: Any, row: Any, lane: Any, sel: Any,
              info: OpInfo, src_info: OpInfo) -> None:  # fmt: skip
        m = self.m
        mem, source = m.shared[dst.name], m.globals[src.name]
        if mem.data is None:
            return

        def threads(of: Shared | Global, at: Any) -> tuple[Any, Any, Any]:
            r, ln, stamp = (np.broadcast_to(x[:, None], at.shape) for x in (row, lane, of.stamp(g, sel)))
            return r, ln, stamp

        if source.tracked:
            source.check_read(read, *threads(source, read), src_info)
        if mem.tracked:
            mem.check_write(cells, *threads(mem, cells), info, state=CP, what="cp.async")
        thread = row * 32 + lane
        number = self.number.reshape(-1)[thread]
        self.flights.append(Flight(mem, info, thread, number, cells, source.data.take(read)))

    def commit(self, g: Group) -> None:
        if g.mask is None:
            self.number[g.rows] += 1
        else:
            self.number[g.rows] += g.mask

    def wait(self, g: Group, pending: int) -> None:
        """The active lanes wait for all but their latest ``pending`` groups."""
        if not self.flights:
            return
        upto = np.full(self.m.W * 32, -1, dtype=np.int64)
        upto.reshape(-1, 32)[g.rows] = np.where(g.full(), self.number[g.rows] - pending, -1)
        keep: list[Flight] = []
        for f in self.flights:
            done = f.number < upto[f.thread]
            if done.any():
                self._land(f.part(done))
            if not done.all():
                keep.append(f.part(~done))
        self.flights = keep

    def taken(self, rows: Any, mask: Any) -> list[Flight]:
        """What these lanes have in flight, which an arrival of theirs waits for from now on."""
        mine = np.zeros((self.m.W, 32), dtype=bool)
        mine[rows] = mask
        found, keep = [], []
        for f in self.flights:
            own = mine.reshape(-1)[f.thread]
            if own.any():
                found.append(f.part(own))
            if not own.all():
                keep.append(f.part(~own))
        self.flights = keep
        return found

    def _land(self, f: Flight) -> None:
        self.land(f, self.m.clk.stamp(f.thread >> 5, f.thread & 31).astype(np.int32))

    @staticmethod
    def land(f: Flight, stamp: Any) -> None:
        """The copies arrive; they are writes with this stamp, one a copy, from now on."""
        f.mem.data[f.cells] = f.data
        f.mem.complete(f.cells, np.broadcast_to(stamp[:, None], f.cells.shape))

    def left(self, rows: Any) -> None:
        """These warps end: their copies must have been waited for."""
        if not self.flights:
            return
        gone = np.zeros(self.m.W, dtype=bool)
        gone[rows] = True
        keep: list[Flight] = []
        for f in self.flights:
            late = gone[f.thread >> 5]
            if not late.all():
                keep.append(f.part(~late))
            self.m.find("async", f.info, f"the kernel ends while a cp.async into @{f.mem.buf.name} is in flight",
                        "put a cp_wait 0 before the end (and commit every copy)", bad=late, row=f.thread >> 5,
                        lane=f.thread & 31, index=f.cells[:, 0] % f.mem.size)  # fmt: skip
        self.flights = keep


@dataclass
class Bulk:
    """Bulk copies of one instruction on their way: each has its cells, its data, its mbarrier and its phase."""

    mem: Shared
    bars: Bars
    info: OpInfo
    row: Any
    cells: list[Any]
    data: list[Any]
    bar: Any
    phase: Any

    @property
    def what(self) -> str:
        return f"a copy into @{self.mem.buf.name}"

    def run(self, m: Machine) -> None:
        """The copies arrive, and count for their mbarriers."""
        agent = self.bars.agent(self.bar)
        for j, (cells, data) in enumerate(zip(self.cells, self.data, strict=True)):
            self.mem.data[cells] = data
            stamp = stamped(int(self.phase[j] + 1), int(agent[j]), BULK_LANE)
            self.mem.complete(cells, np.full(len(cells), stamp, dtype=np.int32))
        self.bars.landed(self.bar, np.array([len(c) for c in self.cells]) * self.mem.buf.dtype.nbytes)


@dataclass
class Arrival:
    """Arrivals of one instruction that wait for their lanes' cp.async; each of these with the stamp it will have.

    They hand over these copies, as the mbarrier's agent, and nothing else that the lanes did: PTX orders only the
    copies before such an arrival.
    """

    bars: Bars
    info: OpInfo
    row: Any
    mask: Any
    bar: Any
    flights: list[tuple[Flight, Any]]
    what = "an arrival of cp.async"

    def run(self, m: Machine) -> None:
        """The copies land, and the lanes have arrived."""
        for flight, stamp in self.flights:
            Copies.land(flight, stamp)
        self.bars.arrived(self.row, self.mask, self.bar, self.info)


class Underway(Protocol):
    """What the engine carries out, and an mbarrier of the block of warp ``row`` waits for."""

    info: OpInfo
    row: Any

    @property
    def what(self) -> str: ...

    def run(self, m: Machine) -> None: ...


class BulkEngine:
    """The unit that carries out what mbarriers wait for: an agent of its own, which the scheduler lets run."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.queue: list[Underway] = []

    def arrive(self, bars: Bars, rows: Any, mask: Any, cells: Any, info: OpInfo) -> None:
        """Arrivals of lanes, to be made when what they have in flight has landed."""
        of_row = np.zeros(self.m.W, dtype=np.int32)
        of_row[rows] = stamped(bars.phase[cells] + 1, bars.agent(cells), CP_LANE)
        flights = [(f, of_row[f.thread >> 5]) for f in self.m.copies.taken(rows, mask)]
        self.queue.append(Arrival(bars, info, rows, mask, cells, flights))

    def issue(self, bars: Bars, dst: Buffer, src: Buffer, cells: Any, read: Any, n: Any, k: Any, row: Any, lane: Any,
              info: OpInfo, src_info: OpInfo, what: str) -> None:  # fmt: skip
        """Copies of threads (row, lane) that the mbarriers ``k`` count: ``n`` elements each.

        ``cells`` and ``read``: where all their elements go to and come from, one copy behind the other; from -1: a 0.
        """
        m = self.m
        mem, source = m.shared[dst.name], m.globals[src.name]
        bar = k + m.lblk[row] * bars.size
        bars.used(bar, row, lane, info)
        m.find("async", info, lambda at: f"a {what} uses @{bars.name}[{at(k)}], whose initialisation is not fenced",
               "put a fence mbar_init right after mbar_init, in the thread that initialises, before the barrier",
               bad=~bars.fenced[bar] & (bars.count[bar] > 0), index=k, row=row, lane=lane)  # fmt: skip
        rows, lanes, there = np.repeat(row, n), np.repeat(lane, n), read >= 0
        stamp = m.clk.stamp(rows, lanes)
        if source.tracked:
            seen = (((m.gblk[rows] + 1) << 32) | stamp)[there]
            source.check_read(read[there], rows[there], lanes[there], seen, src_info)
        if mem.tracked:
            mem.check_proxy(cells, rows, lanes, info, f"{what} overwrites")
            mem.check_reads(cells, rows, lanes, info, f"{what} overwrites")
            mem.check_write(cells, rows, lanes, stamp.astype(np.int32), info, state=BULK, what=what)
        cuts = np.cumsum(n)[:-1]
        data = source.data.take(np.maximum(read, 0))
        data[~there] = 0
        self.queue.append(
            Bulk(mem, bars, info, row, np.split(cells, cuts), np.split(data, cuts), bar, bars.phase[bar].copy())
        )

    def run(self) -> None:
        """Carries out the copies under way, or, if a seed shuffles the schedule, some of them."""
        m = self.m
        work = self.queue
        self.queue = []
        if m.seed and len(work) > 1 and m.rng.random() < 0.5:
            m.rng.shuffle(work)
            half = len(work) // 2
            work, self.queue = work[:half], work[half:]
        for b in work:
            b.run(m)
        m.events += 1

    def left(self, block_rows: Any) -> None:
        """Blocks whose warps have all ended: their copies must have landed."""
        if not self.queue:
            return
        gone = np.zeros(self.m.W, dtype=bool)
        gone[block_rows] = True
        for b in self.queue:
            self.m.find("async", b.info, f"the kernel ends while {b.what} is in flight",
                        "wait for its mbarrier before the end", bad=gone[b.row], row=b.row)  # fmt: skip
