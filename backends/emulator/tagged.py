"""Closures of the accesses by which blocks hand cells to each other: values and their tag at once.

They race with plain accesses only, and order nothing.  With an odd seed, the first ones that ask for a cell after a
store may still get what it held before; who asks again until the tag is the right one does not notice.  (Not with every
seed: what comes late may hide that a cell was overwritten too early.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir.warp_tagged import LdTagged, StTagged

from .access import Access, Results, wide
from .scalars import Step
from .values import operand, pick

if TYPE_CHECKING:
    from .compile import Scope
    from .globalmem import Global
    from .group import Group

#: How many of those that ask for a cell get what it held before its last store, at most.
LATE = 2

#: (memory, cells, batch row, lane, flat positions of the lanes), of an op's accesses by single lanes.
Found = tuple["Global", Any, Any, Any, Any]


def _accesses(op: LdTagged | StTagged, sc: Scope, name: str, way: str) -> Callable[[Group], Found | None]:
    width = len(op.out) if isinstance(op, LdTagged) else len(op.vals) + 1
    info, access = sc.info(op), Access(sc, op, width, name, way)

    def accesses(g: Group) -> Found | None:
        found = access(g)
        if found is None:
            return None
        mem, cell, row, lane, sel = found
        if sel is None:
            sel = np.arange(32 * g.n)
            cell, row, lane = (x.reshape(-1) for x in wide(g.n, cell, row, lane))
        if mem.tracked:
            stamp = mem.stamp(g, sel)
            for i in range(width):
                mem.check_atomic(cell + i, row, lane, stamp, info)
        return mem, cell, row, lane, sel

    return accesses


def ld(op: LdTagged, sc: Scope) -> Step:
    """The closure of a load of values and their tag."""
    accesses = _accesses(op, sc, "ld.tagged", "read")
    out = Results(sc, op, op.buf.dtype)
    other = None if op.other is None else operand(op.other, op.buf.dtype, sc.slots)

    def ld(g: Group) -> None:
        found = accesses(g)
        if found is None:
            out.nothing(g)
            left(g, np.zeros(0, np.int64))
            return
        mem, cell, _, _, sel = found
        each = [mem.data[cell + i] for i in range(len(op.out))]
        if mem.late is not None:
            g.m.events += _as_before(mem.late, mem.before, cell, each)
        for i, values in enumerate(each):
            out.put(g, i, values, sel)
        left(g, sel)

    def left(g: Group, sel: Any) -> None:
        """The tag of lanes that load nothing."""
        if other is not None:
            slot = out.slots[-1]
            taken = np.zeros(32 * g.n, bool)
            taken[sel] = True
            g.env[slot] = np.where(taken.reshape(g.n, 32), g.env[slot], other(g.env))

    return ld


def _as_before(left: Any, before: Any, cell: Any, each: list[Any]) -> bool:
    """Some get what was there before: whether there are any, who asks again gets another answer."""
    late = np.flatnonzero(left[cell])
    at = cell[late]
    for i, values in enumerate(each):
        values[late] = before[at + i]
    np.subtract.at(left, at, 1)
    np.maximum(left, 0, out=left)
    return bool(len(late))


def st(op: StTagged, sc: Scope) -> Step:
    """The closure of a store of values and their tag."""
    accesses = _accesses(op, sc, "st.tagged", "write")
    vals = [operand(v, op.buf.dtype, sc.slots) for v in (*op.vals, op.tag)]

    def st(g: Group) -> None:
        found = accesses(g)
        if found is None:
            return
        m, (mem, cell, _, _, sel) = g.m, found
        if m.seed % 2:
            if mem.late is None:
                mem.late, mem.before = np.zeros(mem.size, np.int8), mem.data.copy()
            for i in range(len(vals)):
                mem.before[cell + i] = mem.data[cell + i]
            mem.late[cell] = m.rng.randrange(LATE + 1)
        for i, val in enumerate(vals):
            (mem.data[cell + i],) = pick(sel, (g.n, 32), val(g.env))
        m.events += 1

    return st
