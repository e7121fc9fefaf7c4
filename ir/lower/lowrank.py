"""``tile.sandwich`` and its store: a product's accumulator goes on as an operand, without leaving its registers."""

from __future__ import annotations

from collections.abc import Sequence

from .. import tile_products as t
from ..expr import Expr, ExprLike, Value, as_expr, maximum, minimum
from ..fragments import SHAPES
from ..layout import bank_degree
from ..numbers.lowrank import slices
from .context import Context, rule
from .product import accumulate, narrowing


@rule(t.Sandwich)
def sandwich(cx: Context, op: t.Sandwich) -> None:
    b, regs = cx.b, len(SHAPES[op.spread.base].c.elements)
    cx.alloc(op.acc)
    products = _Products(cx, op, cx.clear(op.acc))
    reached = -(-2 * op.radius[1] // 8)  # column blocks that a block of outputs needs besides its own
    total = op.spread.blocks + reached
    first = 0
    while first < total:  # runs of column blocks that go to the same blocks of outputs, seen from them
        targets = [d for d in range(reached + 1) if 0 <= first - d < op.spread.blocks]
        end = max(first + 1, op.spread.blocks if len(targets) == reached + 1 else 0)
        with b.for_("j", first, end, unroll=0) as j:
            x = products.operand(j, first, end)
            with b.for_("term", 0, op.terms, unroll=0) as term:
                middle = products.left(x, term)
                for d in targets:
                    products.right(middle, term, d, (j - d) * regs)
        first = end


class _Products:
    """The two products of a column block, of one term."""

    def __init__(self, cx: Context, op: t.Sandwich, zero: Value) -> None:
        self.cx, self.op, self.zero = cx, op, zero
        self.base = SHAPES[op.spread.base]
        self.halves = self.base.m // 8
        self.u, self.v = slices(2 * op.radius[0]), slices(2 * op.radius[1])
        self.depth = self.u + 2 * (self.halves - 1)  # slices of the first product: U has M rows
        g, self.t = cx.coordinates()
        self.column = cx.b.let("n", op.columns(g))
        self.row0 = cx.b.let("strip", cx.warp % op.spread.strips * self.base.m)
        self.col0 = cx.b.let("part", cx.warp // op.spread.strips * (8 * op.spread.blocks))
        self.slot = cx.slot_base(op.src, op.slot)

    def _place(self, row: ExprLike, col: Expr) -> tuple[Expr, Expr]:
        """Row and column of the part's window; where only zeros are multiplied, a place near by that is in it.

        Columns move by fours, which leaves a lane in its bank.
        """
        ry, rx = self.op.radius
        beyond = col - (8 * self.op.spread.blocks + 2 * rx - 1)
        return minimum(row, self.base.m + 2 * ry - 1), col - maximum(beyond + 3, 0) // 4 * 4

    def operand(self, j: Expr, first: int, end: int) -> list[Value]:
        """Operand B of the first product, slice by slice: rows 4 s + t and the columns of block ``j``."""
        op, out = self.op, []
        for s in range(self.depth):
            row, col = self._place(4 * s + self.t, j * 8 + self.column)
            at = op.layout(self.row0 + row, self.col0 + col)
            degree = max(self._degree(s, n) for n in range(first, end))
            out.append(self.cx.b.ld(op.src, self.slot + at, hint="x", degree=degree))
        return out

    def _degree(self, s: int, j: int) -> int:
        lanes = [self._place(4 * s + lane % 4, as_expr(8 * j + self.op.columns(lane // 4).lo)) for lane in range(32)]
        return bank_degree([self.op.layout(*at).lo for at in lanes], self.op.src.dtype.nbytes)

    def _factor(self, term: Expr, s: int, of: str) -> Value:
        """Register ``s`` of U's or V's factor; outside the band it is zero."""
        first, count = (0, self.u) if of == "u" else (self.u, self.v)
        if not 0 <= s < count:
            return self.zero
        return self.cx.b.ld(self.op.factors, term * (self.u + self.v) + first + s, hint=of)

    def left(self, x: Sequence[Value], term: Expr) -> Sequence[Value]:
        """U X of a column block: rows 8 further down have the band two slices later."""
        zeros = [self.zero] * len(self.base.c.elements)
        return accumulate(
            self.cx, self.op.shape, self.depth,
            lambda s: [self._factor(term, s - 2 * h, "u") for h in range(self.halves)], lambda s: x[s], zeros,
        )  # fmt: skip

    def right(self, middle: Sequence[Value], term: Expr, d: int, at: Expr) -> None:
        """Adds the middle times V to the outputs ``d`` blocks to the left, whose accumulator is at ``at``."""
        b, acc = self.cx.b, self.op.acc
        wide = [q for q in (2 * d, 2 * d + 1) if q < self.v]
        for shape in narrowing(self.op.shape):
            step = SHAPES[shape].k // 4
            while step <= len(wide):
                now, wide = wide[:step], wide[step:]
                a = [middle[2 * h + q % 2] for q in now for h in range(self.halves)]
                c = [b.ld(acc, at + e, hint="c") for e in range(len(middle))]
                for e, y in enumerate(b.mma(shape, a, [self._factor(term, q, "v") for q in now], c)):
                    b.st(acc, at + e, y)
