"""Closures of the ops that access memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError
from sparsegen.ir.expr import Const, Expr
from sparsegen.ir.node import Op
from sparsegen.ir.types import Buffer, widths

from .memory import OpInfo, check_align, dense, locate
from .scalars import Step
from .values import held, load, number, operand, predicate

if TYPE_CHECKING:
    from .compile import Scope
    from .group import Group


def step(op: Op, sc: Scope) -> Step | None:
    """The closure of an access to global, shared or parameter memory (None if the op is none)."""
    if isinstance(op, w.Ld) and op.buf.space != "reg":
        return _ld_param(op, sc) if op.buf.space == "param" else _ld(op, sc)
    if isinstance(op, w.St) and op.buf.space != "reg":
        return _st(op, sc)
    if isinstance(op, w.CpAsync):
        return _cp_async(op, sc)
    return _ldmatrix(op, sc) if isinstance(op, w.LdMatrix) else None


def where_of(x: Expr | None, sc: Scope) -> Callable[[Any], Any] | None:
    """A predicate that is not always true."""
    return None if x is None or (isinstance(x, Const) and x.value) else predicate(x, sc.slots)


def _check_width(op: Op, buf: Buffer, width: int, name: str) -> int:
    nbytes = width * buf.dtype.nbytes
    if width not in widths(buf.dtype):
        raise IRError(f"{name} of {width} elements of {buf.dtype} ({nbytes} bytes)", loc=op.loc,
                      hint="1, 2 or 4 elements (of 16 bits also 8), 16 bytes at most")  # fmt: skip
    return nbytes


def wide(n: int, at: Any, row: Any, lane: Any) -> tuple[Any, Any, Any]:
    """Dense index arrays as [n, 32]."""
    return np.broadcast_to(at, (n, 32)), np.broadcast_to(row, (n, 32)), np.broadcast_to(lane, (n, 32))


class Meter:
    """Counts of one memory op: requests, bytes, wavefronts or sectors."""

    def __init__(self, sc: Scope, op: Op, buf: Buffer, nbytes: int, name: str, way: str, patterns: bool = True) -> None:
        self.space, self.itemsize, self.nbytes, self.name = buf.space, buf.dtype.nbytes, nbytes, buf.name
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
            mask, rows = np.zeros((n, 32), dtype=bool), g.rows[sel >> 5]
            mask.reshape(-1)[sel] = True
            lanes, warps = m.of_blocks(rows), m.of_blocks(g.rows[mask.any(1)])
        m.cnt[self.k_op] += warps
        m.cnt[self.k_bytes] += lanes * self.nbytes
        if self.key >= 0 and m.patterns:
            ix = at
            if sel is not None:
                ix = np.zeros((n, 32), dtype=np.int64)
                ix.reshape(-1)[sel] = at
            cost, ideal = m.run.pattern(self.key, self).add(ix, mask, n)
            met = m.met.setdefault(self.key, np.zeros((2, m.blocks), dtype=np.int64))
            for total, one in zip(met, (cost, ideal), strict=True):  # an array: of each warp
                total += m.of_blocks(g.rows, one) if isinstance(one, np.ndarray) else one * m.of_blocks(g.rows)


# ------------------------------------------------------------------------------------------------ loads
def _ld(op: w.Ld, sc: Scope) -> Step:
    buf, width, info = op.buf, len(op.out), sc.info(op)
    nbytes = _check_width(op, buf, width, "warp.ld")
    ix, where = number(op.index, sc.slots), where_of(op.where, sc)
    meter = Meter(sc, op, buf, nbytes, f"ld.{buf.space}", "read")
    checks = [sc.promise(v, info) for v in op.out]
    slots = [sc.define(v) for v in op.out]
    d, size, shared = buf.dtype, buf.size, buf.space == "shared"
    npt = held(d)
    other = npt.type(op.other)

    def ld(g: Group) -> None:
        m, e = g.m, g.env
        found = locate(g, ix(e), where, size, width, info)
        if found is None:
            for k in slots:
                e[k] = other
            return
        at, row, lane, sel = found
        meter(g, at, sel)
        if width > 1:
            check_align(g, at, row, lane, d.nbytes, nbytes, m.align(buf), info)
        mem: Any = m.shared[buf.name] if shared else m.globals[buf.name]
        if mem.data is None:
            for k in slots:
                e[k] = other
            return
        tracked, stamp = mem.tracked, None
        if shared:
            at = at + m.lblk[row] * size
        elif tracked:
            stamp = m.far_stamp(g, sel)
            if sel is None:
                at, row, lane = wide(g.n, at, row, lane)
        for k, slot in enumerate(slots):
            cell = at + k if k else at
            if tracked:
                if shared:
                    mem.check_read(cell, row, lane, info)
                else:
                    mem.check_read(m, cell, row, lane, stamp, info)
            v = load(mem.data.take(cell), d)
            if sel is not None:
                out = np.full((g.n, 32), other, dtype=npt)
                out.reshape(-1)[sel] = v
                v = out
            e[slot] = v
            if (check := checks[k]) is not None:
                check(g, v)

    return ld


def _ld_param(op: w.Ld, sc: Scope) -> Step:
    buf, width, info = op.buf, len(op.out), sc.info(op)
    ix, where = number(op.index, sc.slots), where_of(op.where, sc)
    k_op = sc.count("ld.param")
    checks = [sc.promise(v, info) for v in op.out]
    slots = [sc.define(v) for v in op.out]
    d = buf.dtype
    other = held(d).type(op.other)

    def ld(g: Group) -> None:
        e, data = g.env, g.m.params[buf.name]
        i = ix(e)
        g.m.cnt[k_op] += g.warps()
        if type(i) is int and where is None and 0 <= i <= len(data) - width:
            for k, slot in enumerate(slots):
                e[slot] = v = load(data[i + k], d)
                if (c := checks[k]) is not None:
                    c(g, v)
            return
        found = locate(g, i, where, len(data), width, info)
        for k, slot in enumerate(slots):
            if found is None:
                e[slot] = other
                continue
            at, _, _, sel = found
            v = load(data.take(at + k), d)
            if sel is not None:
                out = np.full((g.n, 32), other, dtype=held(d))
                out.reshape(-1)[sel] = v
                v = out
            e[slot] = v
            if (c := checks[k]) is not None:
                c(g, v)

    return ld


def _ldmatrix(op: w.LdMatrix, sc: Scope) -> Step:
    buf, count, info = op.buf, len(op.out), sc.info(op)
    if buf.space != "shared" or buf.dtype.bits != 16 or count not in (1, 2, 4):
        raise IRError(f"ldmatrix of {count} matrices from @{buf.name} ({buf.space}, {buf.dtype})", loc=op.loc,
                      hint="1, 2 or 4 matrices of 16-bit elements in shared memory")  # fmt: skip
    ix = number(op.index, sc.slots)
    meter = Meter(sc, op, buf, 16, "ldmatrix", "read")
    slots = [sc.define(v) for v in op.out]
    g8, t4 = np.arange(32) // 4, np.arange(32) % 4
    size, lanes = buf.size, np.arange(32)

    def ldmatrix(g: Group) -> None:
        m, e = g.m, g.env
        m.collective(g, info)
        a = np.broadcast_to(dense(ix(e), g.n), (g.n, 32))
        used = g.full() & (lanes < 8 * count)
        bad = used & ((a < 0) | (a > size - 8))
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            m.find("bounds", info, f"row address {int(a.reshape(-1)[k])} of @{buf.name} is outside 0..{size - 8}",
                   "give the address of a whole row of 8 elements", index=int(a.reshape(-1)[k]),
                   row=int(g.rows[k >> 5]), lane=k & 31)  # fmt: skip
        a = np.where(used & ~bad, a, 0)
        sel = np.flatnonzero(used)
        if not len(sel):
            for slot in slots:
                e[slot] = 0
            return
        at = a.reshape(-1)[sel]
        meter(g, at, sel)
        check_align(g, at, g.rows[sel >> 5], sel & 31, 2, 16, m.align(buf), info)
        mem = m.shared[buf.name]
        if mem.data is None:
            for slot in slots:
                e[slot] = 0
            return
        base = mem.base(g)
        alive = None if g.mask is None else g.mask.any(1)
        for j, slot in enumerate(slots):
            word: Any = 0
            for k in (0, 1):
                if op.trans:
                    cell = a.take(8 * j + 2 * t4 + k, axis=1) + g8 + base
                else:
                    cell = a.take(8 * j + g8, axis=1) + (2 * t4 + k) + base
                if mem.tracked:
                    if alive is None:
                        mem.check_read(cell, g.col, np.full((1, 1), 32), info)
                    else:
                        mem.check_read(cell[alive], g.col[alive], np.full((1, 1), 32), info)
                half = mem.data.take(cell)
                word = word | (half.view(np.uint16).astype(np.int64) << (16 * k))
            e[slot] = word

    return ldmatrix


# ------------------------------------------------------------------------------------------------ stores
def _st(op: w.St, sc: Scope) -> Step:
    buf, width, info = op.buf, len(op.vals), sc.info(op)
    if buf.space == "param":
        raise IRError(f"@{buf.name} is a parameter passed by value: it cannot be written", loc=op.loc)
    nbytes = _check_width(op, buf, width, "warp.st")
    ix, where = number(op.index, sc.slots), where_of(op.where, sc)
    meter = Meter(sc, op, buf, nbytes, f"st.{buf.space}", "write")
    vals = [operand(v, buf.dtype, sc.slots) for v in op.vals]
    size, shared = buf.size, buf.space == "shared"

    def st(g: Group) -> None:
        m, e = g.m, g.env
        found = locate(g, ix(e), where, size, width, info)
        if found is None:
            return
        at, row, lane, sel = found
        meter(g, at, sel)
        if width > 1:
            check_align(g, at, row, lane, buf.dtype.nbytes, nbytes, m.align(buf), info)
        mem: Any = m.shared[buf.name] if shared else m.globals[buf.name]
        if mem.data is None:
            return
        if shared:
            at = at + m.lblk[row] * size
        if sel is None:
            at, row, lane = wide(g.n, at, row, lane)
        stamp = None
        if mem.tracked:
            stamp = (g.stamp() if sel is None else g.stamp().reshape(-1)[sel]) if shared else m.far_stamp(g, sel)
        for k, val in enumerate(vals):
            cell = at + k if k else at
            if mem.tracked:
                if shared:
                    mem.check_write(cell, row, lane, stamp, info)
                else:
                    mem.check_write(m, cell, row, lane, stamp, info)
            v = val(e)
            if sel is not None and isinstance(v, np.ndarray):
                v = np.broadcast_to(v, (g.n, 32)).reshape(-1)[sel]
            mem.data[cell] = v

    return st


def _cp_async(op: w.CpAsync, sc: Scope) -> Step:
    dst, src, count, info = op.dst, op.src, op.count, sc.info(op)
    nbytes = count * dst.dtype.nbytes
    if nbytes not in (4, 8, 16) or dst.dtype != src.dtype or dst.space != "shared" or src.space != "global":
        raise IRError(f"cp_async of {count} elements of {src.dtype} ({nbytes} bytes) from {src.space} to {dst.space}",
                      loc=op.loc, hint="copy 4, 8 or 16 bytes from global to shared memory, of one type")  # fmt: skip
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
            a = np.broadcast_to(a, (g.n, 32)).reshape(-1)[sel] if a.ndim == 2 else a[np.searchsorted(asel, sel)]
            b = np.broadcast_to(b, (g.n, 32)).reshape(-1)[sel] if b.ndim == 2 else b[np.searchsorted(bsel, sel)]
            row, lane = g.rows[sel >> 5], sel & 31
        m_src(g, a, sel)
        m_dst(g, b, sel)
        size = src.dtype.nbytes
        check_align(g, a, row, lane, size, nbytes, m.align(src), src_info)
        check_align(g, b, row, lane, size, nbytes, m.align(dst), info)
        cells = (b + m.lblk[row] * dst.size)[:, None] + np.arange(count)
        read = a[:, None] + np.arange(count)
        m.copies.start(g, dst, src, cells, read, row, lane, sel, info, src_info)

    return cp_async
