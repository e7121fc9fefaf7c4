"""From registers of one block to those of another, not by shared memory: ``tile.exchange_cells``, and what
``tile.exchange_lines`` has in common with it.  Bits say which of its cells a thread gives, and which it takes; they are
loaded once, ahead of all rounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import product
from typing import Generic, TypeVar

from .. import tile_held as t
from ..expr import Expr, Value
from ..numbers.held import Line
from .context import Context, phased
from .held import Tagged

#: A cell of a thread that is asked for: its array, its number, whether it is at all, and its register.
_Asked = tuple[int, Expr, Expr, int]


@phased(t.ExchangeCells)
def exchange_cells(cx: Context, op: t.ExchangeCells) -> Callable[[], None]:
    return _Cells(cx, op).turn


Swap = TypeVar("Swap", bound=t.ExchangeLines | t.ExchangeCells)


class Direct(ABC, Generic[Swap]):
    """A thread stores what others need, then loads what it needs until each cell has the round's tag.

    ``owner`` has as many bits of each kind as ``count``.
    """

    def __init__(self, cx: Context, op: Swap, owner: Expr, count: int) -> None:
        self.cx, self.op, words = cx, op, -(-count // 32)
        first = cx.b.let("bits", owner * (2 * words))
        self.gives, self.takes = (
            [cx.b.ld(op.bits, first + (which * words + i), cache="nc", hint=hint) for i in range(words)]
            for which, hint in enumerate(("gives", "takes"))
        )

    def turn(self) -> None:
        with self.cx.b.if_(self.cx.resolve(self.op.round).ge(1)):
            self.exchange()

    @abstractmethod
    def exchange(self) -> None:
        """Gives cells and takes others."""

    def keep(self, array: int, register: int, value: Value, where: Expr) -> None:
        """A cell has a new value, where it comes from another block."""
        b, held = self.cx.b, self.op.held[array]
        b.st(held, register, b.select(where, value, b.ld(held, register)))

    def bit(self, bits: Sequence[Value], number: int) -> Expr:
        """Whether a bit is set."""
        return self.cx.b.binary("and", bits[number // 32], 1 << number % 32, hint="bit").ne(0)

    def line(self, p: int, k: int) -> Expr:
        """The number of a line of the field: that of a plane and a row of the thread."""
        z, y, _ = map(self.cx.resolve, self.op.first)
        nz, ny, _ = self.op.extent
        return (z + p) % nz * ny + (y + self.cx.warp * self.op.share[1] + k) % ny

    def register(self, p: int, k: int, c: int) -> int:
        """Where a cell of the thread is kept."""
        return (p * self.op.share[1] + k) * self.op.share[2] + c


class _Cells(Direct[t.ExchangeCells]):
    """Single cells: a bit for each of a thread's."""

    def __init__(self, cx: Context, op: t.ExchangeCells) -> None:
        planes, rows, cols = op.share
        super().__init__(cx, op, cx.bx * cx.func.threads + cx.tid, planes * rows * cols)
        # outer planes first: warps in the middle ask for these alone, all at the same time
        outer = sorted(range(planes), key=lambda p: min(p, planes - 1 - p))
        self.lines: list[Line] = [(p, k) for p, k in product(outer, range(rows))]
        x, nx, across = cx.resolve(op.first[2]) + cx.lane * cols, op.extent[2], op.across
        #: Where a thread's columns lie in a line: those of neighbouring lanes side by side.
        self.columns = [self._column((x + c) % nx, cols, across) for c in range(cols)]
        self.starts = {(p, k): cx.b.let("line", self.line(p, k) * (cols * across)) for p, k in self.lines}

    def _column(self, x: Expr, cols: int, across: int) -> Expr:
        return self.cx.b.let("column", x % cols * across + x // cols)

    def _places(self, p: int, k: int) -> list[tuple[int, int, Expr]]:
        """Of each array and column the cell's register and its number."""
        start, cells = self.starts[p, k], product(enumerate(self.columns), range(len(self.op.held)))
        return [(array, self.register(p, k, c), start + column) for (c, column), array in cells]

    def exchange(self) -> None:
        cells = Tagged(self.cx, self.op, self.op.pairs)
        asked = list[_Asked]()
        for p, k in self.lines:
            for array, register, cell in self._places(p, k):
                with self.cx.b.if_(self.bit(self.gives, register)):
                    cells.give(array, cell, self.cx.b.ld(self.op.held[array], register))
        for p, k in self.lines:
            for array, register, cell in self._places(p, k):
                asked.append((array, cell, self.cx.b.let("asks", self.bit(self.takes, register)), register))
        for first in range(0, len(asked), self.op.at_once):
            self._take(cells, asked[first : first + self.op.at_once])

    def _take(self, cells: Tagged, asked: Sequence[_Asked]) -> None:
        values = cells.take([(array, cell, where) for array, cell, where, _ in asked])
        for (array, _, where, register), value in zip(asked, values, strict=True):
            self.keep(array, register, value, where)
