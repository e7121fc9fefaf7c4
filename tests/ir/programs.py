"""Random expressions and random, valid warp programs for property tests."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from hypothesis import strategies as st

from sparsegen.ir import expr as ex
from sparsegen.ir import warp as w
from sparsegen.ir.builder import Builder
from sparsegen.ir.errors import IRError, Loc
from sparsegen.ir.expr import Const, Expr, Value
from sparsegen.ir.module import Launch, Module
from sparsegen.ir.types import Buffer, f16, f64, s32, u32, u64

NAMES = (Value("a", s32, 0, 7), Value("b", s32, -5, 9), Value("c", s32, 1, 4), Value("d", s32, 0, 100))
ARITH = ("+", "-", "*", "//", "%", "&", "|", "^", ">>", "<<", "min", "max")
COMPARE = ("<", "<=", "==", "!=")


def number(rng: random.Random, depth: int, leaves: Sequence[Value] = NAMES) -> Expr:
    """A random integer expression, simplified as it is built."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(leaves) if rng.random() < 0.6 else Const(rng.choice((0, 1, 2, 3, 4, 8, 31, -1, -7)))
    if rng.random() < 0.1:
        c = predicate(rng, depth - 1, leaves)
        return ex.select(c, number(rng, depth - 1, leaves), number(rng, depth - 1, leaves))
    for _ in range(20):
        a, b, op = number(rng, depth - 1, leaves), number(rng, depth - 1, leaves), rng.choice(ARITH)
        if op in ("<<", ">>") and not (0 <= b.lo and b.hi <= 8 and a.lo >= 0):
            continue
        try:
            e = ex.binary(op, a, b)
        except IRError:
            continue
        if abs(e.lo) < 2**31 and abs(e.hi) < 2**31:
            return e
    return rng.choice(leaves)


def predicate(rng: random.Random, depth: int, leaves: Sequence[Value] = NAMES) -> Expr:
    """A random predicate."""
    if depth > 0 and rng.random() < 0.4:
        op = rng.choice(("and", "or"))
        return ex.binary(op, predicate(rng, depth - 1, leaves), predicate(rng, depth - 1, leaves))
    below = max(0, depth - 1)
    return ex.binary(rng.choice(COMPARE), number(rng, below, leaves), number(rng, below, leaves))


seeds = st.integers(0, 2**32 - 1)


def expressions(depth: int = 4) -> st.SearchStrategy[Expr]:
    return seeds.map(lambda s: number(random.Random(s), depth))


class Generator:
    """Grows a function that the verifier accepts: loads and stores in range, converged collectives."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.u, self.v = Buffer("u", f64, 4096, "global"), Buffer("v", f64, 4096, "global", 128)
        self.tile, self.half = Buffer("tile", f64, 512, "shared"), Buffer("half", f16, 512, "shared")
        self.bars, self.words = Buffer("bars", u64, 4, "shared", 8), Buffer("words", u32, 64, "global")
        self.n = Value("n", s32, 1, 40)
        self.b = Builder(Loc("user.py", 3, 4))
        self.b.reserve("u", "v", "tile", "half", "bars", "words", "n", "tid", "lane", "warp", "bx", "by", "bz")

    def func(self) -> w.Func:
        shape = w.Func("k", (self.u, self.v, self.words, self.n), (self.tile, self.half, self.bars),
                       (6, 2, 1), 64, (), 2, (("tile", 500, 511),))  # fmt: skip
        built_in = shape.builtins()
        self.ints = [self.n, built_in["tid"], built_in["lane"], built_in["bx"]]
        self.floats = [self.b.const(f64, self.rng.choice((0.0, -1.5, 1e-9, 1e300, float("inf"))))]
        self.block(3, converged=True)
        return dataclasses.replace(shape, body=self.b.ops())

    def index(self, size: int, width: int = 1) -> Expr:
        e = ex.maximum(number(self.rng, 2, self.ints), 0)
        return ex.minimum(e, size // width - 1) * width

    def block(self, depth: int, converged: bool) -> None:
        ints, floats = list(self.ints), list(self.floats)
        for _ in range(self.rng.randint(1, 5)):
            self.rng.choice((self.scalar, self.memory, self.memory, self.integer))()
            if converged and self.rng.random() < 0.5:
                self.collective()
            if depth and self.rng.random() < 0.5:
                self.control(depth - 1, converged)
        self.ints, self.floats = ints, floats

    def control(self, depth: int, converged: bool) -> None:
        kind = self.rng.randrange(4)
        if kind == 0:
            with self.b.for_("i", 0, self.rng.choice((4, self.n)), unroll=self.rng.choice((None, 0, 2))) as i:
                assert isinstance(i, Value)
                self.ints.append(i)
                self.block(depth, converged)
                self.ints.remove(i)
        elif kind == 1:
            with self.b.if_(predicate(self.rng, 2, self.ints)):
                self.block(depth, False)
            if self.rng.random() < 0.5:
                with self.b.else_():
                    self.block(depth, False)
        elif kind == 2:
            self.b.mbar_wait(self.bars, self.rng.randrange(4), self.n & 1)
        else:
            regs = self.b.alloc("acc", f64, 8)
            with self.b.for_("r", 0, 8, unroll=0) as r:
                self.b.st(regs, r, self.rng.choice(self.floats))
            self.floats.append(self.b.ld(regs, 3))

    def scalar(self) -> None:
        def pick() -> Value:
            return self.rng.choice(self.floats)

        x = self.b.fma(pick(), pick(), pick())
        y = self.b.binary(self.rng.choice(("add", "sub", "mul", "div", "min", "max")), x, pick())
        z = self.b.select(predicate(self.rng, 2, self.ints), self.b.unary("neg", y), x)
        self.floats += [z, self.b.bitcast(self.b.bitcast(z, u64), f64)]

    def integer(self) -> None:
        e = self.b.let("e", number(self.rng, 3, self.ints))
        if isinstance(e, Value) and e not in self.ints:
            self.ints.append(e)

    def memory(self) -> None:
        where = predicate(self.rng, 1, self.ints) if self.rng.random() < 0.5 else None
        width = self.rng.choice((1, 2))
        buf = self.rng.choice((self.u, self.tile))
        self.floats += self.b.ldv(buf, self.index(512, width), width, where=where, other=-0.0)
        self.b.st(self.v, self.index(4096), self.rng.choice(self.floats), where=where, cache="cs")
        self.b.cp_async(self.tile, self.index(512, 2), self.u, self.index(4096, 2), 2, where)
        self.b.commit()
        self.b.wait(self.rng.randrange(3))
        old = self.b.atom("add", self.words, self.index(64), 1)
        self.b.unary("popc", old)

    def collective(self) -> None:
        self.b.barrier()
        self.b.sync()
        c = tuple(self.rng.choice(self.floats) for _ in range(2))
        self.floats += self.b.mma("f64.m8n8k4", c[:1], c[1:], c)
        self.floats.append(self.b.shfl("xor", c[0], 1))
        out = tuple(self.b.fresh("m", u32) for _ in range(4))
        self.b.emit(w.LdMatrix(out, self.half, self.index(512, 8), True, loc=self.b.loc))


def functions() -> st.SearchStrategy[w.Func]:
    return seeds.map(lambda s: Generator(s).func())


def module(func: w.Func) -> Module:
    return Module("m", (func,), (Launch("k", ("in", "out", "words", "n")),))
