"""Clusters: blocks sum up what all of them have, each for its part, turn by turn through each other's shared memory.

Every block reads a row of numbers for each turn.  It stores each other block's part of the row there, adds up what the
others have stored for its own part, in order of rank, and lets them store the next turn's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir import warp_cluster as wc
from sparsegen.ir.builder import Builder
from sparsegen.ir.expr import Const
from sparsegen.ir.types import Buffer, f32, u64

from .case import Case


@dataclass(frozen=True)
class Sums:
    """``clusters`` of ``size`` blocks of ``threads`` threads, ``vec`` elements a thread in each part of a row."""

    size: int = 2
    clusters: int = 3
    threads: int = 64
    vec: int = 4
    turns: int = 3

    def func(self) -> w.Func:
        size, part, blocks = self.size, self.threads * self.vec, self.clusters * self.size
        x = Buffer("x", f32, self.turns * blocks * size * part, "global")
        out = Buffer("out", f32, self.turns * blocks * part, "global")
        got = Buffer("got", f32, (size - 1) * part, "shared", 16)
        bars = Buffer("bars", u64, 2, "shared", 8)  # what others store is there; others have taken what was stored
        shell = w.Func("sums", (x, out), (got, bars), (blocks, 1, 1), self.threads, (), cluster=size)
        b, at = Builder(), shell.builtins()
        b.reserve(*at, "x", "out", "got", "bars")
        tid, rank = at["tid"], at["rank"]
        with b.if_(tid.eq(0)):
            b.emit(w.MbarInit(bars, Const(0), 1))
            b.emit(w.MbarInit(bars, Const(1), (size - 1) * self.threads // 32))
        b.emit(wc.ClusterBarrier())
        with b.for_("turn", 0, self.turns, unroll=1) as turn:
            row = b.let("row", (turn * blocks + at["bx"]) * (size * part) + tid * self.vec)
            with b.if_(tid.eq(0)):
                b.emit(w.MbarArrive(bars, Const(0), Const(got.nbytes)))
            with b.if_(turn.ge(1)):
                b.mbar_wait(bars, 1, (turn + 1) % 2, cluster=True)
            for more in range(1, size):
                to = b.let("to", (rank + more) % size)
                vals = b.ldv(x, row + to * part, self.vec)
                place = (size - 1 - more) * part + tid * self.vec  # as many ranks behind `to` as this block is
                b.emit(wc.ClusterSt(got, place, vals, bars, Const(0), to))
            sums = list(b.ldv(x, row + rank * part, self.vec))
            b.mbar_wait(bars, 0, turn % 2, cluster=True)
            for other in range(size - 1):
                more_ = b.ldv(got, other * part + tid * self.vec, self.vec)
                sums = [b.binary("add", s, v) for s, v in zip(sums, more_, strict=True)]
            b.st(out, (turn * blocks + at["bx"]) * part + tid * self.vec, *sums)
            b.sync()
            with b.if_(turn.lt(self.turns - 1)), b.if_(at["lane"].eq(0)):
                for more in range(1, size):
                    b.emit(wc.ClusterArrive(bars, Const(1), (rank + more) % size))
        return w.Func("sums", shell.params, shell.shared, shell.grid, self.threads, b.ops(), cluster=size)

    def case(self, seed: int = 0) -> Case:
        shape = self.turns, self.clusters, self.size, self.size, self.threads * self.vec
        x = np.random.default_rng(seed).integers(-9, 10, shape).astype("f4")
        want = x.sum(2)
        return Case(self.func(), {"x": x, "out": np.full_like(want, -7)}, {"out": want}, 0.0, ("out",))


PROGRAMS: Final = {f"sums{size}x{vec}": Sums(size, vec=vec) for size, vec in ((2, 4), (4, 2), (8, 1))}
LARGE: Final = {f"large{size}": Sums(size, 264 // size, 256, 4, 20) for size in (2, 4, 8)}
