"""N:M patterns on CUDA cores: rows a lane each, x in shared words, chunks of entries, sums over a tile's warps."""

from __future__ import annotations

from math import gcd

import numpy as np

from .. import tile_nm as t
from .. import tile_windows as tw
from ..expr import Expr, Value, all_of, as_expr, minimum
from ..layout import walk_degree
from ..numbers.nm import LANES, chunks, groups, x_words
from ..types import Buffer, DType, f32, u32
from .context import Context, rule

#: Turns of the loop that stages x whose loads are on their way at a time.
UNROLL = 4


@rule(t.ShareRows)
def share_rows(cx: Context, op: t.ShareRows) -> None:
    b, count = cx.b, -(-op.rows // LANES)
    warp = cx.me()
    tile = b.let("tile", cx.bx // op.tiles * op.row_warps + warp // op.parts)
    with cx.scope():
        cx.env |= {
            op.tile: b.let("there", minimum(tile, count - 1)), op.part: b.let("part", warp % op.parts),
            op.row: b.let("row", tile * LANES + cx.lane), op.column: b.let("column", cx.bx % op.tiles * op.cols),
        }  # fmt: skip
        cx.all(op.body)


@rule(t.StageColumns)
def stage_columns(cx: Context, op: t.StageColumns) -> None:
    (_by_column if op.order == "column" else _by_row)(cx, op)
    cx.b.barrier()


def words_of(cx: Context, dtype: DType, cols: int, columns: list[tuple[Value, ...]]) -> list[list[Value]]:
    """The words of adjacent rows of x, of each word of a row: its one column, or its two, have been loaded."""
    b = cx.b
    if x_words(cols, dtype.nbytes) == cols:
        return [[b.bitcast(cx.convert(v, f32), u32) for v in column] for column in columns]
    pairs = zip(columns[::2], columns[1::2], strict=True)
    return [[b.pack(low, high, hint="pair") for low, high in zip(*pair, strict=True)] for pair in pairs]


def _by_column(cx: Context, op: t.StageColumns) -> None:
    """A thread takes adjacent rows of a word of x, within a window; neighbours take neighbouring rows."""
    b, words = cx.b, x_words(op.cols, op.src.dtype.nbytes)
    rows, wide = gcd(op.vec, op.m), op.cols // words
    column, pieces = cx.resolve(op.column), op.held // rows
    with b.for_("piece", cx.tid, words * pieces, cx.func.threads, unroll=UNROLL) as piece:
        which, k = b.let("which", piece // pieces), b.let("k", piece % pieces * rows)
        loaded = []
        for e in range(wide):
            col = b.let("col", column + which * wide + e)
            where = _inside(op, k, col)
            loaded.append(b.ldv(op.src, col * op.k + k, rows, where=where, cache="nc", hint="x"))
        (made,) = words_of(cx, op.src.dtype, op.cols, loaded)
        at = b.let("to", (k // op.m * words + which) * op.m + k % op.m)
        four = 4 if rows % 4 == 0 else rows
        degree = _degree(op, rows, four)
        for first in range(0, rows, four):
            b.st(op.dst, at + first, *made[first : first + four], degree=degree)


def _by_row(cx: Context, op: t.StageColumns) -> None:
    """A thread takes a row of x; its words lie a window apart."""
    b, words = cx.b, x_words(op.cols, op.src.dtype.nbytes)
    column, wide, degree = cx.resolve(op.column), gcd(op.vec, op.cols), _degree(op, 1, 1)
    with b.for_("k", cx.tid, op.held, cx.func.threads, unroll=UNROLL) as k:
        found: list[tuple[Value, ...]] = []
        for first in range(0, op.cols, wide):
            col = b.let("col", column + first)
            loaded = b.ldv(op.src, k * op.n + col, wide, where=_inside(op, k, col), cache="nc", hint="x")
            found += [(v,) for v in loaded]
        at = b.let("to", k // op.m * (words * op.m) + k % op.m)
        for which, (word,) in enumerate(words_of(cx, op.src.dtype, op.cols, found)):
            b.st(op.dst, at + which * op.m, word, degree=degree)


def _degree(op: t.StageColumns, rows: int, wide: int) -> int:
    """The worst bank-conflict degree where neighbouring threads store ``wide`` words each, ``rows`` rows apart.

    Within a window there is none; where a warp goes on in another one, several words of a row further, there may be.
    """
    words, k = x_words(op.cols, op.src.dtype.nbytes), np.arange(0, op.held, rows)
    which = np.arange(words if op.order == "column" else 1)[:, None]
    return walk_degree(((k // op.m * words + which) * op.m + k % op.m) // wide, 4 * wide)


def _inside(op: t.StageColumns, k: Expr, col: Expr) -> Expr | None:
    """Where x has such a row and such a column; None: everywhere."""
    inside = [k.lt(op.k)] * (op.held != op.k) + [col.lt(op.n)] * (op.n % op.cols != 0)
    return all_of(*inside) if inside else None


@rule(t.WalkChunks)
def walk_chunks(cx: Context, op: t.WalkChunks) -> None:
    b, part = cx.b, cx.resolve(op.part)
    with cx.scope(), b.for_("chunk", part, op.count, op.parts, unroll=1) as chunk:
        cx.env |= {op.chunk: chunk, op.coming: b.let("coming", chunk + op.parts)}
        cx.all(op.body)


@rule(t.LoadChunk)
def load_chunk(cx: Context, op: t.LoadChunk) -> None:
    b, tile, chunk = cx.b, cx.resolve(op.tile), cx.resolve(op.chunk)

    def load() -> None:
        number = b.let("number", tile * op.count + chunk, hi=op.tiles * op.count - 1)
        at = b.let("at", (number * (op.values.size // 4) * LANES + cx.lane) * 4)
        for first in range(0, op.values.size, 4):
            _keep(cx, op.values, first, b.ldv(op.value_table, at + first * LANES, 4, cache="cs", hint="w"))
        words = op.offsets.size
        begin, first = b.let("begin", number * (words * LANES)), 0
        for size in groups(words):
            at = begin + (cx.lane * size + first * LANES)
            _keep(cx, op.offsets, first, b.ldv(op.offset_table, at, size, cache="cs", hint="o"))
            first += size

    cx.guard(chunk.lt(op.count), load)


def _keep(cx: Context, regs: Buffer, first: int, found: tuple[Value, ...]) -> None:
    for i, v in enumerate(found):
        cx.b.st(regs, first + i, v)


@rule(t.HandOver)
def hand_over(cx: Context, op: t.HandOver) -> None:
    for i in range(op.src.size):
        cx.b.st(op.dst, i, cx.b.ld(op.src, i, hint="now"))


@rule(t.MultiplyChunk)
def multiply_chunk(cx: Context, op: t.MultiplyChunk) -> None:
    b, c = cx.b, chunks(op.n, op.m, op.dtype.nbytes)
    words, per = x_words(op.acc.size, op.dtype.nbytes), op.n if c.parts == 1 else c.entries
    chunk = cx.resolve(op.chunk)
    first = b.let("first", chunk // c.parts * (c.windows * words * op.m))
    most = op.x.size - (c.windows - 1) * words * op.m - words * op.m  # every row keeps whole windows in x
    first = b.let("first", first, hi=most)
    degree = -(-op.m // 32)
    for f in range(c.entries):
        offset = b.let("offset", offset_of(cx, op, f, c.bits), hi=op.m - 1)
        value = value_of(cx, op, f)
        for word in range(words):
            at = first + (f // per * words + word) * op.m + offset
            x = b.ld(op.x, at, hint="x", degree=degree)
            for e, v in enumerate([b.bitcast(x, f32)] if words == op.acc.size else cx.halves(x, op.dtype)):
                to = word * (op.acc.size // words) + e
                b.st(op.acc, to, b.fma(value, v, b.ld(op.acc, to, hint="c")))


def offset_of(cx: Context, op: t.MultiplyChunk | tw.MultiplyWindows, f: int, bits: int) -> Expr:
    """The offset of entry f of the chunk in its window; it may begin in one word and end in the next."""
    b, (word, shift) = cx.b, divmod(f * bits, 32)
    low = b.ld(op.offsets, word, hint="o")
    if shift + bits > 32:
        low = b.funnel(low, b.ld(op.offsets, word + 1, hint="o"), as_expr(shift), hint="o")
        shift = 0
    return (low >> shift) & ((1 << bits) - 1)


def value_of(cx: Context, op: t.MultiplyChunk | tw.MultiplyWindows, f: int) -> Value:
    """Value f of the chunk, in f32."""
    b = cx.b
    if op.dtype.nbytes == 4:
        return b.bitcast(b.ld(op.values, f, hint="w"), f32)
    return cx.halves(b.ld(op.values, f // 2, hint="w"), op.dtype)[f % 2]


@rule(t.SumParts)
def sum_parts(cx: Context, op: t.SumParts) -> None:
    b, cols = cx.b, op.acc.size
    cx.alloc(op.total)
    warp = b.let("first", cx.warp // op.parts * (op.parts * cols * LANES) + cx.lane)  # of the tile's sums
    part = b.let("part", cx.warp % op.parts)
    b.barrier()  # every warp has left x
    for e in range(cols):
        b.st(op.sums, warp + (part * cols + e) * LANES, b.bitcast(b.ld(op.acc, e, hint="c"), u32))
    if op.parts > 1:  # else a lane adds up its own
        b.barrier()
    with cx.scope(), b.for_("which", part, cols, op.parts, unroll=1) as which:
        total: Value | None = None
        for other in range(op.parts):
            v = b.bitcast(b.ld(op.sums, warp + (which + other * cols) * LANES, hint="part"), f32)
            total = v if total is None else b.binary("add", total, v)
        assert total is not None
        b.st(op.total, 0, total)
        cx.env[op.column] = b.let("col", cx.resolve(op.first) + which)
        cx.all(op.body)
