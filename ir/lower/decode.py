"""Products that decode W for warpgroups: a lane's packed words ahead, zeros and kept values into swizzled tiles."""

from __future__ import annotations

from .. import tile_decode as t
from .. import warp as w
from ..expr import Expr, Value, all_of, as_expr
from ..numbers.decode import PLACES, WARPS, Entries, sharers
from ..numbers.groups import COPIERS, PIECE, ROWS, STEP
from ..numbers.nm import groups
from ..swizzle import swizzled
from ..types import Buffer, DType, u16
from .context import Context, rule


def _pieces(words: int) -> list[tuple[int, int]]:
    """A lane's words in loads of 4, 2 and 1: the first of each, and how many."""
    sizes = groups(words)
    return [(sum(sizes[:i]), size) for i, size in enumerate(sizes)]


def _part(cx: Context, op: t.LoadPacked | t.FetchPacked, turn: Expr) -> Expr:
    """The warp's part of the ring of words, of a turn; its mbarrier has the same number among those of words."""
    return cx.b.let("part", turn % op.ahead * WARPS + cx.warp % WARPS)


def _bar(op: t.LoadPacked | t.FetchPacked, part: Expr) -> Expr:
    return part + (op.bars.size - WARPS * op.ahead)


def _fetch(cx: Context, op: t.LoadPacked | t.FetchPacked, words: int, early: Expr) -> None:
    """Starts the copy of the warp's words of ``early`` steps on, if the tile has them."""
    b, size = cx.b, as_expr(32 * words)
    step = b.let("coming", cx.resolve(op.step) + early)
    with b.if_(step.lt(op.steps)):
        turns = op.src.size // (COPIERS * words)
        number = b.let("number", cx.resolve(op.tile) * op.steps + step, hi=turns - 1)
        part = _part(cx, op, cx.resolve(op.turn) + early)
        bar, source = b.let("bar", _bar(op, part)), number * (COPIERS * words) + cx.warp % WARPS * size
        b.emit(w.MbarArrive(op.bars, bar, size * op.src.dtype.nbytes))
        b.emit(w.BulkCopy(op.ring, part * size, op.src, source, size, op.bars, bar))


@rule(t.LoadPacked)
def load_packed(cx: Context, op: t.LoadPacked) -> None:
    b, words, turn = cx.b, op.dst.size, cx.resolve(op.turn)
    with b.if_(all_of(cx.resolve(op.step).lt(op.teams), cx.lane.eq(0))):
        with b.for_("early", 0, op.ahead, op.teams, unroll=1) as early:
            _fetch(cx, op, words, early)
    part = _part(cx, op, turn)
    b.mbar_wait(op.bars, _bar(op, part), turn // op.ahead % 2)
    for first, size in _pieces(words):
        at = part * (32 * words) + (cx.lane * size + first * 32)
        for i, v in enumerate(b.ldv(op.ring, at, size, hint="packed")):
            b.st(op.dst, first + i, v)


@rule(t.FetchPacked)
def fetch_packed(cx: Context, op: t.FetchPacked) -> None:
    with cx.b.if_(cx.lane.eq(0)):
        _fetch(cx, op, op.words, as_expr(op.ahead))


@rule(t.DecodeTile)
def decode_tile(cx: Context, op: t.DecodeTile) -> None:
    b, many = cx.b, sharers(op.groups)
    rows, lane = ROWS * op.groups, b.let("copier", cx.tid % COPIERS)
    row, part = b.let("row", lane // many), b.let("share", lane % many)
    slot, place = b.let("begin", cx.resolve(op.slot) * (STEP * rows)), swizzled(rows, 2 * STEP, 2 * STEP)
    zero = b.const(op.dst.dtype, 0.0, hint="zero")
    each = STEP // PIECE // many
    for i in range(each):
        b.st(op.dst, slot + place(row, (part * each + i) * PIECE), *[zero] * PIECE)
    if many > 1:
        b.sync()  # another lane's zeros are where this one's values go
    e, begin = Entries(op.run, op.runs), b.let("begin", slot + row * STEP)
    for i in range(op.runs):
        word = b.ld(op.entries, e.values + i // PLACES, hint="places")
        # a mask that nvcc sees the alignment by, and stores a run at once
        at = b.let("place", (word >> i % PLACES * 8) & (0x100 - op.run), hi=STEP - op.run)
        vals = [_half(cx, op.entries, i * op.run + j, op.dst.dtype) for j in range(op.run)]
        b.st(op.dst, begin + at, *vals, degree=_degree(op))
    # those that multiply fence: a fence here waits for the stores, which cost 4096^3 16 % on an H200
    b.sync()
    with b.if_(cx.lane.eq(0)):
        b.emit(w.MbarArrive(op.bars, cx.resolve(op.slot)))


def _half(cx: Context, words: Buffer, i: int, dtype: DType) -> Value:
    """Value ``i`` of words of two."""
    b, pair = cx.b, cx.b.ld(words, i // 2, hint="pair")
    part = b.binary("shr", pair, 16) if i % 2 else b.binary("and", pair, 0xFFFF)
    return b.bitcast(b.convert(part, u16), dtype)


def _degree(op: t.DecodeTile) -> int:
    """The worst bank-conflict degree: all rows of those lanes that a pass takes at once may keep the same banks."""
    at_once = 32 if op.run <= 2 else 64 // op.run
    return at_once // sharers(op.groups)
