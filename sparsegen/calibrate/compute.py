"""Micro-kernels of the execution units: tensor cores, multiply-add, integer units, shuffle, barrier, an empty launch.

All have the same plan: several independent chains of one instruction a warp and several warps a sub-core, so that the
unit is full; each instruction needs the result of the one before it in its chain, so none can be left out or merged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from sparsegen.ir import warp as w
from sparsegen.ir.builder import Builder
from sparsegen.ir.expr import Value
from sparsegen.ir.fragments import SHAPES
from sparsegen.ir.types import Buffer, DType, f32, f64, u32

from .probe import SEEDS, Frame, Probe, seeds

#: Of an mma kernel: warps a block, chains a warp, repetitions a round.
MMA_WARPS, MMA_CHAINS, MMA_UNROLL = 16, 4, 4
#: Of the other kernels: threads a block (all of an SM's schedulers have eight warps), chains, repetitions a round.
THREADS, CHAINS, UNROLL = 1024, 8, 32
BARRIER_WARPS, BARRIERS = 8, 8


def mma(shape: str, blocks: int) -> Probe:
    """Products of one shape, of 16 chains a sub-core (four warps of four).

    Each accumulates on its own d, so nvcc can neither drop nor reorder within a chain.  ``work``: mma of the block.
    """
    s = SHAPES[shape]
    params = [Buffer("src", s.a.reg, SEEDS, "global")]
    if s.c.reg is not s.a.reg:
        params.append(Buffer("src_c", s.c.reg, SEEDS, "global"))
    frame = Frame("time_" + shape.replace(".", "_"), blocks, 32 * MMA_WARPS, s.c.reg, tuple(params))
    b, lane, n = frame.b, frame.at["lane"], s.c.regs
    x = [b.ld(params[0], lane + i, hint="x") for i in range(s.a.regs + s.b.regs)]
    acc = b.alloc("acc", s.c.reg, MMA_CHAINS * n)
    for i in range(MMA_CHAINS * n):
        b.st(acc, i, b.ld(params[-1], lane + i % (SEEDS - 32)))

    def once() -> None:
        for chain in range(MMA_CHAINS):
            c = [b.ld(acc, chain * n + i) for i in range(n)]
            for i, d in enumerate(b.mma(shape, x[: s.a.regs], x[s.a.regs :], c)):
                b.st(acc, chain * n + i, d)

    with frame.timed():
        frame.turns(once, MMA_UNROLL)
    frame.drop(*(b.ld(acc, i) for i in range(MMA_CHAINS * n)))
    fill = {p.name: seeds(p.dtype) for p in params}
    return Probe(frame.func(), MMA_WARPS * MMA_CHAINS * MMA_UNROLL, fill)


def _prmt(b: Builder, x: Value, near: Callable[[], Value], p: Value, q: Value) -> Value:
    """Four of the bytes of (x, p), as q says."""
    out = b.fresh("v", u32)
    b.emit(w.Prmt((out,), x, p, q))
    return out


#: Name -> (type, how many values stay the same, one step of a chain: from the builder, the chain's value, what gives
#: the value of the next chain, the values that stay the same).
RATES: Final[dict[str, tuple[DType, int, Callable[..., Value]]]] = {
    "f64_fma": (f64, 2, lambda b, x, near, p, q: b.fma(x, p, q)),
    "f32_fma": (f32, 2, lambda b, x, near, p, q: b.fma(x, p, q)),
    # one LOP3, with a value of the next chain: with a constant a run of steps would fold into one
    "alu": (u32, 1, lambda b, x, near, p: b.binary("xor", b.binary("and", x, near()), p)),
    "prmt": (u32, 2, _prmt),
    # the xor, on another unit at four times the rate, keeps the number from collapsing to a bit
    "popc": (u32, 1, lambda b, x, near, p: b.binary("xor", b.unary("popc", x), p)),
    "shuffle": (u32, 0, lambda b, x, near: b.shfl("xor", x, 2)),
}


def rate(name: str, blocks: int) -> Probe:
    """Steps of one kind, of 64 chains a sub-core.  ``work``: steps of all the block's lanes in a round."""
    dtype, count, step = RATES[name]
    src = Buffer("src", dtype, SEEDS, "global")
    frame = Frame(f"rate_{name}", blocks, THREADS, dtype, (src,))
    b, lane = frame.b, frame.at["lane"]
    same = [b.ld(src, lane + i, hint="same") for i in range(count)]
    acc = b.alloc("acc", dtype, CHAINS)
    for i in range(CHAINS):
        b.st(acc, i, b.ld(src, lane + i))

    def once() -> None:
        for i in range(CHAINS):
            b.st(acc, i, step(b, b.ld(acc, i), partial(b.ld, acc, (i + 1) % CHAINS), *same))

    with frame.timed():
        frame.turns(once, UNROLL)
    frame.drop(*(b.ld(acc, i) for i in range(CHAINS)))
    return Probe(frame.func(), THREADS * CHAINS * UNROLL, {"src": seeds(dtype)})


def barrier(blocks: int) -> Probe:
    """Barriers of eight warps with nothing between them; none may be merged with the next.  ``work``: barriers."""
    frame = Frame("lat_barrier", blocks, 32 * BARRIER_WARPS, u32)
    with frame.timed():
        frame.turns(frame.b.barrier, BARRIERS)
    return Probe(frame.func(), BARRIERS)


def empty() -> Probe:
    """A warp that does nothing: what is left is the launch.  ``work``: launches."""
    return Probe(w.Func("empty", (), (), (1, 1, 1), 32, ()), 1)
