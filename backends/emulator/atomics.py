"""Closures of ``warp.atom`` and ``warp.red``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir.types import DType
from sparsegen.ir.warp_atomics import Atom, Red

from .access import Access, Results, wide
from .scalars import Step
from .values import operand, pick

if TYPE_CHECKING:
    from .compile import Scope
    from .group import Group

_INT: dict[str, Callable[[int, int], int]] = {
    "add": lambda o, x: o + x, "max": max, "min": min, "exch": lambda o, x: x,
    "inc": lambda o, x: 0 if o >= x else o + 1,
}  # fmt: skip
_FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda o, x: o + x, "max": np.fmax, "min": np.fmin, "exch": lambda o, x: x,
}  # fmt: skip


def step(op: Atom | Red, sc: Scope) -> Step:
    """The closure of an atomic access."""
    buf, info = op.buf, sc.info(op)
    val, is_atom = operand(op.val, buf.dtype, sc.slots), isinstance(op, Atom)
    access = Access(sc, op, 1, "atom" if is_atom else "red", "atomic", patterns=False)
    out = Results(sc, op, buf.dtype) if isinstance(op, Atom) else None

    def atomic(g: Group) -> None:
        m = g.m
        found = access(g)
        if found is None:
            if out is not None:
                out.nothing(g)
            return
        mem, cell, row, lane, sel = found
        if sel is None:
            sel = np.arange(32 * g.n)
            cell, row, lane = (x.reshape(-1) for x in wide(g.n, cell, row, lane))
        if mem.tracked:
            mem.check_atomic(cell, row, lane, mem.stamp(g, sel), info)
        turn = m.shuffle(len(cell))
        if m.run.fences:
            m.other_blocks.atomic(mem, cell[turn], row[turn], lane[turn], acquires=is_atom)
        (v,) = pick(sel[turn], (g.n, 32), val(g.env))
        old = apply(op.op, mem.data, cell[turn], v, buf.dtype)
        if out is not None:
            out.put(g, 0, old, sel[turn])

    return atomic


def apply(name: str, data: Any, cell: Any, v: Any, d: DType) -> Any:
    """Does the atomics one after the other; gives back the old values."""
    old = np.empty(len(cell), dtype=data.dtype)
    if name == "add" and (len(cell) > 256 or not d.is_int) and len(np.unique(cell)) == len(cell):
        old[:] = data[cell]
        data[cell] = (old + v.astype(data.dtype)).astype(data.dtype)
        return old
    one = data.dtype.type
    for k, (c, x) in enumerate(zip(cell.tolist(), v.tolist(), strict=True)):
        old[k] = data[c]
        if d.is_int:
            lo, hi = d.range
            data[c] = (_INT[name](int(data[c]), x) - lo) % (hi - lo + 1) + lo
        else:
            data[c] = _FLOAT[name](data[c], one(x))
    return old
