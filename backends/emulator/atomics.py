"""Closures of ``warp.atom`` and ``warp.red``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError
from sparsegen.ir.types import DType

from .access import Meter, wide
from .memory import locate
from .scalars import Step
from .values import held, load, number, operand

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


def step(op: w.Atom | w.Red, sc: Scope) -> Step:
    """The closure of an atomic access."""
    buf, info = op.buf, sc.info(op)
    if isinstance(op, w.Red) and op.op != "add":
        raise IRError(f"warp.red {op.op}: only add is defined", loc=op.loc)
    if op.op not in (_INT if buf.dtype.is_int else _FLOAT):
        raise IRError(f"warp.atom {op.op} is not defined for {buf.dtype}", loc=op.loc)
    ix, val = number(op.index, sc.slots), operand(op.val, buf.dtype, sc.slots)
    meter = Meter(sc, op, buf, buf.dtype.nbytes, "atom" if isinstance(op, w.Atom) else "red", "atomic", patterns=False)
    slot = sc.define(op.out[0]) if isinstance(op, w.Atom) else None
    check = sc.promise(op.out[0], info) if isinstance(op, w.Atom) else None
    d, size, shared, name = buf.dtype, buf.size, buf.space == "shared", op.op

    def atomic(g: Group) -> None:
        m, e = g.m, g.env
        found = locate(g, ix(e), None, size, 1, info)
        if found is None:
            if slot is not None:
                e[slot] = 0
            return
        at, row, lane, sel = found
        meter(g, at, sel)
        mem: Any = m.shared[buf.name] if shared else m.globals[buf.name]
        at, row, lane = (x.reshape(-1) for x in wide(g.n, at, row, lane)) if sel is None else (at, row, lane)
        cell = at + m.lblk[row] * size if shared else at
        pos = np.arange(32 * g.n) if sel is None else sel
        if mem.tracked:
            if shared:
                mem.check_atomic(cell, row, lane, g.stamp().reshape(-1)[pos], info)
            else:
                mem.check_atomic(m, cell, row, lane, m.far_stamp(g, pos), info)
        turn = m.shuffle(len(cell))
        if not shared and m.run.fences:
            m.far.atomic(mem, cell[turn], row[turn], lane[turn], acquires=slot is not None)
        v = np.broadcast_to(np.asarray(val(e)), (g.n, 32)).reshape(-1)[pos]
        old = apply(name, mem.data, cell[turn], v[turn], d)
        if slot is not None:
            out = np.zeros((g.n, 32), dtype=held(d))
            flat = out.reshape(-1)
            flat[pos[turn]] = load(old, d)
            e[slot] = out
            if check:
                check(g, out)

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
