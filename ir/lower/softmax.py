"""A softmax over rows of integer scores: a warp goes over its vector row twice, for the largest and for all others.

A lane has four adjacent vectors of one row: 16 bytes of scores, and a word of each plane of exponentials.  Vectors of
fewer than 8 rows leave a warp room for several blocks at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from .. import tile_softmax as t
from .. import warp as w
from ..expr import Expr, Value, all_of, as_expr, maximum
from ..numbers.attention import HALVES, HIGH, LOW, MAGIC
from ..types import f32, s32, u32
from .attention import cache_of, inverse, powers, score_scale
from .context import Context, rule

#: Adjacent vectors of a lane, and turns of a loop whose loads are under way at once.
FOUR, UNROLL = 4, 4
#: The number whose four bytes are ones.
ONES: Final = 0x01010101


@rule(t.SoftmaxRows)
def softmax_rows(cx: Context, op: t.SoftmaxRows) -> None:
    rows = -(-op.m // op.height)
    task = cx.b.let("task", cx.bx * (cx.func.threads // 32) + cx.warp)
    cx.guard(cx.b.let("is", task.lt(op.batch * rows)), lambda: _Row(cx, op, task // rows, task % rows).run())


class _Four(NamedTuple):
    """Four scores of a lane, MAGIC added, and which of them are there (others are 0); the number of their block."""

    block: Expr
    there: list[Expr]
    scores: list[Value]


class _Row:
    """A vector row: its lanes, ``size`` for a block, and where its vectors are."""

    def __init__(self, cx: Context, op: t.SoftmaxRows, which: Expr, row: Expr) -> None:
        self.cx, self.b, self.op, b = cx, cx.b, op, cx.b
        quads, blocks = t.BLOCK // FOUR, op.scores.size // (op.batch * op.height * t.BLOCK)
        self.size = op.height * quads
        self.own, self.ahead = b.let("own", cx.lane % self.size), b.let("ahead", cx.lane // self.size)
        self.inner, self.quad = b.let("inner", self.own // quads), b.let("quad", self.own % quads)
        self.which, self.row = b.let("which", which), b.let("row", row)
        begin, end = (b.ld(op.ptr, self.row * 2 + i, cache="nc", hint=name, lo=0, hi=blocks * t.BLOCK)
                      for i, name in enumerate(("begin", "end")))  # fmt: skip
        self.many = b.let("many", maximum(end - begin, 0), hi=blocks * t.BLOCK)
        self.first = b.let("first", self.which * blocks + begin // t.BLOCK)

    def run(self) -> None:
        """The largest scores, then exponentials and their sums."""
        b, op = self.b, self.op
        scale, top = score_scale(b, op), b.alloc("top", s32, 1)
        self.cx.clear(top)  # MAGIC is far above it, whatever is added
        with self._blocks() as four:
            largest = b.ld(top, 0)
            for v in four.scores:
                largest = b.binary("max", largest, v)
            b.st(top, 0, largest)
        most = b.bitcast(self._over_row("max", b.ld(top, 0, hint="top")), f32, hint="top")
        planes = (LOW, HIGH)[: op.bits // 8]
        counts = b.alloc("counts", u32, len(planes))
        none, ones = self.cx.clear(counts), b.convert(b.name(as_expr(ONES), "ones"), u32)
        with self._blocks() as four:
            made = powers(b, four.scores, most, scale, op.bits)
            words = [b.select(there, v, none, hint="p") for there, v in zip(four.there, made, strict=True)]
            for number, which in enumerate(planes):
                halves = [b.prmt(words[i], words[i + 1], which) for i in (0, 2)]
                word, out = b.prmt(halves[0], halves[1], HALVES, hint="p"), b.fresh("count", u32)
                b.emit(w.Dp4a((out,), word, ones, b.ld(counts, number)))
                b.st(counts, number, out)
                plane = four.block * len(planes) + (len(planes) - 1 - number)
                b.st(op.values, plane * self.size + self.own, word)
        sums = [b.convert(self._over_row("add", b.ld(counts, i)), f32) for i in range(len(planes))]
        total = sums[0] if len(sums) == 1 else b.fma(sums[1], b.const(f32, 256.0), sums[0])
        # adds nothing, but where the scale of scores is no number, so that no row is one
        share = b.fma(scale, b.const(f32, 0.0), inverse(b, total))
        query = b.let("query", self.row * op.height + self.inner)
        mine = all_of(self.ahead.eq(0), self.quad.eq(0), query.lt(op.m))
        v_scale = b.ld(op.v_scale, 0, cache=cache_of(op), hint="scale")
        b.st(op.scale, self.which * op.m + query, b.binary("mul", share, v_scale), where=b.let("mine", mine))

    @contextmanager
    def _blocks(self) -> Iterator[_Four]:
        """The row's blocks, as many at once as the warp has lanes for."""
        b, op = self.b, self.op
        with b.for_("turn", self.ahead, (self.many + (t.BLOCK - 1)) // t.BLOCK, 32 // self.size, unroll=UNROLL) as turn:
            block = b.let("block", self.first + turn)
            vector = b.let("vector", turn * t.BLOCK + self.quad * FOUR)
            found = b.ldv(op.scores, (block * self.size + self.own) * FOUR, FOUR, cache="cg", hint="s")
            scores = [b.binary("add", v, MAGIC) for v in found]
            there = [b.let("there", (vector + e).lt(self.many)) for e in range(FOUR)]
            low = b.convert(b.name(as_expr(0), "low"), s32)
            yield _Four(block, there, [b.select(h, v, low) for h, v in zip(there, scores, strict=True)])

    def _over_row(self, op: str, v: Value) -> Value:
        """The sum or the largest of the lanes of a row."""
        for far in (1, 2, 8, 16):
            if far < t.BLOCK // FOUR or far >= self.size:
                v = self.b.binary(op, v, self.b.shfl("xor", v, far))
        return v
