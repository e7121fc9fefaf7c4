"""The store of warps' sums, with the epilogue.

A lane has pairs of adjacent columns.  So that it stores 16 bytes, the lanes of a quad exchange what they have: for y by
rows the pairs of a row; for y by columns, 8x8 matrices are transposed first, and then pairs are of adjacent rows.
"""

from __future__ import annotations

from itertools import product

from .. import tile_groups as t
from ..expr import Expr, Value, all_of, as_expr, minimum
from ..numbers.groups import STAGE, STAGE_PITCH
from ..types import Buffer, f32
from .context import Context, rule
from .epilogue import finish, of_row
from .quad import QUAD, exchanged, halves, words

#: Scale and bias of a row of each half.
_Operands = list[tuple[Value | None, Value | None]]


@rule(t.StoreTile)
def store_tile(cx: Context, op: t.StoreTile) -> None:
    b = cx.b
    g, lane = cx.coordinates()
    (down, across), blocks = op.warps, op.acc.size // (4 * op.high)
    strip = b.let("strip", cx.warp % down) if across > 1 else cx.warp
    top = cx.resolve(op.row) + strip * (16 * op.high)
    column = cx.resolve(op.column)
    if across > 1:
        column = b.let("column", column + cx.warp // down * (8 * blocks))
    store = _Store(cx, op, (g, lane), (top, b.let("row0", top + g), column), blocks)
    if op.stage is not None:
        store.staged(op.stage)
    elif op.order == "column" and op.vec > 1:
        store.by_columns()
    else:
        store.by_rows()


class _Store:
    """``at``: the lane's row of an 8x8 matrix, and its place in that row; ``first``: the first row of the warp and of
    the lane, and the first column of ``blocks`` x 8."""

    def __init__(
        self, cx: Context, op: t.StoreTile, at: tuple[Expr, Expr], first: tuple[Expr, Expr, Expr], blocks: int
    ) -> None:  # fmt: skip
        self.cx, self.op, self.blocks = cx, op, blocks
        (self.g, self.lane), (self.top, self.row0, self.column) = at, first
        self.end = as_expr(op.m) if op.end is None else cx.b.let("end", minimum(cx.resolve(op.end), op.m))
        self.halves = list(product(range(op.high), (0, 1)))  # strips of 16 rows, the upper and lower 8 of each

    def row(self, strip: int, half: int) -> tuple[Expr, Expr, tuple[Value | None, Value | None]]:
        """The lane's row of a strip's upper or lower 8, whether it exists, and its scale and bias.

        Lanes whose row does not exist take part in exchanges.
        """
        b, op = self.cx.b, self.op
        row = b.let("row", self.row0 + (16 * strip + 8 * half))
        read = b.let("read", minimum(row, op.m - 1))
        return row, row.lt(self.end), (of_row(self.cx, op.scale, read), of_row(self.cx, op.bias, read))

    def pair(self, block: int, strip: int, half: int, of: tuple[Value | None, Value | None]) -> list[Value]:
        """The lane's two sums of a block of 8 columns, after the epilogue but for the residual."""
        b, op = self.cx.b, self.op
        sums = (b.ld(op.acc, 4 * (strip * self.blocks + block) + 2 * half + e, hint="sum") for e in (0, 1))
        return [finish(self.cx, v, *of, op.activation) for v in sums]

    def words(self, pairs: list[list[Value]]) -> list[Value]:
        """Pairs as they are stored, a word each."""
        return words(self.cx, pairs, self.op.out.dtype)

    def by_rows(self) -> None:
        """One column, a pair, or the 8 of a block for which quads exchange their pairs of four blocks."""
        b, op = self.cx.b, self.op
        for strip, half in self.halves:
            row, there, of = self.row(strip, half)
            if op.vec == 2 * QUAD:
                for block in range(0, self.blocks, QUAD):
                    col = b.let("col", self.column + 8 * block + self.lane * 8)
                    here = b.let("here", all_of(there, col.lt(op.n)))
                    words = self.words([self.pair(block + e, strip, half, of) for e in range(QUAD)])
                    whole = exchanged(self.cx, words, self.lane)
                    b.st(op.out, row * op.n + col, *halves(self.cx, whole, op.out.dtype), where=here)
                continue
            for block in range(self.blocks):
                sums, col = self.pair(block, strip, half, of), b.let("col", self.column + 8 * block + self.lane * 2)
                for e in range(0, 2, op.vec):
                    here = b.let("here", all_of(there, (col + e).lt(op.n)))
                    self._put(sums[e : e + op.vec], row, col + e, here)

    def staged(self, stage: Buffer) -> None:
        """One element, of 32 that lie side by side in a row (or in some rows, of fewer columns)."""
        cx, b = self.cx, self.cx.b
        cx.shared.append(stage)
        blocks = min(QUAD, self.blocks)
        wide = 8 * blocks
        mine = b.let("mine", cx.warp * STAGE)
        put = b.let("put", mine + self.g * STAGE_PITCH + self.lane * 2)
        # of rows that lie in one store, those in between keep their banks apart
        down, across = b.let("down", cx.lane // wide * blocks), b.let("across", cx.lane % wide)
        take = b.let("take", mine + down * STAGE_PITCH + across)
        for strip, half in self.halves:
            _, _, of = self.row(strip, half)
            for block in range(0, self.blocks, blocks):
                for e in range(blocks):
                    b.st(stage, put + 8 * e, *self.pair(block + e, strip, half, of))
                b.sync()
                col = b.let("col", self.column + 8 * block + across)
                for first in (j for j in range(8) if j % QUAD < blocks):
                    row = b.let("row", self.top + (16 * strip + 8 * half + first) + down)
                    here = b.let("here", all_of(row.lt(self.end), col.lt(self.op.n)))
                    self._put([b.ld(stage, take + first * STAGE_PITCH, hint="sum")], row, col, here)
                b.sync()

    def by_columns(self) -> None:
        """A pair of rows, or 8 for which quads exchange the pairs of both halves of two blocks of columns."""
        b, op, lane = self.cx.b, self.op, self.lane
        for strip in range(op.high):
            of, top = [self.row(strip, half)[2] for half in (0, 1)], self.top + 16 * strip

            def turned(block: int, half: int, strip: int = strip, of: _Operands = of) -> Value:
                (word,) = self.words([self.pair(block, strip, half, of[half])])
                return b.movmatrix(word, hint="turned")

            if op.vec == 2:
                for block, half in product(range(self.blocks), (0, 1)):
                    self._column([turned(block, half)], top + 8 * half + lane * 2, 8 * block)
                continue
            mine = b.let("mine", top + lane % 2 * 8)
            for block in range(0, self.blocks, 2):
                words = [turned(block + e // 2, e % 2) for e in range(QUAD)]
                self._column(exchanged(self.cx, words, lane), mine, 8 * block + lane // 2 * 8)

    def _column(self, words: list[Value], row: Expr, block: Expr | int) -> None:
        """Stores adjacent rows of the lane's column of a block; they all exist, or none does."""
        b, op = self.cx.b, self.op
        row, col = b.let("row", row), b.let("col", self.column + block + self.g)
        here = b.let("here", all_of(row.lt(self.end), col.lt(op.n)))
        b.st(op.out, col * op.m + row, *halves(self.cx, words, op.out.dtype), where=here)

    def _put(self, vals: list[Value], row: Expr, col: Expr, here: Expr) -> None:
        """Adds the residual to one sum, or to two adjacent ones, and stores them."""
        b, op = self.cx.b, self.op
        at = row * op.n + col if op.order == "row" else col * op.m + row
        if op.residual is not None:
            more = b.ldv(op.residual, at, len(vals), where=here, hint="r")
            vals = [b.binary("add", v, self.cx.convert(r, f32)) for v, r in zip(vals, more, strict=True)]
        b.st(op.out, at, *(self.cx.convert(v, op.out.dtype) for v in vals), where=here)
