"""``tile.exchange_lines``, ``tile.exchange_cells``: from registers of one block to those of another, not by shared
memory.  Bits say which of its cells a thread gives, and which it takes; they are loaded once, ahead of all rounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Generic, TypeVar

from .. import tile_held as t
from ..expr import Expr, Value, any_of
from .context import Context, phased
from .held import Tagged

#: A plane and a row of a thread; and a column.
Line = tuple[int, int]
#: A cell of a thread that is asked for: its array, its number, whether it is at all, and its register.
Asked = tuple[int, Expr, Expr, int]


@phased(t.ExchangeLines)
def exchange_lines(cx: Context, op: t.ExchangeLines) -> Callable[[], None]:
    return _Lines(cx, op).turn


@phased(t.ExchangeCells)
def exchange_cells(cx: Context, op: t.ExchangeCells) -> Callable[[], None]:
    return _Cells(cx, op).turn


Direct = TypeVar("Direct", bound=t.ExchangeLines | t.ExchangeCells)


class _Direct(ABC, Generic[Direct]):
    """A thread stores what others need, then loads what it needs until each cell has the round's tag.

    ``owner`` has as many bits of each kind as ``count``.
    """

    def __init__(self, cx: Context, op: Direct, owner: Expr, count: int) -> None:
        self.cx, self.op, words = cx, op, -(-count // 32)
        planes, rows, _ = op.share
        # outer planes first: warps in the middle ask for these alone, all at the same time
        outer = sorted(range(planes), key=lambda p: min(p, planes - 1 - p))
        self.lines: list[Line] = [(p, k) for p, k in product(outer, range(rows))]
        first = cx.b.let("bits", owner * (2 * words))
        self.gives, self.takes = (
            [cx.b.ld(op.bits, first + (which * words + i), cache="nc", hint=hint) for i in range(words)]
            for which, hint in enumerate(("gives", "takes"))
        )

    def turn(self) -> None:
        with self.cx.b.if_(self.cx.resolve(self.op.round).ge(1)):
            cells = Tagged(self.cx, self.op, self.op.pairs)
            self.give(cells)
            for asked in self.asked():
                self._take(cells, asked)

    @abstractmethod
    def give(self, cells: Tagged) -> None:
        """Stores what others need."""

    @abstractmethod
    def asked(self) -> Iterator[list[Asked]]:
        """All cells of a thread, of each whether it comes from another block, as many as go together at a time."""

    def _take(self, cells: Tagged, asked: Sequence[Asked]) -> None:
        b, op = self.cx.b, self.op
        values = cells.take([(array, cell, where) for array, cell, where, _ in asked])
        for (array, _, where, register), value in zip(asked, values, strict=True):
            kept = b.ld(op.held[array], register)
            b.st(op.held[array], register, b.select(where, value, kept))

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


class _Lines(_Direct[t.ExchangeLines]):
    """Whole lines: a bit for each of a warp's."""

    def __init__(self, cx: Context, op: t.ExchangeLines) -> None:
        super().__init__(cx, op, cx.bx * (cx.func.threads // 32) + cx.warp, op.share[0] * op.share[1])

    def give(self, cells: Tagged) -> None:
        for p, k in self.lines:
            with self.cx.b.if_(self._is(self.gives, p, k)):
                for array, c, cell in self._places(p, k):
                    cells.give(array, cell, self.cx.b.ld(self.op.held[array], self.register(p, k, c)))

    def asked(self) -> Iterator[list[Asked]]:
        """A warp goes past lines of which it takes none."""
        each = max(1, self.op.at_once // (self.op.share[2] * len(self.op.held)))
        for first in range(0, len(self.lines), each):
            lines = self.lines[first : first + each]
            with self.cx.b.if_(any_of(*(self._is(self.takes, p, k) for p, k in lines))):
                found = list[Asked]()
                for p, k in lines:
                    where = self.cx.b.let("asks", self._is(self.takes, p, k))
                    found += [(array, cell, where, self.register(p, k, c)) for array, c, cell in self._places(p, k)]
                yield found

    def _is(self, bits: Sequence[Value], p: int, k: int) -> Expr:
        return self.bit(bits, p * self.op.share[1] + k)

    def _places(self, p: int, k: int) -> list[tuple[int, int, Expr]]:
        """Of each array and column of a line the cell's number in the field, lanes side by side."""
        line = self.cx.b.let("line", self.line(p, k) * self.op.extent[2] + self.cx.lane)
        return [(array, c, line + c * 32) for array in range(len(self.op.held)) for c in range(self.op.share[2])]


class _Cells(_Direct[t.ExchangeCells]):
    """Single cells: a bit for each of a thread's."""

    def __init__(self, cx: Context, op: t.ExchangeCells) -> None:
        planes, rows, cols = op.share
        super().__init__(cx, op, cx.bx * cx.func.threads + cx.tid, planes * rows * cols)
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

    def give(self, cells: Tagged) -> None:
        for p, k in self.lines:
            for array, register, cell in self._places(p, k):
                with self.cx.b.if_(self.bit(self.gives, register)):
                    cells.give(array, cell, self.cx.b.ld(self.op.held[array], register))

    def asked(self) -> Iterator[list[Asked]]:
        found = list[Asked]()
        for p, k in self.lines:
            for array, register, cell in self._places(p, k):
                found.append((array, cell, self.cx.b.let("asks", self.bit(self.takes, register)), register))
        for first in range(0, len(found), self.op.at_once):
            yield found[first : first + self.op.at_once]
