"""A matrix times a vector, ``y = A x`` in f32, with K split over blocks: a producer, consumers, a last arriver.

One lane of the producer warp fills a ring of three stages with bulk copies: a chunk of each of the block's rows, and of
``x``.  A stage's ``full`` mbarrier counts the copies' bytes, its ``empty`` mbarrier the consumer warps that are done
with it; the k-th use of a stage has parity ``k % 2``.  Consumer warps own rows and sum them in registers.  A block's
partial sums go to its slot of a workspace.  Which block of a row group comes last, an atomic counter tells: that one
sums the slots in their order, so that the result does not depend on who it was.  The counter is then 0 again, for the
next launch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.builder import Builder
from sparsegen.ir.expr import Expr, minimum
from sparsegen.ir.types import Buffer, f32, u32, u64

from .case import Array, Case

STAGES = 3
CHUNK = 256  # columns of a stage
PER_WARP = 4  # rows of a consumer warp
CONSUMERS = 1  # the named barrier at which they meet


@dataclass(frozen=True)
class Product:
    """Sizes: A is m x k (k a multiple of 4: bulk copies move 16 bytes), ``warps`` consumers, ``splits`` of k."""

    m: int
    k: int
    warps: int = 4
    splits: int = 4

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return PER_WARP * self.warps

    @property
    def chunks(self) -> int:
        return -(-self.k // CHUNK)

    @property
    def grid(self) -> tuple[int, int, int]:
        return -(-self.m // self.rows), self.splits, 1


class Kernel:
    """The parts of the kernel: what the producer does, what the consumers do."""

    def __init__(self, size: Product) -> None:
        assert size.k % 4 == 0 and 1 <= size.splits <= size.chunks
        self.size, self.b = size, Builder()
        groups = size.grid[0]
        self.a = Buffer("a", f32, size.m * size.k, "global")
        self.x = Buffer("x", f32, size.k, "global")
        self.y = Buffer("y", f32, size.m, "global")
        self.slots = Buffer("slots", f32, size.splits * groups * size.rows, "global")
        self.counter = Buffer("counter", u32, groups, "global")
        #: A stage holds the chunk of x first, then those of the rows.
        self.ring = Buffer("ring", f32, STAGES * (1 + size.rows) * CHUNK, "shared", 128)
        self.full = Buffer("full", u64, STAGES, "shared", 8)
        self.empty = Buffer("empty", u64, STAGES, "shared", 8)
        self.turn = Buffer("turn", u32, 1, "shared")
        params = (self.a, self.x, self.y, self.slots, self.counter)
        shared = (self.ring, self.full, self.empty, self.turn)
        self.shell = w.Func("ring_reduce", params, shared, size.grid, 32 * (size.warps + 1), ())
        self.at = self.shell.builtins()
        self.b.reserve(*self.at, *(p.name for p in (*params, *shared)))

    def build(self) -> w.Func:
        b, size, at = self.b, self.size, self.at
        self.first = b.let("first", at["bx"] * size.rows)
        self.here = b.let("here", minimum(size.m - self.first, size.rows))  # rows of this block that there are
        self.begin = b.let("begin", at["by"] * size.chunks // size.splits)
        self.count = b.let("count", (at["by"] + 1) * size.chunks // size.splits - self.begin)  # chunks of this block
        with b.if_(at["tid"].eq(0)):
            with b.for_("s", 0, STAGES) as s:
                b.emit(w.MbarInit(self.full, s, 1))
                b.emit(w.MbarInit(self.empty, s, size.warps))
            b.fence("mbar_init")
        b.barrier()
        with b.if_(at["warp"].lt(size.warps)):
            self.consume()
        with b.else_(), b.if_(at["lane"].eq(0)):
            self.produce()
        shell = self.shell
        return w.Func(shell.symbol, shell.params, shell.shared, shell.grid, shell.threads, b.ops())

    def stage(self, i: Expr) -> tuple[Expr, Expr, Expr]:
        """Of the block's i-th chunk: its stage, where that lies in the ring, and its columns."""
        b, k = self.b, self.size.k
        s = b.let("s", i % STAGES)
        columns = b.let("columns", minimum(k - (self.begin + i) * CHUNK, CHUNK))
        return s, b.let("base", s * ((1 + self.size.rows) * CHUNK)), columns

    def produce(self) -> None:
        """One lane: chunk by chunk, as soon as the consumers have left the stage."""
        b, k = self.b, self.size.k
        with b.for_("i", 0, self.count) as i:
            s, base, columns = self.stage(i)
            b.mbar_wait(self.empty, s, (i // STAGES + 1) % 2)  # at first uses the phase before the first: complete
            b.fence("async")  # their loads have landed
            b.emit(w.MbarArrive(self.full, s, (self.here + 1) * columns * 4))
            start = b.let("start", (self.begin + i) * CHUNK)
            b.emit(w.BulkCopy(self.ring, base, self.x, start, columns, self.full, s))
            with b.for_("r", 0, self.here) as r:
                source = b.let("source", (self.first + r) * k + start)
                b.emit(w.BulkCopy(self.ring, base + (r + 1) * CHUNK, self.a, source, columns, self.full, s))

    def consume(self) -> None:
        """A warp: its rows' sums over the block's chunks, then the sum over blocks."""
        b = self.b
        lane, warp = self.at["lane"], self.at["warp"]
        sums, zero = b.alloc("sums", f32, PER_WARP), b.const(f32, 0.0)
        with b.for_("r", 0, PER_WARP, unroll=0) as r:
            b.st(sums, r, zero)
        with b.for_("i", 0, self.count) as i:
            s, base, columns = self.stage(i)
            b.mbar_wait(self.full, s, i // STAGES % 2)
            with b.for_("c", lane * 4, columns, 128) as c:
                xs = b.ldv(self.ring, base + c, 4)
                with b.for_("r", 0, PER_WARP, unroll=0) as r:
                    row = b.let("row", warp * PER_WARP + r)
                    with b.if_(row.lt(self.here)):
                        total = b.ld(sums, r)
                        for a, v in zip(b.ldv(self.ring, base + (row + 1) * CHUNK + c, 4), xs, strict=True):
                            total = b.fma(a, v, total)
                        b.st(sums, r, total)
            b.sync()  # all lanes have read the stage before one says so
            with b.if_(lane.eq(0)):
                b.emit(w.MbarArrive(self.empty, s))
        with b.for_("r", 0, PER_WARP, unroll=0) as r:
            total = b.ld(sums, r)
            for far in (16, 8, 4, 2, 1):
                total = b.binary("add", total, b.shfl("xor", total, far))
            b.st(self.slots, self.slot(self.at["by"], warp * PER_WARP + r), total, where=lane.eq(0))
        self.finish()

    def slot(self, split: Expr, row: Expr) -> Expr:
        """The place of a partial sum; ``row`` counts within the block."""
        return (split * self.size.grid[0] + self.at["bx"]) * self.size.rows + row

    def finish(self) -> None:
        """The consumers of the block that comes last add up all blocks' sums."""
        b, size, tid = self.b, self.size, self.at["tid"]
        b.barrier(CONSUMERS, 32 * size.warps)
        with b.if_(tid.eq(0)):
            b.fence("gpu")
            before = b.atom("inc", self.counter, self.at["bx"], size.splits - 1)  # wraps to 0 at the last
            b.fence("gpu")
            b.st(self.turn, 0, before)
        b.barrier(CONSUMERS, 32 * size.warps)
        last = b.ld(self.turn, 0).eq(size.splits - 1)
        with b.if_(last), b.if_(tid.lt(self.here)):
            total = b.alloc("total", f32, 1)
            b.st(total, 0, b.const(f32, 0.0))
            with b.for_("split", 0, size.splits) as split:
                b.st(total, 0, b.binary("add", b.ld(total, 0), b.ld(self.slots, self.slot(split, tid))))
            b.st(self.y, self.first + tid, b.ld(total, 0))


def build(size: Product) -> w.Func:
    """The kernel: ``y = a @ x``; ``slots`` needs no contents, ``counter`` is zero before and after."""
    return Kernel(size).build()


def case(size: Product, seed: int = 0) -> Case:
    """The kernel with small integers, whose sums are exact in any order."""
    rng = np.random.default_rng(seed)
    a = rng.integers(-8, 9, (size.m, size.k)).astype("f4")
    x = rng.integers(-8, 9, size.k).astype("f4")
    return _case(size, a, x, 0.0)


def real_case(size: Product, seed: int = 0) -> Case:
    """The kernel with random reals: what differs between runs would show that the order of summation does."""
    rng = np.random.default_rng(seed)
    a, x = rng.standard_normal((size.m, size.k)).astype("f4"), rng.standard_normal(size.k).astype("f4")
    return _case(size, a, x, 1e-5)


def _case(size: Product, a: Array, x: Array, tolerance: float) -> Case:
    func, groups = build(size), size.grid[0]
    args = {"a": a, "x": x, "y": np.full(size.m, np.nan, "f4"), "counter": np.zeros(groups, "u4"),
            "slots": np.full(size.splits * groups * size.rows, np.nan, "f4")}  # fmt: skip
    want = {"y": a.astype("f8") @ x.astype("f8"), "counter": np.zeros(groups, "u4")}
    return Case(func, args, want, tolerance, ("y", "slots"))


#: Small ones (seconds on the emulator): the ring goes round, does not fill up, ends in part of a chunk; ragged rows.
SIZES = {
    "even": Product(32, 8 * CHUNK, warps=2, splits=2),
    "ragged": Product(21, 9 * CHUNK + 52, warps=2, splits=3),
    "short": Product(5, 4, warps=1, splits=1),
    "uneven": Product(16, 5 * CHUNK, warps=1, splits=3),
}
LARGE = {"large": Product(4096, 64 * CHUNK, warps=8, splits=8), "large_ragged": Product(4091, 63 * CHUNK + 4, splits=7)}
