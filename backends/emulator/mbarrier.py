"""mbarriers: phases, arrivals, bytes of bulk copies, and what their waiters learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .memory import OpInfo

if TYPE_CHECKING:
    from .group import Group
    from .machine import Machine


class Bars:
    """The mbarriers of one shared buffer, for all blocks of the batch; a cell is ``block * size + index``.

    ``first`` is the number of the first among all mbarriers of a block.
    """

    def __init__(self, m: Machine, name: str, size: int, first: int) -> None:
        self.m, self.name, self.size, self.first = m, name, size, first
        total = m.blocks * size
        self.count, self.pending, self.tx, self.phase = np.zeros((4, total), dtype=np.int64)
        self.fenced, self.foreign = np.zeros((2, total), dtype=bool)  # foreign: other blocks arrive, or store
        self.owner = np.full(total, -1, dtype=np.int64)
        shape = (total, m.clk.agents, len(m.clk.first))
        self.cur, self.done = np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.int32)
        self.classes = m.clk.classes

    def fit(self) -> None:
        """Lane classes as the clocks have them now."""
        clk = self.m.clk
        self.cur, self.done = (clk.fit(table, self.classes) for table in (self.cur, self.done))
        self.classes = clk.classes

    def agent(self, cells: Any) -> Any:
        rank = cells // self.size % self.m.cluster.size
        return self.m.clk.warps + rank * self.m.cluster.bars + self.first + cells % self.size

    # -------------------------------------------------------------------------------------------- set-up
    def init(self, cells: Any, row: Any, lane: Any, stamp: Any, count: int, info: OpInfo) -> None:
        mem = self.m.shared[self.name]
        if mem.tracked:
            mem.check_write(cells, row, lane, stamp, info, what="mbar_init")
        self.count[cells] = self.pending[cells] = count
        self.tx[cells] = self.phase[cells] = 0
        self.fenced[cells] = False
        self.owner[cells] = row * 32 + lane

    def fence(self, g: Group) -> None:
        """The group's threads make the mbarriers that they have initialised visible to the asynchronous proxy."""
        new = np.flatnonzero((self.owner >= 0) & ~self.fenced)
        if len(new):
            mine = np.zeros(self.m.W * 32, dtype=bool)
            mine.reshape(-1, 32)[g.rows] = g.full()
            self.fenced[new[mine[self.owner[new]]]] = True

    def used(self, cells: Any, row: Any, lane: Any, info: OpInfo) -> None:
        """These threads use mbarriers: they must have been initialised, and that must be ordered before."""
        m, mem = self.m, self.m.shared[self.name]
        never, index = self.count[cells] == 0, cells % self.size
        m.find("uninit", info, lambda at: f"@{self.name}[{at(index)}] is used before mbar_init",
               "let one thread initialise it, fence mbar_init, then a barrier", bad=never, index=index, row=row,
               lane=lane)  # fmt: skip
        if m.race and mem.tracked:
            mem.against(np.where(never, 0, mem.ws.take(cells)), cells, row, lane, info, "use", "mbar_init")

    # -------------------------------------------------------------------------------------------- phases
    def arrive(self, rows: Any, mask: Any, cells: Any, tx: Any, info: OpInfo) -> None:
        """One arrival for each lane in ``mask``; they release what they and, up to its last sync, their warp did."""
        vc = self.m.clk.released(rows, mask)
        self.m.clk.tick(rows)
        if tx is not None:
            np.add.at(self.tx, cells, tx)
        self.fit()
        np.maximum.at(self.cur, cells, vc)
        self.arrived(rows, mask, cells, info)

    def arrived(self, rows: Any, mask: Any, cells: Any, info: OpInfo) -> None:
        """Arrivals are counted; what they release is known already."""
        m = self.m
        np.subtract.at(self.pending, cells, mask.sum(1))
        index, count = cells % self.size, self.count[cells]
        m.find("collective", info,
               lambda at: f"more arrivals on @{self.name}[{at(index)}] than the {at(count)} that mbar_init has set",
               "initialise it for the arrivals of one phase, or wait for the phase before you arrive again",
               bad=self.pending[cells] < 0, index=index, row=rows)  # fmt: skip
        self.settle(cells)

    def landed(self, cells: Any, nbytes: Any) -> None:
        """Bulk copies have arrived."""
        np.subtract.at(self.tx, cells, nbytes)
        self.settle(cells)

    def settle(self, cells: Any) -> None:
        c = np.unique(cells)
        c = c[(self.pending[c] <= 0) & (self.tx[c] == 0) & (self.count[c] > 0)]
        if len(c):
            self.fit()
            self.phase[c] += 1
            self.pending[c] = self.count[c]
            self.done[c] = np.maximum(self.done[c], self.cur[c])
            self.done[c, self.agent(c)] = self.phase[c][:, None]
            self.m.events += 1

    def acquire(self, used: list[tuple[Any, Any, Any]], info: OpInfo, cluster: bool) -> None:
        """Waiters learn what the arrivals of completed phases released."""
        for rows, mask, cells in used:
            if len(rows):
                self.m.find("race", info, f"the wait for @{self.name} does not acquire what other blocks released",
                            "wait with cluster", bad=self.foreign[cells] & (not cluster), index=cells % self.size,
                            row=rows)  # fmt: skip
                self.m.clk.acquire(rows, mask, self.done[cells], self.classes)
