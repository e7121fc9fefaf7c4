"""Small hand-built warp programs that hold every op of the vocabulary in every form that prints differently."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from sparsegen.ir import warp as w
from sparsegen.ir import warp_cluster as wc
from sparsegen.ir import warp_group as wg
from sparsegen.ir.builder import Builder
from sparsegen.ir.errors import Loc
from sparsegen.ir.expr import Const, Expr, Value, select
from sparsegen.ir.fragments import SHAPES, SPARSE, signature
from sparsegen.ir.module import Module
from sparsegen.ir.swizzle import k_major, mn_major
from sparsegen.ir.tensor_copy import TensorCopy, TensorMap
from sparsegen.ir.types import (
    DTYPES,
    Buffer,
    DType,
    bf16,
    f16,
    f32,
    f64,
    pred,
    s8,
    s32,
    s64,
    tf32,
    u8,
    u16,
    u32,
    u64,
    widths,
)
from sparsegen.ir.warp_matrix import MovMatrix
from sparsegen.ir.warp_pairs import AddF16x2, WidenE4m3

GRID, THREADS = (4, 3, 2), 128
BOX = TensorMap(rows=100, cols=37, pitch=40, box=(8, 32), swizzle=64)
STORED = (f64, f32, f16, bf16, s32, u32, s64, u64, s8, u8, u16)


class Kernel:
    """A builder with the function's buffers around it."""

    def __init__(self, symbol: str, cluster: int = 1) -> None:
        self.b = Builder(Loc("folder/heat2d.py", 12))
        self.symbol, self.params, self.shared = symbol, list[Buffer | Value](), list[Buffer]()
        self.cluster = cluster
        self.at = w.Func(symbol, (), (), GRID, THREADS, (), cluster=cluster).builtins()
        self.b.reserve(*self.at)
        self.stored = 0

    def array(self, name: str, dtype: DType, size: int = 2**17, space: str = "global", align: int = 16) -> Buffer:
        self.b.reserve(name)
        buf = Buffer(name, dtype, size, space, align)  # type: ignore[arg-type]
        (self.shared if space == "shared" else self.params).append(buf)
        return buf

    def func(self) -> w.Func:
        names = self.symbol, tuple(self.params), tuple(self.shared)
        return w.Func(*names, GRID, THREADS, self.b.ops(), 2, cluster=self.cluster)

    def sink(self, *vals: Value) -> None:
        """Stores values, each in a place of its own, so that nvcc keeps what they come from."""
        for v in vals:
            name = f"out_{v.dtype}"
            if v.dtype is pred:
                v = self.b.select(v, self.b.const(f64, 1.0), self.b.const(f64, 0.0))
                name = "out_f64"
            found = next((p for p in self.params if isinstance(p, Buffer) and p.name == name), None)
            self.stored += 1
            self.b.st(found or self.array(name, v.dtype), self.at["tid"] + THREADS * self.stored, v)


def control() -> w.Func:
    k = Kernel("control")
    b, tid = k.b, k.at["tid"]
    n = Value("n", s32, 0, 1000)
    k.params.append(n)
    u = k.array("u", f64)
    for unroll in (None, 0, 1, 4):
        with b.for_("i", 0, 8, unroll=unroll) as i:
            k.sink(b.ld(u, i))
    with b.for_("j", tid, n, THREADS) as j, b.if_(j.lt(100)):
        k.sink(b.ld(u, j))
    with b.loop():
        x = b.ld(u, tid, hint="x")
        with b.if_(tid.lt(5)):
            b.break_if(tid.eq(3))
        with b.else_():
            k.sink(x)
        b.break_if(tid.gt(70))
    b.let("where", (tid % 8).lt(n // 3))
    e = b.let("at", select(tid.lt(64), tid * 100000 * 100000, k.at["bx"] + k.at["by"] * 7 + k.at["bz"] - k.at["lane"]))
    b.loc = Loc("folder/heat2d.py", 13)
    with b.if_(e.eq(k.at["warp"])):
        k.sink(b.const(f64, 0.1))
    return k.func()


def scalars() -> w.Func:
    k = Kernel("scalars")
    b, tid = k.b, k.at["tid"]
    v = {t.name: b.ld(k.array(f"in_{t}", t), tid, hint=f"x_{t}") for t in STORED}
    p = b.fresh("p", pred)
    b.emit(w.Let((p,), tid.lt(9)))
    for t in (f64, f32, f16, bf16):
        k.sink(*(b.const(t, c) for c in (0.1, -2.0, 1e-7, float("inf"), float("nan"))))
        k.sink(*(b.unary(op, v[t.name]) for op in ("neg", "abs", "sqrt")))
        k.sink(*(b.binary(op, v[t.name], v[t.name]) for op in ("add", "sub", "mul", "div", "min", "max")))
        k.sink(b.fma(v[t.name], v[t.name], v[t.name]), b.select(p, v[t.name], b.const(t, 1.0)))
        k.sink(*(b.compare(op, v[t.name], b.const(t, 0.5)) for op in ("lt", "le", "eq", "ne")))
        if t in (f64, f32):
            k.sink(*(b.quotient(v[t.name], by) for by in (3.0, -0.1)))
            k.sink(*(b.unary(op, v[t.name]) for op in ("exp", "log", "sin", "cos", "tanh")))
            k.sink(b.binary("pow", v[t.name], v[t.name]))
    for t in (s32, u32, s64, u64, s8, u8, u16):
        k.sink(*(b.unary(op, v[t.name]) for op in ("neg", "abs", "not", "popc", "clz", "brev")))
        ops = ("add", "sub", "mul", "div", "min", "max", "and", "or", "xor", "shl", "shr")
        k.sink(*(b.binary(op, v[t.name], v[t.name]) for op in ops), b.binary("add", v[t.name], 3))
        k.sink(b.binary("mul", 2 * tid + 1, v[t.name], dtype=t))
    q = b.unary("not", p)
    k.sink(q, b.binary("and", p, q), b.binary("xor", p, q))
    return k.func()


def conversions() -> w.Func:
    k = Kernel("conversions")
    b, tid = k.b, k.at["tid"]
    v = {t.name: b.ld(k.array(f"in_{t}", t), tid, hint=f"x_{t}") for t in STORED}
    for a in v.values():
        k.sink(*(b.convert(a, t) for t in (*STORED, pred)))
        k.sink(*(b.bitcast(a, t) for t in STORED if t.bits == a.dtype.bits))
    t32 = b.convert(v["f32"], tf32)
    k.sink(b.bitcast(t32, f32), b.bitcast(t32, u32), b.convert(t32, f64), b.convert(v["f64"], tf32))
    k.sink(b.bitcast(v["f16"], DTYPES["s16"]))
    return k.func()


def bits() -> w.Func:
    k = Kernel("bits")
    b, tid = k.b, k.at["tid"]
    x, y = (b.ld(k.array(f"in_{n}", u32), tid, hint=n) for n in "xy")
    s = b.bitcast(x, s32)
    h, i = (b.ld(k.array(f"in_{t}", t), tid) for t in (f16, u16))
    out: Callable[[DType], tuple[Value]] = lambda t: (b.fresh("r", t),)  # noqa: E731
    z: list[Expr] = [x & 0x11111111, y]
    ops = [MovMatrix(out(u32), x),
           w.Prmt(out(u32), x, y, Const(0x5140)), w.Prmt(out(u32), x, y, z[0] * 2), w.Funnel(out(u32), x, y, tid * 4),
           w.Dp4a(out(u32), x, y, Const(0)), w.Dp4a(out(s32), s, x, s), w.Pack(out(u32), h, h), w.Pack(out(u32), i, i),
           w.Ballot(out(u32), tid.lt(3)), WidenE4m3(out(u32), i), AddF16x2(out(u32), x, Const(0xE480E480))]  # fmt: skip
    for op in ops:
        b.emit(op)
        k.sink(op.out[0])  # type: ignore[attr-defined]
    for t in (f64, f32, f16, bf16, s32, u32, s64, u64):
        a = b.ld(k.array(f"sh_{t}", t), tid)
        k.sink(*(b.shfl(mode, a, 1) for mode in ("idx", "up", "down", "xor", *(("scan",) if t is u32 else ()))))
    return k.func()


def memory() -> w.Func:
    k = Kernel("memory")
    b, tid = k.b, k.at["tid"]
    table = k.array("table", f64, 49, "param")
    on = tid.lt(100)
    for t in STORED:
        src, dst, tile = k.array(f"in_{t}", t), k.array(f"dst_{t}", t), k.array(f"tile_{t}", t, 1024, "shared")
        own = b.alloc("own", t, 16)
        for width in widths(t):
            at = tid * width
            for cache in ("", "cg", "cs", "nc"):
                b.st(dst, at, *b.ldv(src, at, width, cache=cache), cache=cache if cache != "nc" else "")
            b.st(dst, at, *b.ldv(src, at, width, where=on, other=1.0), where=on | tid.eq(101))
            b.st(tile, at + 512, *b.ldv(tile, at, width))
            b.st(own, width, *b.ldv(own, 0, width, where=on), where=on)
            b.st(dst, at, *b.ldv(own, 1, width))
    k.sink(*b.ldv(table, 3, 2), b.ld(table, tid % 49))
    return k.func()


def copies() -> w.Func:
    k = Kernel("copies")
    b, tid = k.b, k.at["tid"]
    u, tile = k.array("u", f64), k.array("tile", f64, 2048, "shared", 128)
    half, words = k.array("half", f16, 1024, "shared", 512), k.array("words", f32, 1024)
    fast, bars = k.array("fast", f32, 1024, "shared"), k.array("bars", u64, 3, "shared", 8)
    with b.if_(tid.eq(0)):
        for i in range(3):
            b.emit(w.MbarInit(bars, Const(i), 32))
        b.fence("mbar_init")
    b.barrier()
    b.cp_async(tile, tid * 2, u, tid * 2, 2)
    b.cp_async(tile, tid + 512, u, tid, 1, where=tid.lt(70))
    b.cp_async(fast, tid, words, tid, 1)
    b.commit()
    b.wait(1)
    b.barrier(3, 64)
    b.barrier(2)
    b.sync()
    b.fence("async")
    b.fence("gpu")
    b.launch_next()
    b.launch_wait()
    with b.if_(tid.eq(0)):
        b.emit(w.MbarArrive(bars, Const(0), Const(1024)))
        b.emit(w.BulkCopy(tile, Const(0), u, k.at["bx"] * 128, Const(128), bars, Const(0)))
        halves = k.array("halves", f16)
        b.emit(TensorCopy(half, Const(0), halves, k.at["bx"] - 3, Const(-8), bars, Const(0), BOX))
        b.emit(TensorCopy(half, Const(512), halves, k.at["bx"] - 3, tid * 8, bars, Const(0), BOX))
    b.emit(w.MbarArrive(bars, Const(1)))
    b.emit(w.CpArrive(bars, Const(2)))
    b.mbar_wait(bars, 0, k.at["bx"] % 2)
    for n in (1, 2, 4):
        for trans in (False, True):
            out = tuple(b.fresh("m", u32) for _ in range(n))
            b.emit(w.LdMatrix(out, half, k.at["lane"] * 8, trans))
            k.sink(*out)
    k.sink(b.ld(tile, tid), b.ld(fast, tid))
    return k.func()


def products() -> w.Func:
    k = Kernel("products")
    b, tid = k.b, k.at["tid"]
    src = {t.name: k.array(f"in_{t}", t) for t in (f64, f32, s32, u32)}
    k.sink(b.clock())
    for shape in SHAPES:
        sig = signature(shape)
        a, x, c = ([b.ld(src[t.name], tid + i) for i in range(n)] for t, n in (sig.a, sig.b, sig.c))
        k.sink(*b.mma(shape, a, x, c))
    for shape in SPARSE:
        a, x = ([b.ld(src["u32"], tid + i) for i in range(4)] for _ in range(2))
        k.sink(*b.mma_sp(shape, a, x, [b.ld(src["f32"], tid + i) for i in range(4)], a[0], 1))
    return k.func()


def atomics() -> w.Func:
    k = Kernel("atomics")
    b, tid = k.b, k.at["tid"]
    legal = {f64: "add exch", f32: "add exch", s32: "add max min exch", u32: "add max min exch inc",
             s64: "add max min exch", u64: "add max min exch", f16: "add"}  # fmt: skip
    for t, ops in legal.items():
        buf, tile = k.array(f"buf_{t}", t), k.array(f"tile_{t}", t, 64, "shared")
        x = b.ld(buf, tid)
        for op in ops.split():
            k.sink(b.atom(op, buf, tid, x))
        k.sink(b.atom("add", tile, tid % 64, x))
        b.red("add", buf, tid, x)
    return k.func()


def warpgroups() -> w.Func:
    k = Kernel("warpgroups")
    b, warp = k.b, k.at["warp"]
    for t in (f16, bf16):
        x, y = (k.array(f"{name}_{t}", t, 64 * 64, "shared", 1024) for name in "xy")
        for cols in (8, 64):
            acc = b.alloc(f"acc{cols}_{t}", f32, cols // 2)
            for i in range(cols // 2):
                b.st(acc, i, b.const(f32, 0.0))
            b.wgmma_fence()
            turned = ((0, 512, 1024), "mn") if cols == 8 else (mn_major(128, 64), "mn")
            for (b_tile, b_major), at in (((k_major(64), "k"), 0), (turned, 1024)):
                b.wgmma(acc, x, warp // 4 * 4 + at, y, at, cols=cols, a_tile=k_major(128), a_major="k", b_tile=b_tile,
                        b_major=b_major)  # fmt: skip
            b.wgmma_commit()
            b.wgmma_wait(1)
            b.wgmma_wait(0)
            k.sink(*(b.ld(acc, i) for i in range(cols // 2)))
    return k.func()


def sparse_warpgroups() -> w.Func:
    k = Kernel("sparse_warpgroups")
    b = k.b
    meta = b.alloc("words", u32, 1)
    b.st(meta, 0, b.ld(k.array("meta", u32), k.at["tid"]))
    for t in (f16, bf16):
        x, y = (k.array(f"{name}_{t}", t, 64 * 64, "shared", 1024) for name in "xy")
        for cols in (8, 64):
            acc = b.alloc(f"acc{cols}_{t}", f32, cols // 2)
            for i in range(cols // 2):
                b.st(acc, i, b.const(f32, 0.0))
            b.wgmma_fence()
            for selector in (0, 1):
                b.wgmma_sp(acc, x, 0, y, 32 * selector, meta, cols=cols, a_tile=k_major(64), a_major="k",
                           b_tile=k_major(128), b_major="k", selector=selector)  # fmt: skip
            b.wgmma_commit()
            b.wgmma_wait(0)
            k.sink(*(b.ld(acc, i) for i in range(cols // 2)))
    return k.func()


def register_warpgroups() -> w.Func:
    k = Kernel("register_warpgroups")
    b = k.b
    a, words = b.alloc("a", u32, 4), k.array("in_words", u32)
    for i in range(4):
        b.st(a, i, b.ld(words, k.at["tid"] + i))
    for t in (f16, bf16):
        y = k.array(f"y_{t}", t, 64 * 64, "shared", 1024)
        for cols in (8, 64):
            acc = b.alloc(f"acc{cols}_{t}", f32, cols // 2)
            for i in range(cols // 2):
                b.st(acc, i, b.const(f32, 0.0))
            b.wgmma_fence()
            turned = (0, 512, 1024) if cols == 8 else mn_major(128, 64)
            for b_tile, b_major in ((k_major(64), "k"), (turned, "mn")):
                b.wgmma_rs(acc, a, y, 1024, cols=cols, b_tile=b_tile, b_major=b_major)
            b.wgmma_commit()
            b.wgmma_wait(0)
            k.sink(*(b.ld(acc, i) for i in range(cols // 2)))
    return k.func()


def clusters() -> w.Func:
    """What a block stores to the other one of its cluster, in every width, turn by turn; then the other may go on."""
    k = Kernel("clusters", cluster=2)
    b, tid, lane = k.b, k.at["tid"], k.at["lane"]
    other, bars = b.let("other", 1 - k.at["rank"]), k.array("bars", u64, 2, "shared", 8)
    with b.if_(tid.eq(0)):
        b.emit(w.MbarInit(bars, Const(0), 1))
        b.emit(w.MbarInit(bars, Const(1), THREADS // 32))
        b.fence("mbar_init")
    b.emit(wc.ClusterBarrier())
    number = (k.at["bz"] * 3 + k.at["by"]) * 4 + k.at["bx"]
    turn = 0
    for t in (f64, f32, f16, s32, u8, u32):
        src, last = k.array(f"in_{t}", t), k.array(f"last_{t}", t)
        for n in (n for n in widths(t) if n * t.nbytes >= 4):
            at, tile = tid * n, k.array(f"tile_{t}_{n}", t, n * THREADS, "shared")
            with b.if_(tid.eq(0)):
                b.emit(w.MbarArrive(bars, Const(0), Const(n * t.nbytes * THREADS)))
            vals = b.ldv(src, number * 512 + at, n)
            b.emit(wc.ClusterSt(tile, n * (THREADS - 1) - at, vals, bars, Const(0), other))
            b.mbar_wait(bars, 0, turn % 2, cluster=True)
            b.st(last, number * 2048 + n * THREADS + at, *b.ldv(tile, at, n))
            b.sync()
            with b.if_(lane.eq(0)):
                b.emit(wc.ClusterArrive(bars, Const(1), other))
            b.mbar_wait(bars, 1, turn % 2, cluster=True)
            turn += 1
    return k.func()


def registers() -> w.Func:
    """Four warps that give back registers, for eight others."""
    b, shell = Builder(Loc("folder/heat2d.py", 12)), w.Func("registers", (), (), (2, 1, 1), 384, ())
    at, last = shell.builtins(), Buffer("last", s32, 2 * 384, "global")
    b.reserve(*at, "last")
    with b.if_(at["warp"].lt(8)):
        b.emit(wg.SetRegisters(232))
        b.st(last, at["bx"] * 384 + at["tid"], b.convert(b.name(at["tid"] + 7, "v"), s32))
    with b.else_():
        b.emit(wg.SetRegisters(40))
        b.st(last, at["bx"] * 384 + at["tid"], b.convert(b.name(at["tid"] + 1, "v"), s32))
    return dataclasses.replace(shell, params=(last,), body=b.ops())


def cells(scope: str = "gpu") -> w.Func:
    """Six blocks that run together: each waits for a number of every lane of the block before it, turn by turn."""
    blocks, turns, threads = 6, 3, 64
    symbol = "cells" if scope == "gpu" else f"cells_{scope}"
    b, shell = Builder(Loc("folder/heat2d.py", 12)), w.Func(symbol, (), (), (blocks, 1, 1), threads, (), together=True)
    at = shell.builtins()
    kinds = ((u32, 1), (u64, 1), (u32, 3))  # values and their tag
    kept = {kind: Buffer(f"cells_{kind[0]}_{kind[1]}", kind[0], (kind[1] + 1) * turns * blocks * threads, "global",
                         (kind[1] + 1) * kind[0].nbytes) for kind in kinds}  # fmt: skip
    given = {t: Buffer(f"in_{t}", t, blocks * threads, "global") for t in (u32, u64)}
    last = {kind: Buffer(f"last_{kind[0]}_{kind[1]}", kind[0], turns * blocks * threads, "global") for kind in kinds}
    params = (*kept.values(), *given.values(), *last.values())
    b.reserve(*at, *(p.name for p in params))
    before = b.let("before", (at["bx"] + (blocks - 1)) % blocks)
    for (t, count), buf in kept.items():
        mine, got, seen = (b.alloc(name, t, 1) for name in ("mine", "got", "seen"))
        b.st(mine, 0, b.ld(given[t], at["bx"] * threads + at["tid"]))
        for turn in range(turns):
            tag = b.convert(b.name(at["tid"] + (turn + 5), "tag"), t)
            first, own = turn * blocks, b.ld(mine, 0)
            values = [b.binary("add", own, i) if i else own for i in range(count)]
            b.st_tagged(buf, ((first + at["bx"]) * threads + at["tid"]) * (count + 1), values, tag, scope)
            with b.loop():
                index = ((first + before) * threads + at["tid"]) * (count + 1)
                asked = (None, None) if turn else (at["tid"].lt(threads - 5), tag)
                *cells, found = b.ld_tagged(buf, index, *asked, scope, values=count)
                total = cells[0]
                for cell in cells[1:]:
                    total = b.binary("add", b.binary("shl", total, 1), cell)
                b.st(got, 0, total)
                b.st(seen, 0, b.binary("sub", found, tag))
                b.trap(b.convert(found, u32).eq(4000) if t is u64 else found.eq(4000))  # a tag that there is not
                b.break_if(b.ld(seen, 0).eq(0) if t is u32 else b.convert(b.ld(seen, 0), u32).eq(0))
            b.st(mine, 0, b.binary("add", b.ld(mine, 0), b.ld(got, 0)))
            b.st(last[t, count], (first + at["bx"]) * threads + at["tid"], b.ld(mine, 0))
    return dataclasses.replace(shell, params=params, body=b.ops())


def cells_sys() -> w.Func:
    """The same, of blocks of several GPUs."""
    return cells("sys")


PROGRAMS: dict[str, Callable[[], w.Func]] = {
    f.__name__: f
    for f in (
        control,
        scalars,
        conversions,
        bits,
        memory,
        copies,
        products,
        atomics,
        warpgroups,
        sparse_warpgroups,
        register_warpgroups,
        clusters,
        registers,
        cells,
        cells_sys,
    )
}


def every_op() -> Module:
    """All the programs in one module."""
    return Module("every_op", tuple(f() for f in PROGRAMS.values()))


def with_body(func: w.Func, *ops: w.Op) -> w.Func:
    """The function with another body."""
    return dataclasses.replace(func, body=ops)
