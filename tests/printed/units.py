"""Small warp programs, one for each kind of op, whose results tell one way of printing the op from another.

Every result is the same in whatever order threads run, and no operand lies where C leaves the meaning open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.ir import warp as w
from sparsegen.ir.expr import Const, Value, maximum, minimum, select
from sparsegen.ir.module import Launch, Module
from sparsegen.ir.tensor_copy import TensorCopy, TensorMap
from sparsegen.ir.types import Buffer, DType, bf16, f16, f32, f64, pred, s8, s32, s64, u8, u16, u32, u64, widths
from sparsegen.ir.warp_matrix import MovMatrix
from sparsegen.ir.warp_pairs import AddF16x2, WidenE4m3
from tests.cuda_print import programs
from tests.cuda_print.programs import THREADS, Kernel
from tests.printed.unit_products import matrices, products, sparse, warpgroups

FLOATS, SIGNED, UNSIGNED = (f64, f32, f16, bf16), (s32, s64, s8), (u32, u64, u8, u16)


def loops() -> w.Func:
    """Sums over loops whose bounds, steps and unrolling differ; each lane leaves a loop at a turn of its own."""
    k = Kernel("loops")
    b, tid = k.b, k.at["tid"]
    u = k.array("in_u", s32)
    for unroll in (None, 0, 1, 4):
        total = b.alloc(f"total{unroll}", s32, 1)
        b.st(total, 0, b.let("none", Const(0)))
        with b.for_("i", tid % 3, 20 + tid % 5, 1 + (unroll or 0), unroll=unroll) as i:
            b.st(total, 0, b.binary("add", b.ld(total, 0), b.ld(u, tid + i)))
        k.sink(b.ld(total, 0))
    turns = b.alloc("turns", s32, 1)
    b.st(turns, 0, b.let("none", Const(0)))
    with b.loop():
        x = b.ld(turns, 0)
        b.st(turns, 0, b.binary("add", x, 1))
        b.break_if(x.ge(tid % 7))
    k.sink(b.ld(turns, 0))
    return k.func()


def branches() -> w.Func:
    """Expressions of built-in values under conditions, and loops that a condition inside an ``if`` leaves."""
    k = Kernel("branches")
    b, tid = k.b, k.at["tid"]
    lane, warp = k.at["lane"], k.at["warp"]
    with b.if_((tid % 5).lt(3) & warp.ne(1)):
        k.sink(b.let("inside", tid * 3 - lane))
    with b.else_():
        k.sink(b.let("outside", warp - tid // 4))
    chosen = select(tid.lt(64) | lane.eq(31), minimum(tid, 40) + 7, maximum(lane, warp) % 6)
    k.sink(b.let("chosen", chosen), b.let("shifted", (tid * 4097) // 8 - (tid ^ 21)))
    place = k.array("places", s32)
    at = (k.at["bz"] * 3 + k.at["by"]) * 4 + k.at["bx"]
    b.st(place, at * THREADS + tid, b.let("block", at * 1000 + tid))
    count = b.alloc("count", s32, 1)
    b.st(count, 0, b.let("none", Const(0)))
    with b.loop():
        b.st(count, 0, b.binary("add", b.ld(count, 0), 1))
        with b.if_(lane.lt(9)):
            b.break_if(b.ld(count, 0).ge(lane))
        b.break_if(b.ld(count, 0).gt(20))
    k.sink(b.ld(count, 0))
    return k.func()


def negative() -> w.Func:
    """Arithmetic of negative numbers, and of numbers whose sums and products wrap."""
    k = Kernel("negative")
    b, tid = k.b, k.at["tid"]
    for t in SIGNED:
        x, y = (b.ld(k.array(f"minus_{n}_{t}", t), tid) for n in "xy")
        k.sink(*(b.binary(op, x, y) for op in ("add", "sub", "mul", "div", "min", "max", "and", "or", "xor")))
        k.sink(*(b.unary(op, x) for op in ("neg", "abs", "not", "popc", "clz", "brev")), b.binary("shr", x, 2))
        k.sink(*(b.convert(x, other) for other in (*FLOATS, *SIGNED, *UNSIGNED)))
    for t in FLOATS:
        x, y = (b.ld(k.array(f"minus_{n}_{t}", t), tid) for n in "xy")
        k.sink(*(b.binary(op, x, y) for op in ("add", "sub", "mul", "div", "min", "max")), b.fma(x, y, x))
        k.sink(*(b.unary(op, x) for op in ("neg", "abs")))
        if t in (f64, f32):
            k.sink(*(b.unary(op, x) for op in ("exp", "log", "sin", "cos", "tanh")))
            k.sink(b.binary("pow", b.unary("abs", x), b.unary("sin", y)), b.binary("pow", x, y))
        if t is f32:
            k.sink(b.unary("exp2", x), b.unary("exp2", b.binary("mul", x, b.const(t, 40.0))))
        k.sink(b.select(b.compare("lt", x, y), x, y))
        k.sink(*(b.compare(op, x, other) for op in ("lt", "le", "eq", "ne") for other in (x, y)))
        k.sink(*(b.convert(x, other) for other in (*FLOATS, s32)))
        if t is f64:
            k.sink(b.convert(b.binary("mul", x, b.const(t, 1e15)), s64))
    return k.func()


def memory() -> w.Func:
    """Accesses of every width and type, hinted and guarded, in all kinds of memory."""
    k = Kernel("memory")
    b, tid = k.b, k.at["tid"]
    table = k.array("table", f64, 49, "param")
    k.sink(*b.ldv(table, 3, 2), b.ld(table, tid % 49))
    for t in (f64, f32, f16, s32, u16, u8):
        src, tile = k.array(f"in_{t}", t), k.array(f"tile_{t}", t, 8 * THREADS, "shared")
        own = b.alloc(f"own_{t}", t, 16)
        for i in range(16):
            b.st(own, i, b.ld(src, tid + 300 + i))
        for width in widths(t):
            at, dst = tid * width, k.array(f"to{width}_{t}", t, 16 * 8 * THREADS)
            for i, cache in enumerate(("", "cg", "cs", "nc")):
                vals = b.ldv(src, at + 16 * i, width, cache=cache)
                b.st(dst, at + 1024 * i, *vals, cache=cache if cache != "nc" else "")
            vals = b.ldv(src, at, width, where=tid.lt(70), other=1.0)
            b.st(dst, at + 4096, *vals, where=tid.ne(5))
            b.st(tile, at, *b.ldv(src, at + 64, width))
            b.barrier()
            b.st(dst, at + 5120, *b.ldv(tile, (THREADS - 1 - tid) * width, width))
            b.barrier()
            b.st(own, width, *b.ldv(own, 0, width, where=tid.lt(9), other=2.0), where=tid.ne(1))
            b.st(dst, at + 6144, *b.ldv(own, 1, width))
            b.st(dst, at + 7168, *b.ldv(own, width, width))
    return k.func()


def ring() -> w.Func:
    """A ring of three slots filled by ``cp.async`` two turns ahead; what a turn reads, other lanes copied."""
    k = Kernel("ring")
    b, tid = k.b, k.at["tid"]
    for t, count in ((f64, 2), (f64, 1), (f32, 1), (f16, 8), (u8, 16)):
        size = THREADS * count
        src, slots = k.array(f"many{count}_{t}", t), k.array(f"ring{count}_{t}", t, 3 * size, "shared", 128)
        last = k.array(f"last{count}_{t}", t, 8 * size)

        def fill(turn: Any, src: Buffer = src, slots: Buffer = slots, count: int = count, size: int = size) -> None:
            b.cp_async(slots, turn % 3 * size + tid * count, src, turn * size + tid * count, count, where=tid.ne(3))
            b.commit()

        with b.if_(tid.eq(3)):
            for i in range(3 * count):
                b.st(slots, i // count * size + 3 * count + i % count, b.const(t, 5.0) if t.kind == "float"
                     else b.convert(b.let("five", Const(5)), t))  # fmt: skip
        fill(Const(0))
        fill(Const(1))
        with b.for_("turn", 0, 6, 1, unroll=1) as turn:
            b.wait(1)
            b.barrier()
            other = (THREADS - 1 - tid) * count
            for i in range(count):
                b.st(last, turn * size + tid * count + i, b.ld(slots, turn % 3 * size + other + i))
            b.barrier()
            fill(turn + 2)
        b.wait(0)
    return k.func()


def bulk() -> w.Func:
    """Bulk copies, two slots and two phases each; every warp waits for a phase and arrives at the next."""
    k = Kernel("bulk")
    b, tid, lane = k.b, k.at["tid"], k.at["lane"]
    src, slots = k.array("many_f32", f32), k.array("slots", f32, 2 * 256, "shared", 128)
    full, free = k.array("full", u64, 2, "shared", 8), k.array("free", u64, 2, "shared", 8)
    with b.if_(tid.eq(0)):
        for i in range(2):
            b.emit(w.MbarInit(full, Const(i), 1))
            b.emit(w.MbarInit(free, Const(i), THREADS // 32))
        b.fence("mbar_init")
    b.barrier()
    last = k.array("last", f32, 6 * 256)
    with b.for_("turn", 0, 6, 1, unroll=1) as turn:
        slot, phase = turn % 2, turn // 2 % 2
        with b.if_(tid.eq(0)):
            with b.if_(turn.ge(2)):
                b.mbar_wait(free, slot, 1 - phase)
                b.fence("async")
            b.emit(w.MbarArrive(full, slot, Const(1024)))
            b.emit(w.BulkCopy(slots, slot * 256, src, turn * 256, Const(128), full, slot))
            b.emit(w.BulkCopy(slots, slot * 256 + 128, src, turn * 256 + 128, Const(128), full, slot))
        b.mbar_wait(full, slot, phase)
        b.st(last, turn * 256 + tid, b.ld(slots, slot * 256 + 255 - tid))
        b.sync()
        with b.if_(lane.eq(0)):
            b.emit(w.MbarArrive(free, slot))
    return k.func()


def boxes() -> w.Func:
    """Boxes of two matrices, swizzled and as they are, in two slots; rows and columns before and behind the matrix."""
    k = Kernel("boxes")
    b, tid = k.b, k.at["tid"]
    full = k.array("full", u64, 2, "shared", 8)
    with b.if_(tid.eq(0)):
        for i in range(2):
            b.emit(w.MbarInit(full, Const(i), 1))
        b.fence("mbar_init")
    b.barrier()
    for which, (t, m) in enumerate(((f32, TensorMap(19, 45, 48, (8, 16), 64)), (f16, TensorMap(11, 70, 72, (4, 64))))):
        src, ring = k.array(f"many_{t}", t), k.array(f"boxes_{t}", t, 2 * m.size, "shared", m.align)
        last = k.array(f"last_{t}", t, 6 * m.size)
        with b.for_("turn", 0, 6, 1, unroll=1) as turn:
            slot = turn % 2
            with b.if_(tid.eq(0)):
                b.emit(w.MbarArrive(full, slot, Const(m.size * t.nbytes)))
                b.emit(TensorCopy(ring, slot * m.size, src, turn * 4 - 3, turn * 16 - 8, full, slot, m))
            b.mbar_wait(full, slot, (turn + 6 * which) // 2 % 2)
            with b.for_("i", tid, m.size, THREADS) as i:
                b.st(last, turn * m.size + i, b.ld(ring, slot * m.size + i))
            b.barrier()
    return k.func()


def arrivals() -> w.Func:
    """Two slots filled by ``cp.async``, some of it committed, whose landing is an arrival; a few lanes copy nothing.

    On Ampere too: nothing of Hopper is in it."""
    k = Kernel("arrivals")
    b, tid, lane = k.b, k.at["tid"], k.at["lane"]
    src, slots, last = (k.array("many_f32", f32), k.array("landed", f32, 4 * THREADS, "shared", 128),
                        k.array("last", f32, 12 * THREADS))  # fmt: skip
    full, free = k.array("full", u64, 2, "shared", 8), k.array("free", u64, 2, "shared", 8)
    with b.if_(tid.eq(0)):
        for i in range(2):
            b.emit(w.MbarInit(full, Const(i), THREADS))
            b.emit(w.MbarInit(free, Const(i), THREADS // 32))
    for i in range(4):
        b.st(slots, tid + i * THREADS, b.const(f32, 5.0))
    b.barrier()
    with b.for_("turn", 0, 6, 1, unroll=1) as turn:
        slot, phase, copies = turn % 2, turn // 2 % 2, (tid % 32).ne(7)
        with b.if_(turn.ge(2)):
            b.mbar_wait(free, slot, 1 - phase)
        at, begin = turn * 2 * THREADS + tid, slot * 2 * THREADS + tid
        b.cp_async(slots, begin, src, at, 1, where=copies)
        b.commit()
        b.cp_async(slots, begin + THREADS, src, at + THREADS, 1, where=copies)
        b.emit(w.CpArrive(full, slot))
        b.mbar_wait(full, slot, phase)
        for i in range(2):
            other = slot * 2 * THREADS + i * THREADS + THREADS - 1 - tid
            b.st(last, (turn * 2 + i) * THREADS + tid, b.ld(slots, other))
        b.sync()
        with b.if_(lane.eq(0)):
            b.emit(w.MbarArrive(free, slot))
    return k.func()


def meetings() -> w.Func:
    """What other threads wrote, read after they have met: the block, one half of it, a warp, the whole GPU."""
    k = Kernel("meetings")
    b, tid, lane, warp = k.b, k.at["tid"], k.at["lane"], k.at["warp"]
    tile, src = k.array("tile", s32, THREADS, "shared"), k.array("in_x", s32)
    b.st(tile, tid, b.ld(src, tid))
    b.barrier()
    k.sink(b.ld(tile, THREADS - 1 - tid))
    b.barrier(2, THREADS)
    with b.if_(warp.lt(2)):
        _later(k, 1)
        b.st(tile, tid, b.ld(src, tid + 200))
        b.barrier(3, 64)
        k.sink(b.ld(tile, 63 - tid))
    with b.else_():
        _later(k, 3)
        b.st(tile, tid, b.ld(src, tid + 400))
        b.barrier(4, 64)
        k.sink(b.ld(tile, 64 + THREADS - 1 - tid))
    b.barrier()
    b.st(tile, tid, b.ld(src, tid + 600))
    b.sync()
    k.sink(b.ld(tile, tid - lane + 31 - lane))
    b.fence("gpu")
    b.launch_next()
    b.launch_wait()
    before = b.clock()
    k.sink(b.convert(b.binary("sub", b.clock(), before), pred))
    return k.func()


def _later(k: Kernel, warp: int) -> None:
    """Lets a warp arrive long after the others."""
    with k.b.if_(k.at["warp"].eq(warp)), k.b.for_("pause", 0, 8, 1):
        k.b.sync()


def bits() -> w.Func:
    """Ops on the bits of words, and what lanes of a warp tell one another."""
    k = Kernel("bits")
    b, tid = k.b, k.at["tid"]
    x, y, z = (b.ld(k.array(f"in_{n}", u32), tid) for n in "xyz")
    i, j, h = (b.ld(k.array(f"in_{n}", t), tid) for n, t in (("i", s32), ("j", u16), ("h", f16)))
    made: list[tuple[DType, Callable[[tuple[Value]], Any]]] = [
        (u32, lambda out: w.Prmt(out, x, y, Const(0x5140))), (u32, lambda out: w.Prmt(out, x, y, z)),
        (u32, lambda out: w.Funnel(out, x, y, tid * 4)), (u32, lambda out: w.Dp4a(out, x, y, z)),
        (s32, lambda out: w.Dp4a(out, i, b.bitcast(x, s32), i)), (u32, lambda out: w.Pack(out, h, j)),
        (u32, lambda out: w.Ballot(out, (tid % 5).lt(3))), (u32, lambda out: MovMatrix(out, x)),
        (u32, lambda out: WidenE4m3(out, j)), (u32, lambda out: AddF16x2(out, x, y)),
    ]  # fmt: skip
    for t, op in made:
        out = b.fresh("r", t)
        b.emit(op((out,)))
        k.sink(out)
    for t in (f64, f32, f16, bf16, s32, u32, s64, u64):
        a = b.ld(k.array(f"in_{t}", t), tid)
        k.sink(*(b.shfl(mode, a, by) for mode in ("idx", "up", "down", "xor") for by in (1, tid % 7)))
        if t is u32:
            k.sink(*(b.shfl("scan", a, by) for by in (1, 8)))
    return k.func()


def atomics() -> w.Func:
    """Atomics that two neighbours make on one place, of which no order can be seen, and that tell what was there."""
    k = Kernel("atomics")
    b, tid = k.b, k.at["tid"]
    legal = {f64: "add exch", f32: "add exch", s32: "add max min exch", u32: "add max min exch inc",
             s64: "add max min exch", u64: "add max min exch", f16: "add"}  # fmt: skip
    for t, ops in legal.items():
        x = b.ld(k.array(f"in_{t}", t), tid)
        for op in ops.split():
            buf = k.array(f"sum_{op}_{t}", t)
            k.sink(b.atom(op, buf, tid, x))
            if op in ("add", "max", "min"):
                b.atom(op, buf, 1000 + tid // 2, b.convert(b.let("n", tid % 7), t))
        tile = k.array(f"tile_{t}", t, THREADS, "shared")
        b.st(tile, tid, x)
        b.barrier()
        b.red("add", tile, THREADS - 1 - tid, x)
        b.barrier()
        k.sink(b.ld(tile, tid))
        b.red("add", k.array(f"total_{t}", t), tid % 5, b.convert(b.let("n", tid % 7), t))
    return k.func()


UNITS: dict[str, Callable[[], w.Func]] = {
    f.__name__: f for f in (loops, branches, negative, memory, ring, bulk, boxes, arrivals, meetings, bits, products,
                            matrices, warpgroups, sparse, atomics)
} | {
    name: programs.PROGRAMS[name] for name in ("scalars", "conversions", "clusters", "registers", "cells", "cells_sys")
}  # fmt: skip
#: Programs whose words are packed numbers.
PACKED = {"products", "bits", "matrices", "sparse"}
#: Programs of which every block does the same, so that one block tells as much as many.
ONE_BLOCK = {"atomics", "warpgroups", "sparse"}


def unit(name: str) -> Module:
    """A program as a module with one launch."""
    func = UNITS[name]()
    if name in ONE_BLOCK:
        func = replace(func, grid=(1, 1, 1))
    params = tuple(p.name for p in func.params)
    tables = {p.name: _drawn(p, 0) for p in func.params if isinstance(p, Value) or p.space == "param"}
    return Module(name, (func,), launches=(Launch(func.symbol, params),), constants=tables)


def arrays(module: Module, seed: int = 1) -> dict[str, Any]:
    """Random arrays of the launch; what it writes only is filled with a number of its own."""
    (func,) = module.funcs
    assert isinstance(func, w.Func)
    params = [p for p in func.params if isinstance(p, Buffer) and p.name not in module.constants]
    return {p.name: _drawn(p, seed + i, module.name in PACKED) for i, p in enumerate(params)}


def _drawn(p: Buffer | Value, seed: int, packed: bool = False) -> Any:
    """By the name: ``minus`` of both signs, ``in``, ``many`` and ``sum`` above 0, the rest a number of its own."""
    rng, dtype = np.random.default_rng(seed), p.dtype.numpy()
    if isinstance(p, Value):
        return np.array([7], dtype)
    kind = p.name.partition("_")[0].rstrip("0123456789")
    if kind not in ("minus", "in", "many", "sum", "sh", "table"):
        return np.full(p.size, 3, dtype)
    if p.dtype.kind == "float":
        return rng.uniform(-9 if kind == "minus" else 0.1, 9, p.size).astype(dtype)
    if kind == "minus":
        info = np.iinfo(dtype)
        wide = rng.integers(info.min // 2, info.max // 2, p.size, dtype=dtype)
        made = np.where(rng.random(p.size) < 0.5, rng.integers(-9, 9, p.size).astype(dtype), wide)
        return np.where(made == 0, dtype.type(4), made)  # a divisor
    if packed and p.dtype.kind == "uint":  # as two f16 or bf16: numbers below 2 of both signs
        words = rng.integers(0, 1 << 32, p.size, dtype=np.uint32) & np.uint32(0xBFFFBFFF)
        return words.astype(dtype)
    return rng.integers(1, 8, p.size).astype(dtype)


def text(module: Module) -> str:
    """The module as CUDA."""
    return translation_unit(module, title=module.name)
