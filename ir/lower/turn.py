"""x, stored column by column or in rows of no whole pieces, written row by row."""

from __future__ import annotations

from .. import tile_groups as t
from .. import warp as w
from ..expr import Value, all_of
from ..numbers.groups import PIECE, PIECES_SIDE, SIDE, side_pitch
from ..swizzle import swizzled
from ..types import u32, widths
from .context import Context, rule
from .panels import placed
from .quad import QUAD, exchanged, halves


@rule(t.TurnColumns)
def turn_columns(cx: Context, op: t.TurnColumns) -> None:
    b, warps = cx.b, cx.func.threads // 32
    wide, between = -(-op.pitch // SIDE), side_pitch(op.src.dtype.nbytes)
    k0, n0 = b.let("k0", cx.bx // wide * SIDE), b.let("n0", cx.bx % wide * SIDE)

    cx.shared.append(op.tile)
    with b.for_("i", cx.warp, SIDE, warps, unroll=4) as i:
        k, n = k0 + cx.lane, n0 + i  # lanes lie side by side along what is adjacent in x: rows of a column
        v = b.ld(op.src, n * op.k + k, where=all_of(k.lt(op.k), n.lt(op.n)), cache="nc", hint="x")
        b.st(op.tile, cx.lane * between + i, v)
    b.barrier()
    with b.for_("i", cx.warp, SIDE, warps, unroll=4) as i:
        k, n = k0 + i, n0 + cx.lane
        v = b.ld(op.tile, i * between + cx.lane, hint="x")
        b.st(op.dst, k * op.pitch + n, v, where=all_of(k.lt(op.k), n.lt(op.pitch)))


@rule(t.PadRows)
def pad_rows(cx: Context, op: t.PadRows) -> None:
    b, piece = cx.b, 16 // op.src.dtype.nbytes
    at = b.let("at", (cx.bx * cx.func.threads + cx.tid) * piece)
    with b.if_(at.lt(op.dst.size)):
        k, n = b.let("k", at // op.pitch, hi=op.k - 1), b.let("n", at % op.pitch)
        vals: list[Value] = []
        for e in range(0, piece, op.vec):
            at_x = placed(cx, n + e, op.k, op.n, op.panel, "row")(k)
            vals += b.ldv(op.src, at_x, op.vec, where=(n + e).lt(op.n), cache="nc", hint="x")
        most = widths(op.dst.dtype)[-1]
        for e in range(0, piece, most):
            b.st(op.dst, at + e, *vals[e : e + most])


@rule(t.TurnPieces)
def turn_pieces(cx: Context, op: t.TurnPieces) -> None:
    b, side = cx.b, PIECES_SIDE
    across, wide = side // PIECE, -(-op.pitch // side)
    cx.shared.append(op.tile)
    k0, n0 = b.let("k0", cx.bx // wide * side), b.let("n0", cx.bx % wide * side)
    place = swizzled(side, 2 * side, 2 * side)
    row, piece = b.let("row", cx.tid // across), b.let("piece", cx.tid % across * PIECE)
    for i in range(0, side, cx.func.threads // across):
        k, n = k0 + piece, n0 + row + i
        vals = b.ldv(op.src, n * op.k + k, PIECE, where=all_of(k.lt(op.k), n.lt(op.n)), cache="nc", hint="x")
        b.st(op.tile, place(row + i, piece), *vals)
    b.barrier()
    g, lane = cx.coordinates()
    with b.for_("block", cx.warp, across, cx.func.threads // 32) as block:
        k = b.let("k", k0 + block * PIECE + g)
        for first in range(0, side, QUAD * PIECE):
            words = tuple(b.fresh("m", u32) for _ in range(QUAD))
            b.emit(w.LdMatrix(words, op.tile, place(cx.lane + first, block * PIECE), True))
            n = b.let("n", n0 + first + lane * PIECE)
            across_n = halves(cx, exchanged(cx, words, lane), op.dst.dtype)
            b.st(op.dst, k * op.pitch + n, *across_n, where=all_of(k.lt(op.k), n.lt(op.pitch)))
