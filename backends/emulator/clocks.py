"""Who knows of whose accesses: vector clocks of warps, the basis of every race check.

Agents are the warps of a block (of a cluster: of all its blocks), and one for each mbarrier (the copies that it tracks:
bulk ones, and cp.async).  An
access is stamped with its agent, its lane and its warp's clock; it is ordered before a later one if that thread *knows*
the stamp.  Lanes of one warp know each other's accesses only through ``warp.sync``, a barrier, or release and acquire:
running in step is no order.

Where single lanes release or acquire, lanes differ in what they know and in what is known of them.  They are kept in
classes of lanes that have always been treated alike (as a rule lane 0 and the others), not one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsegen.ir.errors import IRError

MANY = 32  # the lane of an access by several lanes
WHOLE = 33  # the lane of what a warp did as one, all its lanes waiting for it: who knows of one lane knows of it
BULK_LANE, CP_LANE = 0, 1  # of an mbarrier's agent: copies through the asynchronous proxy, and cp.async
#: A stamp is clock, agent and lane, in 31 bits: a block of 32 warps with rings of 8 stages has 288 agents.
LANE_BITS, AGENT_BITS, CLOCK_BITS = 5, 9, 17
AGENTS, TIME = 1 << AGENT_BITS, LANE_BITS + AGENT_BITS
SPECIAL = ((1 << CLOCK_BITS) - 4) << TIME  # stamps from here on are states, not times
DIRTY, BULK, CP = SPECIAL + (1 << TIME), SPECIAL + (2 << TIME), SPECIAL + (3 << TIME)
_BIT = 1 << np.arange(32, dtype=np.int64)


def stamped(clock: Any, agent: Any, lane: Any) -> Any:
    """The stamp of an access."""
    return (clock << TIME) | (agent << LANE_BITS) | lane


def parts(stamp: Any) -> tuple[Any, Any, Any]:
    """(clock, agent, lane) of a stamp."""
    return stamp >> TIME, (stamp >> LANE_BITS) & (AGENTS - 1), stamp & 31


class Clocks:
    """Clocks of all warps of a batch: ``know[warp, lane class, agent, source lane class]``."""

    def __init__(self, clusters: int, warps: int, bars: int) -> None:
        self.warps, self.agents = warps, warps + bars
        if self.agents > AGENTS:
            raise IRError(
                f"a block (or cluster) has {warps} warps and {bars} mbarriers: the emulator keeps apart {AGENTS} of "
                "both together",
                hint="give the block fewer warps or fewer mbarriers (stages)",
            )
        self.W = clusters * warps
        self.wib = np.tile(np.arange(warps, dtype=np.int64), clusters)  # the warp's number among them
        self.clock = np.ones(self.W, dtype=np.int32)
        self.know = np.zeros((self.W, 1, self.agents, 1), dtype=np.int32)
        self.classes = np.zeros(32, dtype=np.int64)  # the class of each lane
        self.first = np.zeros(1, dtype=np.int64)  # a lane of each class
        self._seen = {(1 << 32) - 1, 0}  # masks that are unions of classes
        self.fenced: Any = None  # know at the last async fence, of the fencing lanes
        self.own_fenced = np.zeros((self.W, 32), dtype=np.int32)
        self.version = 0
        self._floor: tuple[int, int] = (-1, 0)

    # -------------------------------------------------------------------------------------------- lane classes
    def refine(self, mask: Any) -> Any:
        """Makes the lane masks (``[n, 32]``) unions of classes; gives them as ``[n, classes]``."""
        for code in np.unique(mask @ _BIT).tolist():
            if code in self._seen:
                continue
            self._seen.add(code)
            old = self.classes
            pairs = old * 2 + (code >> np.arange(32) & 1)
            _, self.first, self.classes = np.unique(pairs, return_index=True, return_inverse=True)
            self.know = self.fit(self.know, old)
            self.know = self.know.take(old[self.first], axis=1)
            if self.fenced is not None:
                self.fenced = self.fit(self.fenced, old).take(old[self.first], axis=1)
        return mask[:, self.first]

    def fit(self, table: Any, classes: Any) -> Any:
        """A table whose last axis counts older classes, by those of now."""
        return table if classes is self.classes else table.take(classes[self.first], axis=-1)

    # -------------------------------------------------------------------------------------------- asking
    def stamp(self, row: Any, lane: Any) -> Any:
        """Stamps (int64) of accesses that threads (row, lane) make now: clock, warp in block, lane."""
        return stamped(self.clock[row].astype(np.int64), self.wib[row], lane)

    def floor(self) -> int:
        """A clock that every warp knows of every agent: accesses up to it are ordered before everything from now on."""
        if self._floor[0] != self.version:
            self._floor = (self.version, int(self.know.min()))
        return self._floor[1]

    def known(self, row: Any, lane: Any, agent: Any, source: Any, table: Any = None) -> Any:
        """The clock up to which thread (row, lane) knows of lane ``source`` of an agent; all 1-D; MANY: all lanes."""
        k = self.know if table is None else table
        c, flat = len(self.first), k.reshape(-1)
        if c == 1:
            return flat.take(row * self.agents + agent)

        def at(a: Any, b: Any) -> Any:
            return flat.take(((row * c + a) * self.agents + agent) * c + b)

        several, others, whole = lane == MANY, source == MANY, source == WHOLE
        a, b = self.classes[np.where(several, 0, lane)], self.classes[np.where(others | whole, 0, source)]
        out = at(a, b)
        if several.any() or others.any():
            for x in range(c):
                for y in range(c):
                    out = np.minimum(out, at(np.where(several, x, a), np.where(others, y, b)))
        if whole.any():
            best = [np.minimum.reduce([at(np.where(several, x, a), y) for x in range(c)]) for y in range(c)]
            out = np.where(whole, np.maximum.reduce(best), out)
        return out

    def unordered(self, clock: Any, agent: Any, source: Any, row: Any, lane: Any) -> Any:
        """Which accesses (clock, agent, lane) are not ordered before one by thread (row, lane) now; all 1-D."""
        own = (agent == self.wib[row]) & ((source == lane) | (source == WHOLE)) & (lane != MANY)
        return (clock > self.known(row, lane, agent, source)) & ~own

    # -------------------------------------------------------------------------------------------- ordering
    def tick(self, rows: Any) -> None:
        """A new clock for these warps, so that later accesses differ from earlier ones."""
        self.clock[rows] += 1
        self.version += 1
        if int(self.clock.max()) >= (1 << CLOCK_BITS) - 8:
            raise IRError(
                f"the emulator's clocks overflow: {1 << CLOCK_BITS:,} synchronisations in one block",
                hint="emulate a smaller problem, or give each block less of it",
            )

    def sync(self, rows: Any) -> None:
        """The lanes of each of these warps meet."""
        k = self.know[rows]
        if k.shape[1] > 1:
            k[:] = k.max(axis=1, keepdims=True)
        k[np.arange(len(k)), :, self.wib[rows]] = self.clock[rows][:, None, None]
        self.know[rows] = k
        self.tick(rows)

    def meet(self, rows: Any, whole: bool) -> None:
        """The warps ``rows[block, participant]`` meet at a barrier (``whole``: they are all warps of the block)."""
        k = self.know[rows].max(axis=(1, 2))  # [blocks, agents, classes]
        if whole:  # every earlier access of the block is known: say so with one clock
            self.clock[rows] = self.clock[rows].max(axis=1, keepdims=True)
        k[np.arange(len(rows))[:, None], self.wib[rows]] = self.clock[rows][:, :, None]
        self.know[rows] = k[:, None, None]
        self.tick(rows.reshape(-1))

    def released(self, rows: Any, mask: Any) -> Any:
        """What these lanes of each warp publish by a release: ``[n, agents, classes]``.  Tick the clocks afterwards."""
        m = self.refine(mask)
        k = self.know[rows]
        vc = np.where(m[:, :, None, None], k, 0).max(1)
        me = (np.arange(len(rows)), self.wib[rows])
        vc[me] = np.maximum(vc[me], np.where(m, self.clock[rows][:, None], 0))
        return vc

    def acquire(self, rows: Any, mask: Any, vc: Any, classes: Any) -> None:
        """These lanes of each warp learn ``vc`` (``[n, agents, classes]``, by the classes of then)."""
        m = self.refine(mask)
        k = self.know[rows]
        self.know[rows] = np.where(m[:, :, None, None], np.maximum(k, self.fit(vc, classes)[:, None]), k)
        self.version += 1

    def async_fence(self, rows: Any, mask: Any) -> None:
        """These threads order their earlier generic accesses before later asynchronous ones."""
        m = self.refine(mask)
        if self.fenced is None:
            self.fenced = np.zeros_like(self.know)
        self.fenced[rows] = np.where(m[:, :, None, None], self.know[rows], self.fenced[rows])
        self.own_fenced[rows] = np.where(mask, self.clock[rows][:, None], self.own_fenced[rows])
        self.tick(rows)
