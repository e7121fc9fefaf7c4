"""Closures of loads and stores of register arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir import warp as w

from .access import where_of
from .memory import OpInfo, locate
from .scalars import Step
from .values import LANES, held, number, operand, spread

if TYPE_CHECKING:
    from .compile import Scope
    from .group import Group, RegArray


def _reg_index(g: Group, i: Any, size: int, info: OpInfo, width: int) -> Any:
    """A register index: an int where all lanes agree, else an array within bounds."""
    if type(i) is int:
        if 0 <= i <= size - width:
            return i
    found = locate(g, i, None, size, width, info)
    if found is None:
        return None
    at, _, _, sel = found
    if sel is None and at.size == 1:
        return int(at.reshape(-1)[0])
    if sel is not None and (at == at[0]).all() and len(at) == g.lanes:
        return int(at[0])
    return spread(g.n, sel, at, 0, np.int64)


def load(op: w.Ld, sc: Scope) -> Step:
    """The closure of a load from a register array."""
    arr, info, width, size = sc.regs[op.buf.name], sc.info(op), len(op.out), op.buf.size
    ix, where = number(op.index, sc.slots), where_of(op.where, sc)
    checks = [sc.promise(v, info) for v in op.out]
    slots = [sc.define(v) for v in op.out]
    d, name = op.buf.dtype, op.buf.name
    other = held(d).type(op.other)

    def bad(g: Group, i: int, hit: Any) -> None:
        g.m.find("uninit", info, f"read of register @{name}[{i}] that nothing has written",
                 "initialise the register array before it is read", bad=hit, index=i, row=g.col,
                 lane=LANES)  # fmt: skip

    def one(g: Group, r: RegArray, i: int, hit: Any = None) -> Any:
        """Element ``i``, which the lanes of ``hit`` (None: all active ones) read."""
        v, some = r.elems[i], r.some.get(i)
        if v is None:
            bad(g, i, g.full() if hit is None else hit)
            return held(d).type(0)
        if some is not None and (miss := (g.full() if hit is None else hit) & ~some).any():
            bad(g, i, miss)
        return v

    def ld(g: Group) -> None:
        e = g.env
        r = e[arr]
        i = ix(e)
        if where is not None or type(i) is not int or not 0 <= i <= size - width:
            slow(g, r, i)
            return
        for k, slot in enumerate(slots):
            e[slot] = v = one(g, r, i + k)
            if (c := checks[k]) is not None:
                c(g, v)

    def slow(g: Group, r: RegArray, i: Any) -> None:
        i = _reg_index(g, i, size, info, width)
        p = np.asarray(where(g.env)) if where is not None else None
        for k, slot in enumerate(slots):
            if i is None:
                v: Any = other
            elif type(i) is int:
                v = one(g, r, i + k)
            else:
                v = np.full((g.n, 32), other, dtype=held(d))
                for j in np.unique(i).tolist():
                    hit = (i == j) & g.full()
                    if hit.any():
                        v[hit] = np.broadcast_to(np.asarray(one(g, r, j + k, hit)), (g.n, 32))[hit]
            if p is not None:
                v = np.where(p, v, other)
            g.env[slot] = v

    return ld


def store(op: w.St, sc: Scope) -> Step:
    """The closure of a store to a register array."""
    arr, info, width, size, d = sc.regs[op.buf.name], sc.info(op), len(op.vals), op.buf.size, op.buf.dtype
    ix, where = number(op.index, sc.slots), where_of(op.where, sc)
    vals = [operand(v, d, sc.slots) for v in op.vals]

    def put(g: Group, r: RegArray, i: int, v: Any, mask: Any) -> None:
        if mask is None:
            r.elems[i] = v
            r.some.pop(i, None)
            return
        old = r.elems[i]
        if old is None:
            r.elems[i], r.some[i] = np.where(mask, v, held(d).type(0)), mask
            return
        r.elems[i] = np.where(mask, v, old)
        if i in r.some:
            r.some[i] = r.some[i] | mask

    def st(g: Group) -> None:
        e = g.env
        r, i, mask = e[arr], ix(e), g.mask
        if where is not None:
            p = where(e)
            if isinstance(p, np.ndarray):
                mask = np.broadcast_to(p, (g.n, 32)) if mask is None else mask & p
            elif not p:
                return
        if type(i) is not int or not 0 <= i <= size - width:
            i = _reg_index(g, i, size, info, width)
            if i is None:
                return
        for k, val in enumerate(vals):
            v = val(e)
            if type(i) is int:
                put(g, r, i + k, v, mask)
            else:
                for j in np.unique(i).tolist():
                    put(g, r, j + k, v, (i == j) & (g.full() if mask is None else mask))

    return st
