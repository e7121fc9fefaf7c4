"""Closures of the ops that order threads: barriers, fences, mbarriers, waits for asynchronous copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir import warp as w

from .clocks import MANY
from .memory import OpInfo, locate
from .scalars import Step
from .values import number, spread

if TYPE_CHECKING:
    from .compile import Scope
    from .control import Label
    from .group import Group
    from .mbarrier import Bars


def leave(g: Group) -> int:
    """The end of the program."""
    g.m.leave(g)
    return -1


def sync(op: w.SyncWarp, sc: Scope) -> Step:
    info = sc.info(op)

    def sync(g: Group) -> None:
        g.m.collective(g, info, all_there_are=True)
        g.m.sync(g.active_rows())

    return sync


def barrier(op: w.Barrier, sc: Scope, after: Label) -> Callable[[Group], int]:
    """The control of a block barrier or a named one."""
    info, ident, count = sc.info(op), op.id, op.count

    def arrive(g: Group) -> int:
        g.m.collective(g, info, all_there_are=True)
        return g.m.barriers.arrive(g, ident, count // 32, after.pc, info)

    return arrive


def fence(op: w.Fence, sc: Scope) -> Step:
    if op.scope in ("gpu", "block"):
        everywhere = op.scope == "gpu"
        return lambda g: g.m.other_blocks.fence(g, everywhere=everywhere) if g.m.run.fences else None
    is_async = op.scope == "async"

    def fence(g: Group) -> None:
        m = g.m
        for bars in m.bars.values():
            bars.fence(g)
        if is_async:
            some = g.full().any(1)
            m.clk.async_fence(g.rows[some], g.full()[some])

    return fence


# ------------------------------------------------------------------------------------------------ mbarriers
def _each(g: Group, bars: Bars, ix: Any, info: OpInfo) -> Iterator[tuple[Any, Any, Any]]:
    """(batch rows, lane masks, cells): for each warp one mbarrier at a time, and the lanes that name it."""
    found = locate(g, ix, None, bars.size, 1, info)
    if found is None:
        return
    at, _, _, sel = found
    if sel is None and at.shape[1] == 1:
        cells = np.broadcast_to(at, (g.n, 1))[:, 0] + g.m.lblk[g.rows] * bars.size
        bars.used(cells, g.rows, np.full(g.n, MANY), info)
        yield g.rows, np.ones((g.n, 32), dtype=bool), cells
        return
    full = spread(g.n, sel, at, -1, np.int64)
    pos = np.flatnonzero(full >= 0)
    bars.used(full.reshape(-1)[pos] + g.m.lblk[g.rows[pos >> 5]] * bars.size, g.rows[pos >> 5], pos & 31, info)
    for j in np.unique(full[full >= 0]).tolist():
        mask = full == j
        some = mask.any(1)
        rows = g.rows[some]
        yield rows, mask[some], j + g.m.lblk[rows] * bars.size


def mbar_init(op: w.MbarInit, sc: Scope) -> Step:
    ix, info, name, count = number(op.index, sc.slots), sc.info(op), op.bars.name, op.count

    def init(g: Group) -> None:
        m = g.m
        bars = m.bars[name]
        found = locate(g, ix(g.env), None, bars.size, 1, info)
        if found is None:
            return
        at, row, lane, sel = found
        shape = (g.n, 32) if sel is None else (len(sel),)
        at, row, lane = (np.broadcast_to(x, shape) for x in (at, row, lane))
        stamp = g.stamp() if sel is None else g.stamp().reshape(-1)[sel]
        bars.init(at + m.lblk[row] * bars.size, row, lane, stamp, count, info)

    return init


def mbar_arrive(op: w.MbarArrive, sc: Scope) -> Step:
    ix, info, name = number(op.index, sc.slots), sc.info(op), op.bars.name
    expect = number(op.expect, sc.slots) if op.expect is not None else None

    def arrive(g: Group) -> None:
        bars = g.m.bars[name]
        extra = np.broadcast_to(np.asarray(expect(g.env)), (g.n, 32)) if expect is not None else None
        where = np.zeros(g.m.W, dtype=np.int64)
        where[g.rows] = np.arange(g.n)
        for rows, mask, cells in _each(g, bars, ix(g.env), info):
            tx = None if extra is None else np.where(mask, extra[where[rows]], 0).sum(1)
            bars.arrive(rows, mask, cells, tx, info)

    return arrive


def cp_arrive(op: w.CpArrive, sc: Scope) -> Step:
    ix, info, name = number(op.index, sc.slots), sc.info(op), op.bars.name

    def arrive(g: Group) -> None:
        bars = g.m.bars[name]
        for rows, mask, cells in _each(g, bars, ix(g.env), info):
            g.m.bulk.arrive(bars, rows, mask, cells, info)

    return arrive


def try_wait(op: w.MbarTryWait, sc: Scope, here: Label, after: Label) -> Callable[[Group], int]:
    """The control of a try_wait: gives false once, then blocks the warp until its phase is complete."""
    ix, par, info, name = number(op.index, sc.slots), number(op.parity, sc.slots), sc.info(op), op.bars.name
    key, k_op, slot = sc.number_of(op, info), sc.count("mbar_try_wait"), sc.define(op.out[0])

    def wait(g: Group) -> int:
        m = g.m
        bars = m.bars[name]
        parity = np.broadcast_to(np.asarray(par(g.env)), (g.n, 32))
        i = ix(g.env)
        cells = np.broadcast_to(np.asarray(i), (g.n, 32)) + m.lblk[g.rows][:, None] * bars.size
        used = list(_each(g, bars, i, info))
        inside = (cells >= 0) & (cells < len(bars.phase))
        open_ = inside & ((bars.phase[np.where(inside, cells, 0)] & 1) == (parity & 1)) & g.full()
        blocked = open_.any(1)
        if not blocked.any():
            m.cnt[k_op] += g.warps()
            bars.acquire(used, info, op.cluster)
            g.env[slot] = True
            return after.pc
        tried = m.tried.setdefault(key, np.zeros(m.W, dtype=bool))
        again = blocked & tried[g.rows]
        if again.all():
            tried[g.rows] = True
            m.park(g, here.pc, info, "waits for a phase of " + _bar_text(bars, cells, open_))
            return -1
        if again.any():
            rest = g.split(~again)
            m.park(rest, here.pc, info, "waits for a phase of " + _bar_text(bars, cells[again], open_[again]))
            return here.pc
        tried[g.rows[blocked]] = True
        passed = g.rows[~blocked]
        if len(passed):
            m.cnt[k_op] += m.of_blocks(passed)
            ok = np.zeros(m.W, dtype=bool)
            ok[passed] = True
            bars.acquire([(r[ok[r]], k[ok[r]], c[ok[r]]) for r, k, c in used], info, op.cluster)
        g.env[slot] = ~blocked[:, None]
        return after.pc

    return wait


def _bar_text(bars: Bars, cells: Any, open_: Any) -> str:
    k = int(cells[open_][0])
    return (f"@{bars.name}[{k % bars.size}] (phase {int(bars.phase[k])}: {int(bars.pending[k])} arrivals and "
            f"{int(bars.tx[k])} bytes are missing)")  # fmt: skip
