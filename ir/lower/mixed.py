"""Bands with dense tiles and other entries: rows of x beside a tile, their products, sums by way of shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import tile_mixed as t
from .. import warp as w
from ..expr import TRUE, Const, Expr, Value, all_of, as_expr, minimum
from ..numbers.mixed import (
    AHEAD,
    PIECE,
    RECORD,
    ROW,
    SPAN,
    block_row,
    passes,
    rounds,
    share_of,
    steps,
    sums_pitch,
    tile_words,
)
from ..numbers.strips import DEPTH
from ..swizzle import swizzled
from ..types import f32, s32, tf32, u32
from .context import Context, phased, rule

#: Words of a lane's share of a fragment of 16 rows and 16 columns.
WORDS = 4
#: Of the bits of an f32 half a unit of tf32, and those that tf32 has.
HALF, KEPT = 0x1000, 0xFFFFE000
#: Lanes whose sums lie in one bank, at most: those of teams that have any rows of a band.
DEGREE = 8


@rule(t.ShareBands)
def share_bands(cx: Context, op: t.ShareBands) -> None:
    b = cx.b
    band = b.let("band", cx.bx // op.tiles)
    begin, end = b.ldv(op.spans, band * SPAN, SPAN, cache="nc", hint="span", lo=0, hi=op.dense)
    with cx.scope():
        cx.env |= {
            op.begin: begin, op.turns: b.let("turns", end - begin, lo=0, hi=op.longest),
            op.first: b.let("first", band * op.rows), op.column: b.let("column", cx.bx % op.tiles * op.cols),
        }  # fmt: skip
        cx.all(op.body)


@phased(t.CopyBand)
def copy_band(cx: Context, op: t.CopyBand) -> Callable[[], None]:
    item = op.src.dtype.nbytes
    b, each = cx.b, PIECE // item  # elements of a piece
    across, width = op.cols // each, block_row(op.cols, item)
    high, times = cx.func.threads // across, passes(op.tile, op.cols, cx.func.threads, item)
    first, piece = b.let("down", cx.tid // across), b.let("piece", cx.tid % across)
    place, inner = swizzled(op.tile, width * item, width * item, item), b.let("inner", piece % (width // each) * each)
    block = piece // (width // each) * (op.tile * width)
    rows = [minimum(first + i * high, op.tile - 1) for i in range(times)]
    own = [b.let("own", block + place(row, inner)) for row in rows]
    real = [(first + i * high).lt(op.tile) for i in range(times)]
    column = b.let("from", (cx.resolve(op.column) + piece * each) % op.n)  # lanes' pieces stay side by side
    begin, top_k = cx.resolve(op.begin), -(-op.k // op.tile) - (not op.blanks)
    zero = b.const(op.dst.dtype, 0.0, hint="zero") if op.k % op.tile or op.blanks else None

    def look(turn: Expr) -> None:
        """Looks up the columns of 32 turns; what lies beyond the block's own is another's, and used by none."""
        at = b.let("at", begin + turn + cx.lane)
        found = b.ld(op.columns, at, where=at.lt(op.columns.size), cache="nc", hint="k", lo=0, hi=top_k)
        b.st(op.listed, 0, found)

    def turn() -> None:
        now = cx.resolve(op.turn)
        if not isinstance(now, Const) and now.hi >= AHEAD:
            with b.if_((now % AHEAD).eq(0)):
                look(now)
        listed = b.ld(op.listed, 0, hint="k", lo=0, hi=top_k)
        top = b.let("top", b.shfl("idx", listed, b.let("which", now % AHEAD), hint="k") * op.tile)
        slot = b.let("to", now % op.stages * (op.tile * op.cols))
        for at, row, has in zip(own, rows, real, strict=True):
            k = top + row
            where = has if zero is None else all_of(has, k.lt(op.k))
            b.cp_async(op.dst, slot + at, op.src, k * op.n + column, each, where=None if where == TRUE else where)
            if zero is not None:
                b.st(op.dst, slot + at, *[zero] * each, where=all_of(has, k.ge(op.k)))

    look(as_expr(0))
    return turn


@rule(t.MultiplyBand)
def multiply_band(cx: Context, op: t.MultiplyBand) -> None:
    multiply = _by_elements if op.x.dtype is f32 else _by_matrices
    down, across, slices = op.warps
    every = rounds(op.tile, op.x.dtype.nbytes, slices)
    if every == 1:
        multiply(cx, op)
        return
    warp = cx.me()
    mine = cx.b.let("mine", warp // (down * across * (slices // every)))
    with cx.b.if_((cx.resolve(op.turn) % every).eq(mine)):
        multiply(cx, op)


def _by_matrices(cx: Context, op: t.MultiplyBand) -> None:
    """Of 16-bit numbers: ``ldmatrix`` turns rows of x."""
    b, width = cx.b, block_row(op.cols, 2)
    down, across, _ = op.warps
    high, wide, all_high = op.rows // down // DEPTH, op.cols // across // DEPTH, op.rows // DEPTH
    slot = b.let("slot", cx.resolve(op.turn) % op.stages)
    strip, part, slice_ = _warp(cx, op)
    each, first = _steps(op, slice_)
    top = first * all_high + strip * high  # of the fragments of a turn, k by k
    values = b.let("w0", slot * tile_words(op.rows, op.tile, 2) + (top * 32 + cx.lane) * WORDS)
    inner = b.let("inner", part % width + cx.lane // DEPTH * (PIECE // 2))
    begin = slot * (op.tile * op.cols) + part // width * (op.tile * width) + first * (DEPTH * width)
    own = b.let("x0", begin + swizzled(DEPTH, 2 * width, 2 * width)(cx.lane % DEPTH, inner))
    for j in range(each):
        strips = [b.ldv(op.values, values + (j * all_high + i) * (32 * WORDS), WORDS, hint="a") for i in range(high)]
        for q in range(wide):
            block, within = divmod(q * DEPTH, width)  # of a part that begins amid a block, its width is a power of 2
            at = ((own + j * (DEPTH * width)) ^ within) + block * (op.tile * width)
            xs = tuple(b.fresh("b", u32) for _ in range(WORDS))
            b.emit(w.LdMatrix(xs, op.x, as_expr(at), True))
            for i, a in enumerate(strips):
                for h in (0, 1):
                    cx.multiply(op.shape, a, xs[2 * h : 2 * h + 2], op.acc, (i * 2 * wide + 2 * q + h) * 4)


def _by_elements(cx: Context, op: t.MultiplyBand) -> None:
    """Of f32: a lane loads its two elements of each 8 rows of x and 8 columns, and rounds or splits them.

    Of 8 columns of W it has the even and the odd one of a pair, and so of the rows of x: the four even rows, and the
    four odd ones, of a swizzled block lie in different banks.

    Tensor cores cut off what a sum has beyond f32, towards zero, which after a thousand products is 1e-5 of it.  So
    what is split is summed up there within a turn, products of small parts first, and turns are added as f32 is.
    """
    b, width, (down, across, _), deep = cx.b, block_row(op.cols, 4), op.warps, DEPTH // 2
    high, blocks, all_high = op.rows // down // DEPTH, op.cols // across // 8, op.rows // DEPTH
    slot, (g, pair) = b.let("slot", cx.resolve(op.turn) % op.stages), cx.coordinates()
    strip, part, slice_ = _warp(cx, op)
    each, first = _steps(op, slice_)
    top = first * all_high + strip * high  # of the fragments of a turn, k by k
    values = b.let("w0", slot * tile_words(op.rows, op.tile, 4) + (top * 32 + cx.lane) * WORDS)
    begin = slot * (op.tile * op.cols) + part // width * (op.tile * width) + first * (deep * width)
    place = swizzled(deep, 4 * width, 4 * width, 4)
    own = [b.let("x0", begin + place(2 * pair + odd, part % width + g)) for odd in (0, 1)]
    acc, count = op.acc, high * blocks * 4
    if op.split:
        acc, zero = b.alloc("of_turn", f32, count), b.const(f32, 0.0, hint="zero")
        for e in range(count):
            b.st(acc, e, zero)
    for j in range(each):
        strips = [b.ldv(op.values, values + (j * all_high + i) * (32 * WORDS), WORDS, hint="a") for i in range(high)]
        parts = [_split(cx, a) for a in strips] if op.split else []
        smalls, bigs = [small for _, small in parts], [big for big, _ in parts]
        for q in range(blocks):
            block, within = divmod(q * 8, width)
            xs: list[Value] = []
            for at in own:
                here = ((at + j * (deep * width)) ^ within) + block * (op.tile * width)
                x = b.ld(op.x, here, hint="x", degree=ROW // (4 * width))
                xs.append(x if op.split else b.bitcast(b.convert(x, tf32), f32))
            products: list[tuple[Sequence[Sequence[Value]], Sequence[Value]]] = [(strips, xs)]
            if op.split:
                big, small = _split(cx, xs)
                products = [(smalls, big), (bigs, small), (bigs, big)]
            for fragments, of_x in products:  # one of all strips before the next: those of a strip wait for one another
                for i, a in enumerate(fragments):
                    cx.multiply(op.shape, a, of_x, acc, (i * blocks + q) * 4)
    if op.split:
        for e in range(count):
            b.st(op.acc, e, b.binary("add", b.ld(op.acc, e, hint="sum"), b.ld(acc, e, hint="part")))


def _split(cx: Context, values: Sequence[Value]) -> tuple[list[Value], list[Value]]:
    """Of f32 numbers the nearest ones of tf32, and what these leave, of which mma reads all but a unit of f32 at most.

    Bits are rounded as integers, which takes half as many instructions as a conversion, because that looks for what is
    not finite: here an infinity stays one, and whatever becomes of a NaN, what is left is NaN, as it is of an infinity.
    """
    b = cx.b
    up = [b.binary("add", b.bitcast(v, u32), HALF) for v in values]
    big = [b.bitcast(b.binary("and", v, KEPT), f32) for v in up]
    return big, [b.binary("sub", v, near) for v, near in zip(values, big, strict=True)]


def _warp(cx: Context, op: t.MultiplyBand | t.PutSums) -> tuple[Expr, Expr, Expr]:
    """The warp's strip of the band, its first column, and its slice of k."""
    b, (down, across, slices) = cx.b, op.warps
    strip, part = b.let("strip", cx.warp % down), cx.warp // down
    if slices == 1:
        return strip, b.let("part", part * (op.cols // across)), as_expr(0)
    return strip, b.let("part", part % across * (op.cols // across)), b.let("slice", part // across)


def _steps(op: t.MultiplyBand, slice_: Expr) -> tuple[int, Expr]:
    """Of the products along k of a turn how many a slice takes, and the first of these."""
    item, slices = op.x.dtype.nbytes, op.warps[-1]
    each, every = share_of(op.tile, item, slices), steps(op.tile, item)
    return each, (slice_ if slices <= every else slice_ % every) * each


@rule(t.PutSums)
def put_sums(cx: Context, op: t.PutSums) -> None:
    b, pitch, (down, across, _) = cx.b, sums_pitch(op.cols), op.warps
    high, blocks = op.rows // down // DEPTH, op.cols // across // 8
    g, lane = cx.coordinates()
    strip, part, slice_ = _warp(cx, op)
    at = b.let("at", (slice_ * op.rows + strip * (high * DEPTH) + g) * pitch + part + lane * 2)
    for i in range(high):
        for j in range(blocks):
            for half in (0, 1):
                pair = [b.ld(op.acc, 4 * (i * blocks + j) + 2 * half + e, hint="sum") for e in (0, 1)]
                b.st(op.dst, at + (DEPTH * i + 8 * half) * pitch + 8 * j, *pair)


@rule(t.EachRow)
def each_row(cx: Context, op: t.EachRow) -> None:
    b, teams = cx.b, cx.func.threads // op.team
    first = b.let("mine", cx.resolve(op.first) + cx.tid // op.team)
    count = op.rows // teams
    tops = {"row": op.m, "begin": op.entries, "end": op.entries, "place": op.place.hi}
    held = b.alloc("held", s32, RECORD)

    def look(number: Expr) -> None:
        found = tuple(b.fresh(name, s32, 0, top) for name, top in tops.items())
        b.emit(w.Ld(found, op.records, (first + number * teams) * RECORD, None, 0.0, "nc"))
        for i, v in enumerate(found):
            b.st(held, i, v)

    look(as_expr(0))
    cx.all(op.ahead)
    with cx.scope(), b.for_("i", 0, count, unroll=1) as i:
        own = [b.ld(held, e, hint=name, lo=0, hi=top) for e, (name, top) in enumerate(tops.items())]
        look(b.let("later", minimum(i + 1, count - 1)))
        cx.env |= dict(zip((op.row, op.begin, op.end, op.place), own, strict=True))
        cx.all(op.body)


@rule(t.TakeSums)
def take_sums(cx: Context, op: t.TakeSums) -> None:
    b, where, wide = cx.b, _first_group(cx, op), _wide(op)
    at, size = _of_lane(cx, op, op.place), op.rows * sums_pitch(op.cols)
    for e in _loads(op):
        starts = (at + (n * size + _column(op, e)) for n in range(op.slices))
        found = [b.ldv(op.src, start, wide, where=where, hint="sum", degree=DEGREE) for start in starts]
        for i, (total, *others) in enumerate(zip(*found, strict=True)):
            for v in others:
                total = b.binary("add", total, v, hint="sum")
            b.st(op.acc, e + i, total)


@rule(t.AddRows)
def add_rows(cx: Context, op: t.AddRows) -> None:
    b, where, wide = cx.b, _first_group(cx, op), _wide(op)
    first = cx.resolve(op.first)
    with b.for_("piece", first, first + cx.resolve(op.count), unroll=1) as piece:
        at = _of_lane(cx, op, piece)
        for e in _loads(op):
            found = b.ldv(op.src, at + _column(op, e), wide, where=where, hint="part", degree=DEGREE)
            for i, v in enumerate(found):
                b.st(op.acc, e + i, b.binary("add", b.ld(op.acc, e + i, hint="sum"), v))


@rule(t.PutRow)
def put_row(cx: Context, op: t.PutRow) -> None:
    b, where, wide = cx.b, _first_group(cx, op), _wide(op)
    at = _of_lane(cx, op, op.place)
    for e in _loads(op):
        found = [b.ld(op.acc, e + i, hint="sum") for i in range(wide)]
        b.st(op.dst, at + _column(op, e), *found, where=where, degree=DEGREE)


def _of_lane(cx: Context, op: t.TakeSums | t.PutRow | t.AddRows, row: Expr) -> Expr:
    """Where the lane's first column of a row of sums is."""
    return cx.b.let("from", cx.resolve(row) * sums_pitch(op.cols) + cx.lane % op.across * op.vec)


def _loads(op: t.TakeSums | t.PutRow | t.AddRows) -> range:
    """The first register of each load of a lane's sums."""
    return range(0, op.blocks * op.vec, _wide(op))


def _wide(op: t.TakeSums | t.PutRow | t.AddRows) -> int:
    """Sums that a load takes."""
    return min(op.vec, PIECE // op.acc.dtype.nbytes)


def _column(op: t.TakeSums | t.PutRow | t.AddRows, e: int) -> int:
    """How far from the lane's first column that of its register ``e`` is."""
    return e // op.vec * op.across * op.vec + e % op.vec


def _first_group(cx: Context, op: t.TakeSums | t.PutRow | t.AddRows) -> Expr | None:
    """Whether the lane is in the first of a team's groups; None where there is but one."""
    mine = (cx.lane // op.across % op.parts).eq(0)
    return None if mine == TRUE else mine
