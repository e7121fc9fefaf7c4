"""Closures of the ops that access memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.expr import Const, Expr
from sparsegen.ir.node import Op
from sparsegen.ir.types import Buffer, DType, u32
from sparsegen.ir.warp_atomics import Atom, Red
from sparsegen.ir.warp_tagged import LdTagged, StTagged

from .clocks import MANY
from .counts import Patterns
from .memory import OpInfo, check_align, dense, locate
from .scalars import Step
from .values import LANES, held, load, number, operand, pick, predicate, spread

if TYPE_CHECKING:
    from .compile import Scope
    from .group import Group


def where_of(x: Expr | None, sc: Scope) -> Callable[[Any], Any] | None:
    """A predicate that is not always true."""
    return None if x is None or (isinstance(x, Const) and x.value) else predicate(x, sc.slots)


def wide(n: int, at: Any, row: Any, lane: Any) -> tuple[Any, Any, Any]:
    """Dense index arrays as [n, 32]."""
    return np.broadcast_to(at, (n, 32)), np.broadcast_to(row, (n, 32)), np.broadcast_to(lane, (n, 32))


class Meter:
    """Counts of one memory op: requests, bytes, wavefronts or sectors."""

    def __init__(self, sc: Scope, op: Op, buf: Buffer, nbytes: int, name: str, way: str, patterns: bool = True) -> None:
        self.buf, self.nbytes = buf, nbytes
        self.k_op = sc.count(name)
        self.k_bytes = sc.count(f"bytes.{buf.space}.{way}")
        self.key = sc.number_of(op, OpInfo(sc.info(op).text, op.loc, buf.name, buf.space)) if patterns else -1

    def __call__(self, g: Group, at: Any, sel: Any) -> None:
        """``at``: dense indices (``sel`` None), or those of the lanes ``sel``."""
        m, n = g.m, g.n
        if sel is None:
            warps, mask = g.warps(), None
            lanes = 32 * warps
        else:
            mask = spread(n, sel, True, False, bool)
            lanes, warps = m.of_blocks(g.rows[sel >> 5]), m.of_blocks(g.rows[mask.any(1)])
        m.cnt[self.k_op] += warps
        m.cnt[self.k_bytes] += lanes * self.nbytes
        if self.key >= 0 and m.patterns:
            ix = at if sel is None else spread(n, sel, at, 0, np.int64)
            known = m.run.patterns.get(self.key)
            if known is None:
                shared = self.buf.space == "shared"
                known = m.run.patterns[self.key] = Patterns(self.buf.dtype.nbytes, self.nbytes, shared=shared)
            cost, ideal = known.add(ix, mask, n)
            met = m.met.setdefault(self.key, np.zeros((2, m.blocks), dtype=np.int64))
            for total, one in zip(met, (cost, ideal), strict=True):  # an array: of each warp
                total += m.of_blocks(g.rows, one) if isinstance(one, np.ndarray) else one * m.of_blocks(g.rows)


class Access:
    """One op's accesses to global or shared memory: counted, within bounds, and aligned if they are wide."""

    def __init__(
        self,
        sc: Scope,
        op: w.Ld | w.St | Atom | Red | LdTagged | StTagged,
        width: int,
        name: str,
        way: str,
        **options: bool,
    ) -> None:
        self.buf = buf = op.buf
        self.width, self.nbytes, self.info = width, width * buf.dtype.nbytes, sc.info(op)
        self.index = number(op.index, sc.slots)
        self.where = where_of(op.where, sc) if isinstance(op, (w.Ld, w.St, LdTagged)) else None
        self.meter = Meter(sc, op, buf, self.nbytes, name, way, **options)

    def __call__(self, g: Group) -> tuple[Any, Any, Any, Any, Any] | None:
        """(memory, cells, batch row, lane, positions): see ``locate``; None if no lane accesses, or nothing is held."""
        buf, m = self.buf, g.m
        found = locate(g, self.index(g.env), self.where, buf.size, self.width, self.info)
        if found is None:
            return None
        at, row, lane, sel = found
        self.meter(g, at, sel)
        if self.width > 1:
            check_align(g, at, row, lane, buf.dtype.nbytes, self.nbytes, m.align(buf), self.info)
        mem = m.memory[buf.name]
        return None if mem.data is None else (mem, mem.cells(at, row), row, lane, sel)


class Results:
    """Where a load puts what its lanes have read: the slots of its results, each within its declared range."""

    def __init__(self, sc: Scope, op: w.Ld | w.LdMatrix | Atom | LdTagged, dtype: DType, other: float = 0) -> None:
        info = sc.info(op)
        self.checks = [sc.promise(v, info) for v in op.out]
        self.slots = [sc.define(v) for v in op.out]
        self.dtype, self.held = dtype, held(dtype)
        self.other = self.held.type(other)

    def nothing(self, g: Group) -> None:
        """No lane has read anything."""
        for slot in self.slots:
            g.env[slot] = self.other

    def put(self, g: Group, k: int, x: Any, sel: Any) -> None:
        """Result ``k``: elements of memory, one for each lane of ``sel`` (None: of all)."""
        v = load(x, self.dtype)
        if sel is not None:
            v = spread(g.n, sel, v, self.other, self.held)
        g.env[self.slots[k]] = v
        if (check := self.checks[k]) is not None:
            check(g, v)


# ------------------------------------------------------------------------------------------------ loads
def ld(op: w.Ld, sc: Scope) -> Step:
    buf, info = op.buf, sc.info(op)
    access = Access(sc, op, len(op.out), f"ld.{buf.space}", "read")
    out = Results(sc, op, buf.dtype, op.other)

    def ld(g: Group) -> None:
        found = access(g)
        if found is None:
            out.nothing(g)
            return
        mem, cell, row, lane, sel = found
        stamp = None
        if mem.tracked and buf.space == "global":
            stamp = mem.stamp(g, sel)
            cell, row, lane = wide(g.n, cell, row, lane) if sel is None else (cell, row, lane)
        for k in range(access.width):
            one = cell + k if k else cell
            if mem.tracked:
                mem.check_read(one, row, lane, stamp, info)
            out.put(g, k, mem.data.take(one), sel)

    return ld


def ld_param(op: w.Ld, sc: Scope) -> Step:
    buf, width, info = op.buf, len(op.out), sc.info(op)
    ix, where = number(op.index, sc.slots), where_of(op.where, sc)
    k_op = sc.count("ld.param")
    out = Results(sc, op, buf.dtype, op.other)

    def ld(g: Group) -> None:
        data, at, sel = g.m.params[buf.name], ix(g.env), None
        g.m.cnt[k_op] += g.warps()
        if type(at) is not int or where is not None or not 0 <= at <= len(data) - width:
            found = locate(g, at, where, len(data), width, info)
            if found is None:
                out.nothing(g)
                return
            at, _, _, sel = found
        for k in range(width):
            out.put(g, k, data[at + k], sel)

    return ld


def ldmatrix(op: w.LdMatrix, sc: Scope) -> Step:
    buf, count, info = op.buf, len(op.out), sc.info(op)
    ix = number(op.index, sc.slots)
    meter = Meter(sc, op, buf, 16, "ldmatrix", "read")
    out = Results(sc, op, u32)
    g8, t4 = np.arange(32) // 4, np.arange(32) % 4
    per = 2 // buf.dtype.nbytes  # elements of the buffer that are one of the matrix
    last, lanes = buf.size - 8 * per, np.arange(32)
    bits = np.dtype(f"u{buf.dtype.nbytes}")

    def ldmatrix(g: Group) -> None:
        m = g.m
        m.collective(g, info)
        a = np.broadcast_to(dense(ix(g.env), g.n), (g.n, 32))
        used = g.full() & (lanes < 8 * count)
        bad = used & ((a < 0) | (a > last))
        m.find("bounds", info, lambda first: f"row address {first(a)} of @{buf.name} is outside 0..{last}",
               f"give the address of a whole row of {8 * per} elements",
               bad=bad, index=a, row=g.col, lane=LANES)  # fmt: skip
        a = np.where(used & ~bad, a, 0)
        sel = np.flatnonzero(used)
        if not len(sel):
            out.nothing(g)
            return
        at = a.reshape(-1)[sel]
        meter(g, at, sel)
        check_align(g, at, g.rows[sel >> 5], sel & 31, buf.dtype.nbytes, 16, m.align(buf), info)
        mem = m.memory[buf.name]
        if mem.data is None:
            out.nothing(g)
            return
        base = mem.cells(0, g.col)
        alive = slice(None) if g.mask is None else g.mask.any(1)
        for j, slot in enumerate(out.slots):
            word: Any = 0
            for k, i in np.ndindex(2, per):
                if op.trans:
                    cell = a.take(8 * j + 2 * t4 + k, axis=1) + (per * g8 + i) + base
                else:
                    cell = a.take(8 * j + g8, axis=1) + (per * (2 * t4 + k) + i) + base
                if mem.tracked:
                    mem.check_read(cell[alive], g.col[alive], np.full((1, 1), MANY), None, info)
                part = mem.data.take(cell).view(bits).astype(np.int64)
                word = word | (part << (16 * k + 8 * i))
            g.env[slot] = word

    return ldmatrix


# ------------------------------------------------------------------------------------------------ stores
def st(op: w.St, sc: Scope) -> Step:
    buf, info = op.buf, sc.info(op)
    access = Access(sc, op, len(op.vals), f"st.{buf.space}", "write")
    vals = [operand(v, buf.dtype, sc.slots) for v in op.vals]

    def st(g: Group) -> None:
        found = access(g)
        if found is None:
            return
        mem, cell, row, lane, sel = found
        if sel is None:
            cell, row, lane = wide(g.n, cell, row, lane)
        stamp = mem.stamp(g, sel) if mem.tracked else None
        for k, val in enumerate(vals):
            one = cell + k if k else cell
            if mem.tracked:
                mem.check_write(one, row, lane, stamp, info)
            v = val(g.env)
            if sel is not None and isinstance(v, np.ndarray):
                (v,) = pick(sel, (g.n, 32), v)
            mem.data[one] = v

    return st


def cp_async(op: w.CpAsync, sc: Scope) -> Step:
    dst, src, count, info = op.dst, op.src, op.count, sc.info(op)
    nbytes = count * dst.dtype.nbytes
    to, frm, where = number(op.dst_index, sc.slots), number(op.src_index, sc.slots), where_of(op.where, sc)
    src_info = OpInfo(info.text, info.loc, src.name, "global")
    m_src = Meter(sc, op, src, nbytes, "cp_async", "read")
    m_dst = Meter(sc, op, dst, nbytes, "cp_async.shared", "write")

    def cp_async(g: Group) -> None:
        m, e = g.m, g.env
        got = locate(g, frm(e), where, src.size, count, src_info)
        put = locate(g, to(e), where, dst.size, count, info)
        if got is None or put is None:
            return
        (a, arow, alane, asel), (b, brow, blane, bsel) = got, put
        if asel is None and bsel is None:
            sel = np.arange(32 * g.n)
            a, row, lane = (x.reshape(-1) for x in wide(g.n, a, arow, alane))
            b = wide(g.n, b, brow, blane)[0].reshape(-1)
        else:
            full = np.arange(32 * g.n)
            asel, bsel = full if asel is None else asel, full if bsel is None else bsel
            sel = np.intersect1d(asel, bsel, assume_unique=True)
            a, b = (pick(sel, (g.n, 32), x)[0] if x.ndim == 2 else x[np.searchsorted(known, sel)]
                    for x, known in ((a, asel), (b, bsel)))  # fmt: skip
            row, lane = g.rows[sel >> 5], sel & 31
        m_src(g, a, sel)
        m_dst(g, b, sel)
        size = src.dtype.nbytes
        check_align(g, a, row, lane, size, nbytes, m.align(src), src_info)
        check_align(g, b, row, lane, size, nbytes, m.align(dst), info)
        cells = m.memory[dst.name].cells(b, row)[:, None] + np.arange(count)
        read = a[:, None] + np.arange(count)
        m.copies.start(g, dst, src, cells, read, row, lane, sel, info, src_info)

    return cp_async
