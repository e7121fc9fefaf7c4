"""The store of warps' sums, with the epilogue."""

from __future__ import annotations

from itertools import product

from .. import tile_groups as t
from ..expr import Expr, Value, all_of, minimum
from ..types import f32, u16
from .context import Context, rule
from .epilogue import finish, of_row

#: Lanes that have the pairs of a row's 8 columns between them.
QUAD = 4


@rule(t.StoreTile)
def store_tile(cx: Context, op: t.StoreTile) -> None:
    b = cx.b
    g, lane = cx.coordinates()
    (down, across), blocks = op.warps, op.acc.size // (4 * op.high)
    strip = b.let("strip", cx.warp % down) if across > 1 else cx.warp
    first = b.let("row0", cx.resolve(op.tile) * (16 * op.high * down) + strip * (16 * op.high) + g)
    column = cx.resolve(op.column)
    if across > 1:
        column = b.let("column", column + cx.warp // down * (8 * blocks))
    for i, half in product(range(op.high), (0, 1)):
        row = b.let("row", first + (16 * i + 8 * half))
        there = row.lt(op.m)
        read = b.let("read", minimum(row, op.m - 1))  # lanes whose row does not exist take part in exchanges
        scale, bias = (of_row(cx, buf, read) for buf in (op.scale, op.bias))

        def pair(
            block: int, at: int = 4 * i * blocks + 2 * half, scale: Value | None = scale, bias: Value | None = bias
        ) -> list[Value]:
            """The lane's two sums of a block of 8 columns, after the epilogue but for the residual."""
            sums = (b.ld(op.acc, at + 4 * block + e, hint="sum") for e in (0, 1))
            return [finish(cx, v, scale, bias, op.activation) for v in sums]

        if op.vec == 2 * QUAD:
            for block in range(0, blocks, QUAD):
                col = b.let("col", column + 8 * block + lane * 8)
                here = b.let("here", all_of(there, col.lt(op.n)))
                _eight(cx, op, [pair(block + e) for e in range(QUAD)], lane, (row, col, here))
            continue
        for block in range(blocks):
            sums, col = pair(block), b.let("col", column + 8 * block + lane * 2)
            for e in range(0, 2, op.vec):
                _put(cx, op, sums[e : e + op.vec], row, col + e, b.let("here", all_of(there, (col + e).lt(op.n))))


def _eight(
    cx: Context, op: t.StoreTile, pairs: list[list[Value]], lane: Expr, at: tuple[Expr, Expr, Expr]
) -> None:  # fmt: skip
    """Stores eight adjacent columns: the lanes of a quad, each with a pair of four blocks, exchange them.

    Lane q has pair q of each block, and gets all of block q: a transposition of 4 x 4, in two rounds.
    """
    b, (row, col, here) = cx.b, at
    bits = [[b.bitcast(cx.convert(v, op.out.dtype), u16) for v in two] for two in pairs]
    words = [b.pack(low, high, hint="two") for low, high in bits]
    for far in (1, 2):
        odd = b.let("odd", (lane & far).ne(0))
        for z in (0, 1):
            low, high = (2 * z, 2 * z + 1) if far == 1 else (z, z + 2)
            sent = b.select(odd, words[low], words[high])
            got = b.shfl("xor", sent, far)
            words[low], words[high] = b.select(odd, got, words[low]), b.select(odd, words[high], got)
    vals = []
    for word in words:
        for part in (b.binary("and", word, 0xFFFF), b.binary("shr", word, 16)):
            vals.append(b.bitcast(b.convert(part, u16), op.out.dtype))
    b.st(op.out, row * op.n + col, *vals, where=here)


def _put(cx: Context, op: t.StoreTile, vals: list[Value], row: Expr, col: Expr, here: Expr) -> None:
    """Adds the residual to one sum, or to two adjacent ones, and stores them."""
    b = cx.b
    at = row * op.n + col if op.order == "row" else col * op.m + row
    if op.residual is not None:
        more = b.ldv(op.residual, at, len(vals), where=here, hint="r")
        vals = [b.binary("add", v, cx.convert(r, f32)) for v, r in zip(vals, more, strict=True)]
    b.st(op.out, at, *(cx.convert(v, op.out.dtype) for v in vals), where=here)
