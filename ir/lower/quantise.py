"""Arrays of f16 quantised: largest elements by the bits of their halves, integers by the last place of a large f32."""

from __future__ import annotations

from collections.abc import Iterator
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


@contextmanager
def _pieces(cx: Context, op: t.OfArray) -> Iterator[Expr]:
    """In the blocks of the array, the place of each of the thread's pieces, in words."""
    b, threads = cx.b, cx.func.threads
    first = b.let("first", (cx.bx % op.of) * threads + cx.tid)
    with b.for_("piece", first, 2 * op.src.size // t.PIECE, op.of * threads, unroll=UNROLL) as piece:
        yield piece * (t.PIECE // 2)


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
        for v in b.ldv(op.src, at, t.PIECE // 2, cache="nc", hint="pair"):
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
    with _pieces(cx, op) as at:
        found = [half for v in b.ldv(op.src, at, t.PIECE // 2, cache="nc", hint="pair") for half in cx.halves(v, f16)]
        words = [b.bitcast(b.fma(x, by, magic), u32) for x in found]
        pairs = [b.prmt(words[i], words[i + 1], LOW) for i in range(0, t.PIECE, 2)]
        made = [b.bitcast(b.prmt(pairs[i], pairs[i + 1], HALVES), s32) for i in (0, 2)]
        b.st(op.dst, b.let("to", at // 2), *made)
