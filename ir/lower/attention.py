"""Sparse attention: a block's scores, exponentials and values; what becomes of the sums of a task.

A lane is (g, t) = (lane / 4, lane mod 4).  Scores of keys 8 j + 2 t and 8 j + 2 t + 1 with row g lie in its registers,
which is where the exponentials of ``v^T p^T`` belong, if v's keys are taken in the order that two ``prmt`` make of what
``ldmatrix`` transposes: pairs of bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from .. import tile_attention as t
from .. import warp as w
from ..builder import Builder
from ..expr import TRUE, Expr, Value, all_of, as_expr, minimum
from ..numbers.attention import FIRST, HALVES, HIGH, LOW, MAGIC, MAGIC_FLOAT, PIECE, ROUND, ROWS, SECOND, STEP
from ..tile_softmax import SoftmaxRows
from ..types import Buffer, f16, f32, u32
from .context import Context, rule

#: Bytes 0 and 2, and 1 and 3, of two words: even and odd columns of transposed pairs of bytes.
EVEN, ODD = 0x6420, 0x7531
#: The sign of each byte, everywhere in it; what puts four bits at the signs of four bytes, when they are multiplied.
SIGNS, SPREAD = 0xBA98, 0x10204080
#: Rows of a phase of ``ldmatrix`` that may lie in one bank: the mask decides which keys a task has.
DEGREE = 8
#: Parts whose sums are joined without a loop.
UNROLLED = 8


def cache_of(op: t.OfTask | t.LoadTask | SoftmaxRows) -> str:
    """How what is given is read: past what is kept of it, where it is written while this kernel begins."""
    return "cg" if op.fresh else "nc"


def score_scale(b: Builder, op: t.Scaled | SoftmaxRows) -> Value:
    """What a score is multiplied by to be a power of two."""
    q, k = (b.ld(buf, 0, cache=cache_of(op), hint="scale") for buf in (op.q_scale, op.k_scale))
    return b.binary("mul", b.binary("mul", q, k), b.const(f32, math.log2(math.e) / math.sqrt(op.d)), hint="scale")


def powers(b: Builder, scores: Sequence[Value], top: Value, scale: Value, bits: int) -> list[Value]:
    """Words whose low ``bits`` bits are the rounded exponentials of scores (MAGIC added), the most that of ``top``."""
    most = b.const(f32, math.log2(2**bits - 1), hint="most")
    rounder = b.const(f32, ROUND, hint="round")
    words: list[Value] = []
    for s in scores:
        below = b.binary("sub", b.bitcast(s, f32), top)
        power = b.unary("exp2", b.fma(below, scale, most), hint="p")
        words.append(b.bitcast(b.binary("add", power, rounder), u32))
    return words


def inverse(b: Builder, v: Value) -> Value:
    """1 / v, or 0 where v is 0."""
    zero = b.const(f32, 0.0)
    return b.select(b.compare("lt", zero, v), b.binary("div", b.const(f32, 1.0), v), zero)


class _Lane:
    """What a lane knows of its task."""

    def __init__(self, cx: Context) -> None:
        self.cx, self.b = cx, cx.b
        self.g, self.t = cx.coordinates()
        self.magic = self.b.const(f32, MAGIC_FLOAT, hint="magic")

    def pair(self, v: Value) -> tuple[Value, Value]:
        """A number that lanes have of row g: that of rows 2 t and 2 t + 1."""
        lane = self.b.let("row0", self.t * 8)
        return self.b.shfl("idx", v, lane), self.b.shfl("idx", v, lane + 4)

    def over_row(self, op: str, v: Value) -> Value:
        """The sum or the largest of the four lanes of a row."""
        for far in (1, 2):
            v = self.b.binary(op, v, self.b.shfl("xor", v, far))
        return v


def _look(cx: Context, op: t.LoadTask | t.Attend, number: Expr) -> None:
    """Loads the places of a block."""
    at = (number * STEP + cx.lane) * op.steps
    for i, v in enumerate(cx.b.ldv(op.places, at, op.steps, cache="nc", hint="place")):
        cx.b.st(op.coming, i, v)


@rule(t.LoadTask)
def load_task(cx: Context, op: t.LoadTask) -> None:
    """Places (a task without keys may begin behind them all), and words of row g of q: 4 t bytes on, of each 16."""
    b, (g, place) = cx.b, cx.coordinates()
    _look(cx, op, minimum(cx.resolve(op.begin), op.places.size // (STEP * op.steps) - 1))
    query = b.let("query", cx.resolve(op.row) * op.height + g)
    where = b.let("there", all_of(*[g.lt(op.height)] * (op.height < ROWS), query.lt(op.queries)))
    at = b.let("q0", (cx.resolve(op.head) * op.queries + query) * (op.d // 4) + place)
    for i in range(op.d // PIECE):
        b.st(op.query, i, b.ld(op.q, at + 4 * i, where=where, cache=cache_of(op), hint="q"))


@rule(t.Attend)
def attend(cx: Context, op: t.Attend) -> None:
    """The places of the next block are on their way while one is worked on."""
    b, me, begin, end = cx.b, _Lane(cx), cx.resolve(op.begin), cx.resolve(op.end)
    # Zeros that nvcc knows to be such, or one and the same, it would put beside copies of q, for every mma anew.
    never, nothing = b.let("never", end.lt(begin)), begin * (STEP * op.steps)
    zeros = [b.ld(op.places, nothing + i, where=never, cache="nc", hint="none") for i in range(op.d // PIECE)]
    cx.clear(op.sums)
    for buf in (op.top, op.total):
        cx.clear(buf)
    scale = score_scale(b, op)
    cx.all(op.ready)
    with b.for_("block", begin, end, unroll=1) as number:
        words = [b.bitcast(b.ld(op.query, i, hint="q"), u32) for i in range(op.d // PIECE)]
        block = _Block(me, op, [b.ld(op.coming, i, hint="place") for i in range(op.steps)])
        later = b.let("later", number + 1)
        cx.guard(later.lt(end), partial(_look, cx, op, later))
        block.run([v for both in zip(words, zeros, strict=True) for v in both], scale)
    cx.all(op.then)


class _Block:
    """A block of steps: their scores at once, then their exponentials and values."""

    def __init__(self, me: _Lane, op: t.Attend, places: Sequence[Value]) -> None:
        self.me, self.b, self.op, self.words, top = me, me.b, op, places, op.k.size - PIECE
        both = ((p & FIRST, p >> SECOND & FIRST) for p in places)
        self.places = [tuple(self.b.let("at", at, hi=top) for at in pair) for pair in both]
        magic = self.b.name(as_expr(MAGIC), "zero")
        self.zeros = (magic,) * 4

    def run(self, q: Sequence[Value], scale: Value) -> None:
        """Everything of the block; ``q``: of each mma's a, the rows from 8 on among them, which are zeros."""
        b, op, me = self.b, self.op, self.me
        scores = [self._scores(q, place) for place in self.places]
        largest: Value | None = None
        for step in scores:
            for v in step:
                largest = v if largest is None else b.binary("max", largest, v)
        assert largest is not None
        before = b.ld(op.top, 0, hint="before")
        top = b.binary("max", before, b.bitcast(me.over_row("max", largest), f32), hint="top")
        b.st(op.top, 0, top)
        rest = b.unary("exp2", b.binary("mul", b.binary("sub", before, top), scale), hint="rest")
        planes = [self._exponentials(step, top, scale, word) for step, word in zip(scores, self.words, strict=True)]
        total = self._total(planes)
        b.st(op.total, 0, b.fma(b.ld(op.total, 0, hint="total"), rest, total))
        self._values(planes, me.pair(rest))

    def _scores(self, q: Sequence[Value], place: Sequence[Expr]) -> list[Value]:
        """Of the lane's eight keys of a step, MAGIC added."""
        b, op, pairs = self.b, self.op, range(self.op.d // (2 * PIECE))
        keys = [[self._matrices(op.k, half, pair, False) for pair in pairs] for half in place]
        out: list[Value] = []
        for j in range(4):
            made: Sequence[Value] = self.zeros
            for pair in pairs:
                own = keys[j // 2][pair][j % 2 * 2 :][:2]
                made = b.mma("s8.m16n8k32", q[4 * pair : 4 * pair + 4], own, made, hint="s")
            out += made[:2]
        return out

    def _matrices(self, buf: Buffer, place: Expr, pair: int, trans: bool) -> tuple[Value, ...]:
        """Of 8 keys two pieces, of 8 others two: four matrices; transposed, their pairs of bytes.

        So the two of a key follow one another, as an mma's b wants them.
        """
        out = tuple(self.b.fresh("m", u32) for _ in range(4))
        self.b.emit(w.LdMatrix(out, buf, place ^ (pair * 2 * PIECE) if pair else place, trans, DEGREE))
        return out

    def _exponentials(self, scores: Sequence[Value], top: Value, scale: Value, word: Value) -> list[list[Value]]:
        """Of a step, as an mma's b: two words of each plane, the low bytes first; 0 where the task has no key."""
        b, op = self.b, self.op
        words = powers(b, scores, top, scale, op.bits)
        kept, planes = self._kept(word), []
        for which in (LOW, HIGH)[: op.bits // 8]:
            pairs = [b.prmt(words[i], words[i + 1], which) for i in range(0, 8, 2)]
            made = (b.prmt(pairs[i], pairs[i + 1], HALVES) for i in (0, 2))
            planes.append([b.binary("and", p, mask, hint="p") for p, mask in zip(made, kept, strict=True)])
        return planes

    def _kept(self, word: Value) -> list[Value]:
        """Of the lane's two words of a step: bytes of ones where the task has a key, else of zeros."""
        b, found = self.b, self.b.fresh("found", u32)
        b.emit(w.Ballot((found,), (word & 1).ne(0)))
        bits = b.binary("shr", found, self.me.t * 8, hint="kept")
        each = (b.binary("and", n, 15) for n in (bits, b.binary("shr", bits, 4)))
        signs = [b.binary("mul", n, SPREAD) for n in each]
        return [b.prmt(v, v, SIGNS) for v in signs]

    def _total(self, planes: Sequence[Sequence[Sequence[Value]]]) -> Value:
        """The sum of the lane's exponentials."""
        b, total = self.b, None
        for which in reversed(range(len(planes[0]))):
            made = b.convert(b.name(as_expr(0), "none"), u32)
            for step in planes:
                for word in step[which]:
                    out = b.fresh("count", u32)
                    b.emit(w.Dp4a((out,), word, b.convert(b.name(as_expr(0x01010101), "ones"), u32), made))
                    made = out
            made = made if total is None else b.binary("add", b.binary("mul", total, as_expr(256)), made)
            total = made
        assert total is not None
        return b.convert(total, f32, hint="sum")

    def _values(self, planes: Sequence[Sequence[Sequence[Value]]], rest: tuple[Value, Value]) -> None:
        """``sums * rest`` and the products of the block."""
        b, op = self.b, self.op
        made: list[list[Sequence[Value]]] = [[self.zeros] * (op.d // PIECE) for _ in planes[0]]
        for place, step in zip(self.places, planes, strict=True):
            values = [[self._matrices(op.v, half, pair, True) for half in place] for pair in range(op.d // (2 * PIECE))]
            for x in range(op.d // PIECE):
                m = values[x // 2]
                a = [b.prmt(half[x % 2], half[x % 2 + 2], which) for half in m for which in (EVEN, ODD)]
                for plane, words in enumerate(step):
                    made[plane][x] = b.mma("s8.u8.m16n8k32", a, words, made[plane][x], hint="o")
        for x in range(op.d // PIECE):
            for e in range(4):
                each = [b.binary("sub", b.bitcast(plane[x][e], f32), self.me.magic) for plane in made]
                new = each[0] if len(each) == 1 else b.fma(each[1], b.const(f32, 256.0), each[0])
                b.st(op.sums, x * 4 + e, b.fma(b.ld(op.sums, x * 4 + e, hint="c"), rest[e % 2], new))


# ------------------------------------------------------------------------------------------------ what becomes of it
@rule(t.StorePart)
def store_part(cx: Context, op: t.StorePart) -> None:
    b, me = cx.b, _Lane(cx)
    total = me.over_row("add", b.ld(op.total, 0, hint="total"))
    shares, number = me.pair(inverse(b, total)), cx.resolve(op.number)
    top = b.binary("mul", b.binary("sub", b.ld(op.top, 0, hint="top"), me.magic), score_scale(b, op), hint="top")
    b.st(op.stats, (number * ROWS + me.g) * 2, top, total, where=me.t.eq(0), cache="cg")
    for x in range(op.d // PIECE):
        vals = [b.binary("mul", b.ld(op.sums, x * 4 + e, hint="c"), shares[e % 2]) for e in range(4)]
        at = ((number * (op.d // PIECE) + x) * 32 + cx.lane) * 4
        b.st(op.partial, at, *(b.convert(v, f16) for v in vals), cache="cg")


def _store(
    cx: Context, op: t.StoreAttention | t.JoinParts, sums: Buffer, shares: tuple[Value, Value], head: Expr, row: Expr,
    lane: tuple[Expr, Expr],
) -> None:  # fmt: skip
    """Sums as lanes hold them, times shares of rows 2 t and 2 t + 1, to the result."""
    b, (g, place) = cx.b, lane
    for i in (0, 1):
        query = b.let("query", row * op.height + place * 2 + i)
        there = [(place * 2 + i).lt(op.height)] * (op.height < ROWS)
        there += [query.lt(op.queries)] * (op.queries % op.height != 0)
        at = b.let("to", (head * op.queries + query) * op.d + g * 2)
        for x in range(op.d // PIECE):
            vals = [b.binary("mul", b.ld(sums, x * 4 + e, hint="c"), shares[i]) for e in (i, i + 2)]
            where = all_of(*there)
            b.st(op.out, at + x * PIECE, *(b.convert(v, f16) for v in vals), where=None if where == TRUE else where)


@rule(t.StoreAttention)
def store_attention(cx: Context, op: t.StoreAttention) -> None:
    b, me = cx.b, _Lane(cx)
    total = me.over_row("add", b.ld(op.total, 0, hint="total"))
    own = b.binary("mul", inverse(b, total), b.ld(op.v_scale, 0, cache=cache_of(op), hint="scale"), hint="share")
    _store(cx, op, op.sums, me.pair(own), cx.resolve(op.head), cx.resolve(op.row), (me.g, me.t))


@rule(t.JoinParts)
def join_parts(cx: Context, op: t.JoinParts) -> None:
    b, (g, place) = cx.b, cx.coordinates()
    rows = -(-op.queries // op.height)
    task = b.let("task", cx.bx * (cx.func.threads // 32) + cx.warp)
    cx.guard(b.let("is", task.lt(op.heads * rows)), lambda: _joined(cx, op, task, rows, g, place))


def _joined(cx: Context, op: t.JoinParts, task: Expr, rows: int, g: Expr, place: Expr) -> None:
    b, wide = cx.b, op.d // PIECE
    first = b.let("first", task * op.parts)
    tops, whole, sums = (b.alloc(name, f32, size) for name, size in (("tops", 2), ("whole", 2), ("sums", op.d // 4)))
    unroll = 0 if op.parts <= UNROLLED else 4

    def stats(part: Expr) -> tuple[Value, ...]:
        """Largest score and sum of rows 2 t and 2 t + 1."""
        return b.ldv(op.stats, (first + part) * (2 * ROWS) + place * 4, 4, cache="cg", hint="stat")

    scale = b.ld(op.v_scale, 0, cache="cg", hint="scale")
    for i, v in enumerate(stats(as_expr(0))[::2]):
        b.st(tops, i, v)
    with b.for_("part", 1, op.parts, unroll=unroll) as part:
        for i, v in enumerate(stats(part)[::2]):
            b.st(tops, i, b.binary("max", b.ld(tops, i), v))
    cx.clear(whole)
    cx.clear(sums)
    with b.for_("part", 0, op.parts, unroll=unroll) as part:
        found, share = stats(part), []
        for i in (0, 1):
            over = b.unary("exp2", b.binary("sub", found[2 * i], b.ld(tops, i)))
            share.append(b.binary("mul", found[2 * i + 1], over, hint="share"))
            b.st(whole, i, b.binary("add", b.ld(whole, i), share[i]))
        for x in range(wide):
            at = (((first + part) * wide + x) * 32 + cx.lane) * 4
            for e, v in enumerate(b.ldv(op.partial, at, 4, cache="cg", hint="o")):
                b.st(sums, x * 4 + e, b.fma(b.convert(v, f32), share[e % 2], b.ld(sums, x * 4 + e, hint="c")))
    shares = [b.binary("mul", inverse(b, b.ld(whole, i)), scale) for i in (0, 1)]
    head, row = b.let("head", task // rows), b.let("row", task % rows)
    _store(cx, op, sums, (shares[0], shares[1]), head, row, (g, place))
