"""Who knows of whose accesses: vector clocks of warps, the basis of every race check.

Agents are the warps of a block, and one for each mbarrier (the bulk copies that it tracks).  An access is stamped with its
agent, its lane and its warp's clock; it is ordered before a later one if that thread's warp *knows* the stamp.  Lanes
of one warp know each other's accesses only through ``warp.sync``, a barrier, or a release and acquire: running in step
is no order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MANY = 32  # the lane of a read stamp that stands for several lanes
CLOCK_BITS = 18
SPECIAL = ((1 << CLOCK_BITS) - 4) << 12  # stamps from here on are states, not times
DIRTY, BULK, CP = SPECIAL + (1 << 12), SPECIAL + (2 << 12), SPECIAL + (3 << 12)


class Clocks:
    """Clocks of all warps of a batch: ``know[warp, lane?, agent, source lane?]``, the ``?`` axes grown when needed."""

    def __init__(self, blocks: int, wpb: int, bars: int) -> None:
        self.blocks, self.wpb, self.bars, self.agents = blocks, wpb, bars, wpb + bars
        self.W = blocks * wpb
        self.wib = np.tile(np.arange(wpb, dtype=np.int64), blocks)
        self.clock = np.ones(self.W, dtype=np.int32)
        self.know = np.zeros((self.W, 1, self.agents, 1), dtype=np.int32)
        self.fenced: Any = None  # know at the last async fence, of the fencing lanes
        self.own_fenced = np.zeros((self.W, 32), dtype=np.int32)
        self.version = 0
        self._floor: tuple[int, int] = (-1, 0)

    # -------------------------------------------------------------------------------------------- growing
    def per_lane(self) -> None:
        """From now on lanes of a warp may know different things."""
        if self.know.shape[1] == 1:
            self.know = np.repeat(self.know, 32, axis=1)
            if self.fenced is not None:
                self.fenced = np.repeat(self.fenced, 32, axis=1)

    def per_source(self) -> None:
        """From now on one may know of some lanes of a warp only."""
        if self.know.shape[3] == 1:
            self.know = np.repeat(self.know, 32, axis=3)
            if self.fenced is not None:
                self.fenced = np.repeat(self.fenced, 32, axis=3)

    # -------------------------------------------------------------------------------------------- asking
    def floor(self) -> int:
        """A clock that every warp knows of every agent: accesses up to it are ordered before everything from now on."""
        if self._floor[0] != self.version:
            self._floor = (self.version, int(self.know.min()))
        return self._floor[1]

    def known(self, row: Any, lane: Any, agent: Any, source: Any, table: Any = None) -> Any:
        """The clock up to which thread (row, lane) knows of lane ``source`` (or MANY) of an agent; all 1-D."""
        k = self.know if table is None else table
        _, lanes, agents, sources = k.shape
        i = row * lanes + np.where(lane == MANY, 0, lane) if lanes > 1 else row
        i = i * agents + agent
        if sources == 1:
            return k.reshape(-1).take(i)
        one = k.reshape(-1).take(i * sources + np.minimum(source, 31))
        many = source == MANY
        if np.any(many):
            one = np.where(many, k.reshape(-1, sources)[i].min(1), one)
        return one

    def unordered(self, clock: Any, agent: Any, source: Any, row: Any, lane: Any) -> Any:
        """Which accesses (clock, agent, lane) are not ordered before one by thread (row, lane) now; all 1-D."""
        own = (agent == self.wib[row]) & (source == lane) & (lane != MANY)
        return (clock > self.known(row, lane, agent, source)) & ~own

    # -------------------------------------------------------------------------------------------- ordering
    def tick(self, rows: Any) -> None:
        """A new clock for these warps, so that later accesses differ from earlier ones."""
        self.clock[rows] += 1
        self.version += 1
        if int(self.clock.max()) >= (1 << CLOCK_BITS) - 8:
            raise OverflowError("the emulator's clocks overflow: more than 260,000 synchronisations in one block")

    def sync(self, rows: Any) -> None:
        """The lanes of each of these warps meet."""
        k = self.know[rows]
        if k.shape[1] > 1:
            k[:] = k.max(axis=1, keepdims=True)
        k[np.arange(len(k)), :, self.wib[rows]] = self.clock[rows][:, None, None]
        self.know[rows] = k
        self.tick(rows)

    def meet(self, rows: Any, aligned: bool) -> None:
        """The warps ``rows[block, participant]`` of each block meet at a barrier."""
        k = self.know[rows].max(axis=(1, 2))  # [blocks, agents, sources]
        at = self.wib[rows]
        k[np.arange(len(rows))[:, None], at] = self.clock[rows][:, :, None]
        self.know[rows] = k[:, None, None]
        if aligned:
            self.clock[rows] = self.clock[rows].max(axis=1, keepdims=True)
            # every earlier access of the block is known: say so with one clock
            k[:, : self.wpb] = self.clock[rows].max(axis=1)[:, None, None]
            self.know[rows] = k[:, None, None]
        self.tick(rows.reshape(-1))

    def released(self, row: int, lanes: Any) -> Any:
        """What these lanes of a warp publish by a release: ``[agents, sources]``; their clock ticks."""
        if len(lanes) < 32:
            self.per_source()
        k = self.know[row]
        k = (k[lanes] if k.shape[0] > 1 else k).max(axis=0).copy()
        w = int(self.wib[row])
        if k.shape[1] == 1:
            k[w] = self.clock[row]
        else:
            k[w, lanes] = self.clock[row]
        return k

    def acquire(self, row: int, lanes: Any, vc: Any) -> None:
        """These lanes of a warp learn ``vc`` (``[agents, sources]``)."""
        if len(lanes) < 32:
            self.per_lane()
        if vc.shape[1] > self.know.shape[3]:
            self.per_source()
        at: Any = lanes if self.know.shape[1] > 1 else slice(None)
        self.know[row, at] = np.maximum(self.know[row, at], vc)
        self.version += 1

    def async_fence(self, rows: Any, mask: Any) -> None:
        """These threads order their earlier generic accesses before later asynchronous ones."""
        if self.fenced is None:
            self.fenced = np.zeros_like(self.know)
        if mask is not None and not mask.all():
            self.per_lane()
        lanes = self.know.shape[1] > 1
        now = self.know[rows]
        self.fenced[rows] = np.where(mask[:, :, None, None], now, self.fenced[rows]) if lanes and mask is not None else now
        clk = self.clock[rows][:, None]
        self.own_fenced[rows] = clk if mask is None else np.where(mask, clk, self.own_fenced[rows])
        self.tick(rows)
