"""Blocks of a cluster, which know of each other's accesses as warps of one block do, and what may be done to another.

Clocks are those of a cluster: its agents are the warps of all its blocks, rank by rank, then their mbarriers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir import warp_cluster as wc

from .barriers import CLUSTER
from .clocks import BULK, CP_LANE, Clocks, stamped
from .memory import OpInfo, Shared, check_align, locate
from .scalars import Step
from .values import number, operand, pick

if TYPE_CHECKING:
    from .compile import Scope
    from .control import Label
    from .group import Group
    from .machine import Machine
    from .mbarrier import Bars

BEGUN = "put a cluster_barrier before the first access to another block's shared memory"
ENDED = (
    "let the block wait for whoever accesses its shared memory before it ends: by a cluster_barrier behind the access, "
    "or by an arrival on one of its mbarriers"
)


@dataclass
class Stores:
    """Stores of one instruction on their way to other blocks: their cells, data, mbarriers and phases; a row each."""

    mem: Shared
    bars: Bars
    info: OpInfo
    row: Any  # a warp of the block that gets it
    cells: Any
    data: Any
    bar: Any
    phase: Any

    @property
    def what(self) -> str:
        return f"a store from another block into @{self.mem.buf.name}"

    def run(self, m: Machine) -> None:
        """They arrive, and count for their mbarriers."""
        if self.mem.data is not None:
            self.mem.data[self.cells] = self.data
            stamp = stamped(self.phase + 1, self.bars.agent(self.bar), CP_LANE).astype(np.int32)
            self.mem.complete(self.cells, np.broadcast_to(stamp[:, None], self.cells.shape))
        self.bars.foreign[self.bar] = True
        self.bars.landed(self.bar, self.data.shape[1] * self.mem.buf.dtype.nbytes)


class Cluster:
    """The clusters of a batch, ``size`` blocks each, whose blocks have so many mbarriers."""

    def __init__(self, m: Machine, size: int, bars: int) -> None:
        self.m, self.size, self.bars = m, size, bars
        self.first = m.lblk // size * size  # of each warp: the block of its cluster with rank 0
        self.rank = m.lblk % size
        self.over = np.zeros(m.blocks, dtype=bool)
        #: Of each block and each lane of its cluster: the clock of its last access from another block, and the op.
        self.last: Any = np.zeros((m.blocks, size * m.wpb, 32), dtype=np.int32) if size > 1 else None
        self.ops: dict[int, OpInfo] = {}
        #: Of each mbarrier: until which phase blocks have stored what it tracks.
        self.stored: dict[str, Any] = {}

    def clocks(self) -> Clocks:
        return Clocks(self.m.blocks // self.size, self.size * self.m.wpb, self.size * self.bars)

    def of_agent(self, agent: int) -> tuple[int, int]:
        """The rank of an agent's block, and its number there: warps first, then mbarriers."""
        warps = self.size * self.m.wpb
        if agent < warps:
            return divmod(agent, self.m.wpb)
        rank, bar = divmod(agent - warps, self.bars)
        return rank, self.m.wpb + bar

    # -------------------------------------------------------------------------------------------- other blocks
    def reach(self, row: Any, lane: Any, rank: Any, info: OpInfo, *, later: bool = False) -> Any:
        """The batch's blocks of these ranks, whose shared memory threads access now: they must have begun, not ended.

        All arrays are 1-D.  ``later``: an mbarrier says when the access has been made.
        """
        m, clk = self.m, self.m.clk
        bad = (rank < 0) | (rank >= self.size)
        m.find("bounds", info, lambda at: f"rank {at(rank)} is outside 0..{self.size - 1}", "use %rank of the cluster",
               bad=bad, index=rank, row=row, lane=lane)  # fmt: skip
        block = self.first[row] + np.where(bad, self.rank[row], rank)
        far = np.flatnonzero(block != m.lblk[row])
        if not len(far) or not m.race:
            return block
        r, ln, to = row[far], lane[far], block[far]
        m.find("race", info, lambda at: f"access to @{info.buffer} of rank {at(to % self.size)}, which has ended",
               ENDED, bad=self.over[to], row=r, lane=ln)  # fmt: skip
        agents = ((to % self.size) * m.wpb + w for w in range(m.wpb))
        known = np.maximum.reduce([clk.know[r, clk.classes[ln], agent].max(-1) for agent in agents])
        m.find("race", info, lambda at: f"access to @{info.buffer} of rank {at(to % self.size)}, which may not have "
               "begun", BEGUN, bad=known == 0, row=r, lane=ln)  # fmt: skip
        if not later:
            self.last[to, clk.wib[r], ln] = clk.clock[r]
        self.ops.update(dict.fromkeys(to.tolist(), info))
        return block

    def left(self, over: Any) -> None:
        """All warps of these blocks (bool) have ended: one of each must know of all that others did to it."""
        new = np.flatnonzero(over & ~self.over)
        self.over |= over
        if self.last is None or not self.m.race:
            return
        m, clk = self.m, self.m.clk
        for block in new.tolist():
            rows = slice(block * m.wpb, (block + 1) * m.wpb)
            for name, phases in self.stored.items():
                bars = m.bars[name]
                cells = block * bars.size + np.arange(bars.size)
                late = clk.know[rows][:, :, bars.agent(cells)].max(axis=(0, 1, 3)) < phases[cells]
                if late.any():
                    m.find("async", self.ops[block], f"a block may end before what others store has arrived, which "
                           f"@{name}[{late.argmax()}] tells", "wait for the mbarrier before the end",
                           row=block * m.wpb)  # fmt: skip
            agent, lane = np.nonzero(self.last[block])
            if len(agent):
                know = clk.know[rows][:, :, agent, clk.classes[lane]].max(axis=(0, 1))
                late = know < self.last[block, agent, lane]
                who = m.agent_name(int(agent[late.argmax()]), 32)
                m.find("race", self.ops[block], f"the block may end before this access by {who}", ENDED, bad=late,
                       row=block * m.wpb)  # fmt: skip


# ------------------------------------------------------------------------------------------------ closures
def barrier(op: wc.ClusterBarrier, sc: Scope, after: Label) -> Callable[[Group], int]:
    """The control of the barrier of a cluster."""
    info = sc.info(op)

    def arrive(g: Group) -> int:
        g.m.collective(g, info, all_there_are=True)
        return g.m.barriers.arrive(g, CLUSTER, 0, after.pc, info)

    return arrive


def _lanes(g: Group, found: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
    """What ``locate`` gives, an element a lane, where it stands for all lanes too."""
    at, row, lane, sel = found
    if sel is not None:
        return found
    at, row, lane = (np.broadcast_to(x, (g.n, 32)).reshape(-1) for x in (at, row, lane))
    return at, row, lane, np.arange(32 * g.n)


def st(op: wc.ClusterSt, sc: Scope) -> Step:
    buf, info, width = op.buf, sc.info(op), len(op.vals)
    nbytes = width * buf.dtype.nbytes
    index, to = number(op.index, sc.slots), number(op.rank, sc.slots)
    vals = [operand(v, buf.dtype, sc.slots) for v in op.vals]
    bar, name = number(op.bar, sc.slots), op.bars.name
    k_op, k_bytes = sc.count("st.cluster"), sc.count("bytes.cluster.write")

    def st(g: Group) -> None:
        m = g.m
        found = locate(g, index(g.env), None, buf.size, width, info)
        if found is None:
            return
        at, row, lane, sel = _lanes(g, found)
        check_align(g, at, row, lane, buf.dtype.nbytes, nbytes, buf.align, info)
        m.cnt[k_op] += g.warps()
        m.cnt[k_bytes] += m.of_blocks(row) * nbytes
        rank, k = pick(sel, (g.n, 32), np.asarray(to(g.env)), np.asarray(bar(g.env)))
        bars, mem = m.bars[name], m.shared[buf.name]
        outside = (k < 0) | (k >= bars.size)
        m.find("bounds", info, lambda first: f"index {first(k)} of @{name} is outside", "name an mbarrier",
               bad=outside, index=k, row=row, lane=lane)  # fmt: skip
        block = m.cluster.reach(row, lane, rank, info, later=True)
        k = np.where(outside, 0, k) + block * bars.size
        cells = (at + block * mem.size)[:, None] + np.arange(width)
        bars.used(k, row, lane, info)
        if mem.tracked and mem.data is not None:
            stamp = np.broadcast_to(mem.stamp(g, sel).reshape(-1)[:, None], cells.shape)
            rows, lanes = (np.broadcast_to(x[:, None], cells.shape) for x in (row, lane))
            mem.check_write(cells, rows, lanes, stamp, info, state=BULK, what="a store from another block")
        data = [pick(sel, (g.n, 32), np.asarray(val(g.env)))[0] for val in vals]
        m.bulk.queue.append(Stores(mem, bars, info, block * m.wpb, cells, np.stack(data, axis=1), k, bars.phase[k]))
        stored = m.cluster.stored.setdefault(name, np.zeros(len(bars.phase), dtype=np.int64))
        np.maximum.at(stored, k, bars.phase[k] + 1)

    return st


def arrive(op: wc.ClusterArrive, sc: Scope) -> Step:
    ix, to, info, name = number(op.index, sc.slots), number(op.rank, sc.slots), sc.info(op), op.bars.name

    def arrive(g: Group) -> None:
        m, bars = g.m, g.m.bars[name]
        found = locate(g, ix(g.env), None, bars.size, 1, info)
        if found is None:
            return
        at, row, lane, sel = _lanes(g, found)
        (rank,) = pick(sel, (g.n, 32), np.asarray(to(g.env)))
        block = m.cluster.reach(row, lane, rank, info)
        cell = at + block * bars.size
        bars.used(cell, row, lane, info)
        place = cell - m.cluster.first[row] * bars.size  # of those of the cluster
        for j in np.unique(place).tolist():
            mask = np.zeros((m.W, 32), dtype=bool)
            mask[row[place == j], lane[place == j]] = True
            rows = np.flatnonzero(mask.any(1))
            cells = j + m.cluster.first[rows] * bars.size
            bars.foreign[cells[cells // bars.size != m.lblk[rows]]] = True
            bars.arrive(rows, mask[rows], cells, None, info)

    return arrive
