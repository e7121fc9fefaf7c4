"""Barriers: named ones of a block, and that of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .memory import OpInfo

if TYPE_CHECKING:
    from .group import Group
    from .machine import Machine

#: The number of the barrier at which all blocks of a cluster meet.
CLUSTER = -1


class Barriers:
    """The warps that wait at barriers: of each block (``CLUSTER``: of each cluster) some that have arrived."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.parked: dict[int, list[tuple[Group, OpInfo, int]]] = {}

    def __bool__(self) -> bool:
        return any(self.parked.values())

    def waiting(self) -> Iterator[tuple[Group, OpInfo, str]]:
        """The groups that wait, and what for."""
        for ident, groups in self.parked.items():
            for g, info, n in groups:
                name = "the barrier of its cluster" if ident == CLUSTER else f"barrier {ident}"
                yield g, info, f"waits at {name} for {self._need(ident, n)} warps"

    def _need(self, ident: int, warps: int) -> int:
        return self.m.clk.warps if ident == CLUSTER else warps or self.m.wpb

    def arrive(self, g: Group, ident: int, warps: int, after: int, info: OpInfo) -> int:
        """Warps arrive at a barrier (``warps`` 0: all there are); gives the next segment, or -1 if they wait."""
        m, parked, need = self.m, self.parked.setdefault(ident, []), self._need(ident, warps)
        size = m.clk.warps if ident == CLUSTER else m.wpb
        team = m.lblk // m.prog.head.cluster if ident == CLUSTER else m.lblk
        if not parked and g.whole and need == size:
            m.meet(g.rows.reshape(-1, size), True)
            return after
        for _, _, n in parked:
            m.find("collective", info, f"barrier {ident} is used with different thread counts ({32 * n} and "
                   f"{32 * warps}; 0: all)", "use one count for each barrier id", bad=n != warps,
                   row=g.rows[0])  # fmt: skip
        g.pc = after
        parked.append((g, info, warps))
        waiting = np.concatenate([x.rows for x, _, _ in parked])
        arrived = np.bincount(team[waiting], minlength=int(team[-1]) + 1)
        full = arrived >= need
        if not full.any():
            m.crowd = True
            return -1
        m.find("collective", info, f"more than {32 * need} threads arrive at barrier {ident}",
               "give the barrier the count of all that use it", bad=(arrived > need).any(),
               row=g.rows[0])  # fmt: skip
        go = np.sort(waiting[full[team[waiting]]])
        if (arrived[full] == need).all():
            m.meet(go.reshape(-1, need), need == size)
        else:
            for block in np.flatnonzero(full):
                m.meet(go[team[go] == block][None], False)
        self.parked[ident] = list(self._released(parked, full, team))
        return -1

    def _released(self, parked: list[tuple[Group, OpInfo, int]], full: Any, team: Any) -> Iterator[Any]:
        """Lets warps of full teams go on; gives those that stay."""
        for x, info, n in parked:
            free = full[team[x.rows]]
            if free.any():
                rest = None if free.all() else x.split(free)
                self.m.push(x, x.pc)
                if rest is None:
                    continue
                rest.pc = x.pc
                x = rest
            yield x, info, n
