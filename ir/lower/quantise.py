"""Arrays of f16 quantised: largest elements by the bits of their halves, integers by the last place of a large f32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .. import tile_quantise as t
from ..expr import Expr, Value, all_of
from ..numbers.attention import HALVES, LOW, MAGIC_FLOAT
from ..types import f16, f32, s32, u16, u32
from .context import Context, rule

#: The bits of two halves without their signs, and of the upper one.
BOTH, UPPER = 0x7FFF7FFF, 0x7FFF0000
#: Pieces that a thread has under way.
UNROLL = 4


#: Words of a piece.
WORDS = t.PIECE // 2


@contextmanager
def _pieces(cx: Context, op: t.OfArray, begin: int = 0) -> Iterator[Expr]:
    """In the blocks of the array, the place of each of the thread's pieces but the first ``begin``, in words."""
    b, threads = cx.b, cx.func.threads
    first = b.let("first", (cx.bx % op.of + begin * op.of) * threads + cx.tid)
    with b.for_("piece", first, op.src.size // WORDS, op.of * threads, unroll=UNROLL) as piece:
        yield piece * WORDS


def _first_pieces(cx: Context, op: t.FetchPieces | t.Quantise) -> Iterator[tuple[int, Expr, Expr]]:
    """Of each of the thread's first pieces, which are held: its number, its place in words, and whether it exists."""
    b, threads = cx.b, cx.func.threads
    for number in range(op.held.size // WORDS):
        piece = b.let("piece", (cx.bx % op.of + number * op.of) * threads + cx.tid)
        yield number, piece * WORDS, piece.lt(op.src.size // WORDS)


@rule(t.FetchPieces)
def fetch_pieces(cx: Context, op: t.FetchPieces) -> None:
    def fetch() -> None:
        for number, at, here in _first_pieces(cx, op):
            for i, v in enumerate(cx.b.ldv(op.src, at, WORDS, where=here, cache="nc", hint="pair")):
                cx.b.st(op.held, number * WORDS + i, v)

    cx.guard(_mine(cx, op), fetch)


def _mine(cx: Context, op: t.OfArray) -> Expr:
    return cx.b.let("mine", all_of(cx.bx.ge(op.number * op.of), cx.bx.lt((op.number + 1) * op.of)))


@rule(t.FindLargest)
def find_largest(cx: Context, op: t.FindLargest) -> None:
    cx.guard(_mine(cx, op), lambda: _largest(cx, op))


def _largest(cx: Context, op: t.FindLargest) -> None:
    b = cx.b
    top = b.alloc("top", u32, 2)
    cx.clear(top)
    with _pieces(cx, op) as at:
        for v in b.ldv(op.src, at, WORDS, cache="nc", hint="pair"):
            bits = b.binary("and", v, BOTH)  # of finite numbers greater ones have greater bits
            for i, half in enumerate((bits, b.binary("shl", bits, 16))):
                b.st(top, i, b.binary("max", b.ld(top, i), half))
    found = b.binary("and", b.binary("max", b.ld(top, 0), b.ld(top, 1)), UPPER)
    for far in (16, 8, 4, 2, 1):
        found = b.binary("max", found, b.shfl("xor", found, far))
    b.st(op.over, cx.warp, found, where=cx.lane.eq(0))
    b.barrier()
    warps = cx.func.threads // 32
    found = b.ld(op.over, cx.lane, where=cx.lane.lt(warps) if warps < 32 else None)
    for far in (16, 8, 4, 2, 1):
        found = b.binary("max", found, b.shfl("xor", found, far))
    half = b.bitcast(b.convert(b.binary("shr", found, 16), u16), f16)
    b.st(op.tops, cx.bx, b.convert(half, f32), where=cx.tid.eq(0), cache="cg")


def _top(cx: Context, op: t.Quantise, number: int) -> Value:
    """The largest of an array, or what is not finite: a sum of numbers that are not negative tells."""
    b = cx.b
    top, all_ = None, None
    for first in range(0, op.of, 32):
        at = cx.lane + first
        v = b.ld(op.tops, at + number * op.of, where=at.lt(op.of) if op.of % 32 else None, cache="cg", hint="top")
        top = v if top is None else b.binary("max", top, v)
        all_ = v if all_ is None else b.binary("add", all_, v)
    assert top is not None and all_ is not None
    for far in (16, 8, 4, 2, 1):
        top = b.binary("max", top, b.shfl("xor", top, far))
        all_ = b.binary("add", all_, b.shfl("xor", all_, far))
    return b.fma(all_, b.const(f32, 0.0), top, hint="top")


@rule(t.Quantise)
def quantise(cx: Context, op: t.Quantise) -> None:
    cx.guard(_mine(cx, op), lambda: _quantised(cx, op))


def _quantised(cx: Context, op: t.Quantise) -> None:
    b = cx.b
    top, zero, one = _top(cx, op, op.number), b.const(f32, 0.0), b.const(f32, 1.0)
    most, magic = b.const(f32, float(op.most)), b.const(f32, MAGIC_FLOAT)
    some = b.compare("ne", top, zero)
    by = b.select(some, b.binary("div", most, top), zero)
    scale = b.select(some, b.binary("div", top, most), one)
    for number in op.watched:
        scale = b.fma(_top(cx, op, number), zero, scale)
    b.st(op.scale, 0, scale, where=all_of(cx.tid.eq(0), cx.bx.eq(op.number * op.of)))

    def put(pairs: Sequence[Value], at: Expr, where: Expr | None = None) -> None:
        found = [half for v in pairs for half in cx.halves(v, f16)]
        words = [b.bitcast(b.fma(x, by, magic), u32) for x in found]
        low = [b.prmt(words[i], words[i + 1], LOW) for i in range(0, t.PIECE, 2)]
        made = [b.bitcast(b.prmt(low[i], low[i + 1], HALVES), s32) for i in (0, 2)]
        b.st(op.dst, b.let("to", at // 2), *made, where=where)

    for number, at, here in _first_pieces(cx, op):
        put([b.ld(op.held, number * WORDS + i, hint="pair") for i in range(WORDS)], at, here)
    if op.src.size > op.held.size * op.of * cx.func.threads:
        with _pieces(cx, op, op.held.size // WORDS) as at:
            put(b.ldv(op.src, at, WORDS, cache="nc", hint="pair"), at)
