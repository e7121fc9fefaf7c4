"""``tile.exchange_lines``: whole lines go from registers of one block to those of another, not by shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from .. import tile_held as t
from ..expr import Expr, Value
from .context import Context, rule
from .held import Tagged

#: A plane and a row of a thread.
Line = tuple[int, int]


@rule(t.ExchangeLines)
def exchange_lines(cx: Context, op: t.ExchangeLines) -> None:
    with cx.b.if_(cx.resolve(op.round).ge(1)):
        _Lines(cx, op).run()


class _Lines:
    """A warp stores the lines that others need, then loads those that it needs until each cell has the round's tag."""

    def __init__(self, cx: Context, op: t.ExchangeLines) -> None:
        self.cx, self.op = cx, op
        planes, rows, _ = op.share
        self.lines: list[Line] = [(p, k) for k, p in product(range(rows), range(planes))]
        words, nz, ny, nx = -(-planes * rows // 32), *op.extent
        self.cells = Tagged(cx, op, nz * ny * nx)
        first = cx.b.let("bits", (cx.bx * (cx.func.threads // 32) + cx.warp) * (2 * words))
        #: Bits of the lines that the warp gives, and of those that it takes.
        self.gives, self.takes = (
            [cx.b.ld(op.lines, first + (which * words + i), cache="nc", hint=hint) for i in range(words)]
            for which, hint in enumerate(("gives", "takes"))
        )

    def run(self) -> None:
        for p, k in self.lines:
            with self.cx.b.if_(self._is(self.gives, p, k)):
                for array, c, cell in self._places(p, k):
                    self.cells.give(array, cell, self.cx.b.ld(self.op.held[array], self._register(p, k) + c))
        for first in range(0, len(self.lines), self.op.at_once):
            self._take(self.lines[first : first + self.op.at_once])

    def _take(self, lines: Sequence[Line]) -> None:
        """All cells of a few lines; other ones stay as they are."""
        b, op = self.cx.b, self.op
        asked = list[tuple[int, Expr, Expr, int]]()
        for p, k in lines:
            where = b.let("asks", self._is(self.takes, p, k))
            asked += [(array, cell, where, self._register(p, k) + c) for array, c, cell in self._places(p, k)]
        values = self.cells.take([(array, cell, where) for array, cell, where, _ in asked])
        for (array, _, where, register), value in zip(asked, values, strict=True):
            kept = b.ld(op.held[array], register)
            b.st(op.held[array], register, b.select(where, value, kept))

    def _is(self, bits: Sequence[Value], p: int, k: int) -> Expr:
        """Whether a line is one of those that bits say."""
        number = p * self.op.share[1] + k
        return self.cx.b.binary("and", bits[number // 32], 1 << number % 32, hint="bit").ne(0)

    def _places(self, p: int, k: int) -> list[tuple[int, int, Expr]]:
        """Of each array and column of a line the cell's number in the field, lanes side by side."""
        b, op = self.cx.b, self.op
        z, y, _ = map(self.cx.resolve, op.first)
        nz, ny, nx = op.extent
        row = (y + self.cx.warp * op.share[1] + k) % ny
        line = b.let("line", ((z + p) % nz * ny + row) * nx + self.cx.lane)
        return [(array, c, line + c * 32) for array in range(len(op.held)) for c in range(op.share[2])]

    def _register(self, p: int, k: int) -> int:
        return (p * self.op.share[1] + k) * self.op.share[2]
