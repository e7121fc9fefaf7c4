"""Registers that warpgroups give back to their block, and take from what others gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir import warp_group as wg
from sparsegen.ir.numbers.registers import at_launch

from .memory import OpInfo

if TYPE_CHECKING:
    from .compile import Scope
    from .control import Label
    from .group import Group
    from .machine import Machine


class RegisterPool:
    """Of each block of a batch the registers that are free, for one lane of a warpgroup; who has set theirs already."""

    def __init__(self, m: Machine) -> None:
        self.m, head = m, m.prog.head
        self.own = at_launch(head.threads, head.min_blocks)
        self.free = np.zeros(m.blocks, dtype=np.int64)
        self.set = np.zeros(m.W, dtype=bool)

    def change(self, g: Group, count: int, info: OpInfo) -> Any:
        """Gives ``count`` to warpgroups, those whole in the group; which warps have it: others must wait."""
        m, rows = self.m, g.rows.reshape(-1, wg.WARPS)
        m.find("collective", info, "sets the registers of a warpgroup a second time", "set them once, at the start",
               bad=self.set[rows[:, 0]], row=rows[:, 0])  # fmt: skip
        got = np.zeros(len(rows), dtype=bool)
        for i, block in enumerate(m.lblk[rows[:, 0]].tolist()):
            got[i] = self.free[block] >= count - self.own
            self.free[block] -= (count - self.own) * got[i]
        self.set[rows[got]] = True
        m.events += int(count < self.own)
        return np.repeat(got, wg.WARPS)


def control(op: Any, sc: Scope, here: Label, after: Label) -> Callable[[Group], int]:
    """The control of a warpgroup that gives back registers, or waits for some."""
    info = sc.info(op)

    def run(g: Group) -> int:
        m = g.m
        whole = m.products.meet(g, here.pc, info)
        if whole is None:
            return -1
        m.collective(whole, info)
        got = m.registers.change(whole, op.count, info)
        if got.all():
            return after.pc
        why = f"waits for {op.count - m.registers.own} registers a lane, which no other warpgroup has given back"
        if not got.any():
            m.park(whole, here.pc, info, why)
            return -1
        m.park(whole.split(got), here.pc, info, why)
        return after.pc

    return run
