"""What threads know of others through fences and atomics on one element: releases and acquires.

``fence gpu`` and atomics on global memory tell any thread of the GPU, ``fence block`` and those on shared memory the
threads of a block.  The blocks of a cluster have one clock, and count as one here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .clocks import parts

if TYPE_CHECKING:
    from .globalmem import Global
    from .group import Group
    from .machine import Machine
    from .memory import Shared

Snapshot = dict[int, Any]  # block -> clocks [agents, 32] of its warps' lanes


def _join(into: Snapshot, more: Snapshot) -> None:
    for block, vc in more.items():
        into[block] = np.maximum(into[block], vc) if block in into else vc


class OtherBlocks:
    """Knowledge across blocks, of the few threads that use it: a warp's is a list of (lanes, snapshot)."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.known: dict[int, list[tuple[Any, Snapshot]]] = {}
        #: What the last fence of a warp's lanes would publish, by whether it is to all of the GPU or to the block.
        self.fenced: dict[bool, dict[int, tuple[Any, Snapshot]]] = {True: {}, False: {}}
        #: What atomics have read (lane, whether of global memory, what), to be acquired by a fence.
        self.seen: dict[int, list[tuple[int, bool, Snapshot]]] = {}

    def fence(self, g: Group, *, everywhere: bool) -> None:
        """``fence gpu``, or ``fence block``, of the active lanes: earlier atomics acquire, later ones release."""
        m = self.m
        for i in np.flatnonzero(g.full().any(1)).tolist():
            rows, lanes = g.rows[i : i + 1], g.full()[i]
            row = int(rows[0])
            block = int(m.gblk[row]) // m.cluster.size
            rest: list[tuple[int, bool, Snapshot]] = []
            for lane, far, snap in self.seen.pop(row, ()):
                if not lanes[lane] or (far and not everywhere):
                    rest.append((lane, far, snap))
                    continue
                one = np.zeros(32, dtype=bool)
                one[lane] = True
                if block in snap:
                    m.clk.acquire(rows, one[None], snap[block][None], np.arange(32))
                others = {b: v for b, v in snap.items() if b != block}
                if others:
                    self.known.setdefault(row, []).append((one, others))
            if rest:
                self.seen[row] = rest
            snap = {block: m.clk.released(rows, lanes[None])[0][:, m.clk.classes]}
            for who, other in self.known.get(row, ()):
                if (who & lanes).any():
                    _join(snap, other)
            self.fenced[False][row] = (lanes, snap)
            if everywhere:
                self.fenced[True][row] = (lanes, snap)
        m.clk.tick(g.active_rows())

    def atomic(self, mem: Global | Shared, cell: Any, row: Any, lane: Any, *, acquires: bool) -> None:
        """Atomics of these threads on these elements, one after the other."""
        far = mem.buf.space == "global"
        published_by = self.fenced[far]
        if not acquires:
            fenced = np.zeros(self.m.W, dtype=bool)
            fenced[list(published_by)] = True
            keep = np.flatnonzero(fenced[row])
            cell, row, lane = cell[keep], row[keep], lane[keep]
        for c, r, ln in zip(cell.tolist(), row.tolist(), lane.tolist(), strict=True):
            published = mem.releases.get(c)
            if acquires and published:
                self.seen.setdefault(r, []).append((ln, far, dict(published)))
            mine = published_by.get(r)
            if mine is not None and mine[0][ln]:
                _join(mem.releases.setdefault(c, {}), mine[1])

    def spread(self, groups: Any) -> None:
        """The warps of each row of ``groups`` have met: all their lanes know what one of them knew."""
        if not self.known:
            return
        for rows in groups.tolist():
            has = [self.known[r] for r in rows if r in self.known]
            if not has:
                continue
            snap: Snapshot = {}
            for entries in has:
                for _, s in entries:
                    _join(snap, s)
            for r in rows:
                self.known[r] = [(np.ones(32, dtype=bool), dict(snap))]

    def clear_known(self, bad: Any, far: Any, row: Any, lane: Any, stamps: Any) -> None:
        """Marks as ordered (false in ``bad``) the accesses ``far`` by other blocks that the threads know of."""
        for r in np.unique(row[far]).tolist():
            for who, snap in self.known.get(r, ()):
                at = far[(row[far] == r) & who[lane[far] & 31]]
                blocks, low = ((stamps[at] >> 32) - 1) // self.m.cluster.size, stamps[at] & 0xFFFFFFFF
                for b in np.unique(blocks).tolist():
                    if b in snap:
                        hit = blocks == b
                        clock, agent, lane_there = parts(low[hit])
                        bad[at[hit]] &= clock > snap[b][agent, lane_there]
