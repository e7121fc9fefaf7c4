"""Fields that stay in registers: their windows, rounds of steps, and cells that blocks exchange between rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product

from .. import tile_held as t
from ..expr import FALSE, TRUE, Expr, Value, all_of, any_of, as_expr, minimum
from ..numbers.held import FACTS
from ..types import Buffer, DType, u16, u32, u64
from .context import Context, phased, rule

#: Cells that a thread asks for at the same time.
AT_ONCE = 14


@rule(t.Window)
def window(cx: Context, op: t.Window) -> None:
    b, values = cx.b, (*op.first, *op.own, *op.low, *op.high)
    for i, v in enumerate(values):
        cx.env[v] = b.ld(op.facts, cx.bx * FACTS + i, hint=v.name, lo=v.lo, hi=v.hi)
    cx.all(op.body)


@rule(t.Rounds)
def rounds(cx: Context, op: t.Rounds) -> None:
    b = cx.b
    most = (op.round.hi + 1) * op.every
    steps = b.ld(op.steps, 0, hint="steps", lo=1, hi=most if op.total is None else min(most, op.total.hi))
    epoch = b.ld(op.epoch, 0, hint="epoch")
    count = b.let("rounds", (steps + (op.every - 1)) // op.every)
    swaps = [cx.phase(inner) for inner in op.swap]
    if op.total is not None:
        cx.env[op.total] = steps
    cx.all(op.ahead)
    with cx.scope(), b.for_("round", 0, count, unroll=1) as number:
        cx.env[op.round] = number
        cx.env[op.left] = b.let("left", minimum(op.every, steps - number * op.every), lo=1)
        cx.env[op.tag] = b.binary("add", epoch, b.convert(b.name(number, "number"), u32), hint="tag")
        for swap in swaps:
            swap()
        cx.all(op.body)
    # an even number of rounds on: what this launch has left in the cells is of none of the next launch's rounds
    if not any(isinstance(inner, t.HeldSteps) and inner.passed for inner in op.body):
        b.barrier()  # all have read the epoch; where rows are passed on, each step has met
    with b.if_(cx.tid.eq(0)):
        b.fence("gpu")
        before = b.atom("inc", op.counter, 0, cx.func.blocks - 1)  # 0 again after the last
        b.fence("gpu")
        with b.if_(before.eq(cx.func.blocks - 1)):
            more = b.convert(b.name(count + count % 2, "more"), u32)
            b.st(op.epoch, 0, b.binary("add", epoch, more))


@rule(t.LoadHeld)
def load_held(cx: Context, op: t.LoadHeld) -> None:
    b, (nz, ny, nx), (planes, rows, cols) = cx.b, op.grid.extent, op.share
    z, y, x = map(cx.resolve, op.first)
    columns = [b.let("column", (x + cx.lane * cols + c) % nx) for c in range(cols)]
    for p in range(planes):
        plane = b.let("plane", (z + p) % nz)
        for k in range(rows):
            line = b.let("line", op.grid.element((plane, (y + cx.warp * rows + k) % ny, as_expr(0))))
            for c, column in enumerate(columns):
                b.st(op.held, (p * rows + k) * cols + c, b.ld(op.src, line + column, hint="u"))


@rule(t.StoreHeld)
def store_held(cx: Context, op: t.StoreHeld) -> None:
    """Cells are counted from the first own one: what a load has worked out would stay in registers until here."""
    b, (planes, rows, cols) = cx.b, op.share
    (z, y, x), (front, top, left) = map(cx.resolve, op.own), map(cx.resolve, op.low)
    depth, height, width = (cx.resolve(high) - cx.resolve(low) for low, high in zip(op.low, op.high, strict=True))
    back, down, across = as_expr(0) - front, b.let("down", cx.warp * rows - top), b.let("across", cx.lane * cols - left)
    for p in range(planes):
        plane = all_of((back + p).ge(0), (back + p).lt(depth)) if planes > 1 else TRUE
        for k in range(rows):
            row = b.let("row", all_of(plane, (down + k).ge(0), (down + k).lt(height)))
            for c in range(cols):
                own = b.let("own", all_of(row, (across + c).ge(0), (across + c).lt(width)))
                at = op.grid.element((z + back + p, y + down + k, x + across + c))
                b.st(op.dst, at, b.ld(op.held, (p * rows + k) * cols + c), where=own)


@phased(t.Exchange)
def exchange(cx: Context, op: t.Exchange) -> Callable[[], None]:
    def turn() -> None:
        with cx.b.if_(cx.resolve(op.round).ge(1)):
            _Exchange(cx, op).run()

    return turn


class Tagged:
    """Cells that travel between blocks, each as a word with a tag that says of which round it is."""

    def __init__(self, cx: Context, op: t.Exchange | t.ExchangeCells, extent: int) -> None:
        self.cx, self.cells, self.extent = cx, op.cells, extent
        self.word, self.dtype = op.cells.dtype, op.held[0].dtype
        self.tag = round_tag(cx, op.tag)
        self.half = cx.b.let("half", cx.resolve(op.round) % 2 * (len(op.held) * extent))
        self._wide = self.tag if self.word is u32 else cx.b.convert(self.tag, u64)

    def give(self, array: int, cell: Expr, value: Value) -> None:
        """Stores a cell's value and the round's tag."""
        self.cx.b.st_tagged(self.cells, self._pair(array, cell), [to_word(self.cx, value, self.word)], self._wide)

    def take(self, asked: Sequence[tuple[int, Expr, Expr]]) -> list[Value]:
        """The values of cells, each of an array and where it is asked for at all; all anew until each has the tag."""
        found = await_tagged(
            self.cx, self.cells, [(self._pair(array, cell), where) for array, cell, where in asked], self._wide
        )
        return [from_word(self.cx, word, self.dtype) for (word,) in found]

    def _pair(self, array: int, cell: Expr) -> Expr:
        """The first element of a cell's value and tag."""
        return (self.half + array * self.extent + cell) * 2


def to_word(cx: Context, value: Value, word: DType) -> Value:
    """A cell as the word that travels; one of 16 bits is the low half of it."""
    return cx.b.bitcast(value, word) if value.dtype.bits > 16 else cx.b.convert(cx.b.bitcast(value, u16), u32)


def from_word(cx: Context, word: Value, dtype: DType) -> Value:
    """The cell that a word is."""
    return cx.b.bitcast(word if dtype.bits > 16 else cx.b.convert(word, u16), dtype)


def round_tag(cx: Context, tag: Expr) -> Value:
    """The tag of a round."""
    found = cx.resolve(tag)
    assert isinstance(found, Value)
    return found


def await_tagged(
    cx: Context, cells: Buffer, asked: Sequence[tuple[Expr, Expr]], tag: Value, values: int = 1
) -> list[list[Value]]:  # fmt: skip
    """The values behind each place, where it is asked for at all; all anew until each has the tag.

    No load is behind a branch or waits for another one's tag: all are under way together.
    """
    b, word = cx.b, cells.dtype
    short = tag if word is u32 else b.convert(tag, u32)
    got = b.alloc("got", word, len(asked) * values)
    with b.loop():
        differ = list[Value]()
        for i, (place, where) in enumerate(asked):
            *words, found = b.ld_tagged(cells, place, where, tag, values=values)
            for j, value in enumerate(words):
                b.st(got, i * values + j, value)
            differ.append(b.binary("xor", found if word is u32 else b.convert(found, u32), short))
        b.break_if(reduce(lambda some, more: b.binary("or", some, more), differ).eq(0))
    return [[b.ld(got, i * values + j) for j in range(values)] for i in range(len(asked))]


class _Exchange:
    """Own cells go into the images, from there to other blocks; theirs come the same way back."""

    def __init__(self, cx: Context, op: t.Exchange) -> None:
        self.cx, self.op = cx, op
        self.size = op.held[0].size * cx.func.threads
        #: Where lanes begin in the first line of a warp.
        self.begin = cx.b.let("begin", cx.lane + cx.warp * (op.share[1] * op.turn[1]))
        self.cells = Tagged(cx, op, op.extent)

    def run(self) -> None:
        for at, regs, register in self._registers():
            self.cx.b.st(self.op.image, at, self.cx.b.ld(regs, register))
        self.cx.b.barrier()
        self._give()
        self._take()
        self.cx.b.barrier()
        self._back()

    def _registers(self, *lines: tuple[int, int]) -> list[tuple[Expr, Buffer, int]]:
        """Where the cells of a thread, or those of some planes and rows, lie in the images: columns of a lane 32 apart,
        so that lanes are side by side, each turned on from the one before."""
        (planes, rows, cols), warps = self.op.share, self.cx.func.threads // 32
        by_column, by_line = self.op.turn
        found = []
        for array, regs in enumerate(self.op.held):
            for p, k in lines or product(range(planes), range(rows)):
                row = p * (warps * rows) + k
                line = array * self.size + (row + self.cx.warp * rows) * (32 * cols)
                for c in range(cols):
                    turned = (self.begin + (c * by_column + row * by_line)) % 32
                    found.append((line + c * 32 + turned, regs, (p * rows + k) * cols + c))
        return found

    def _entries(self, table: Buffer) -> list[tuple[Value, Expr]]:
        """What a list has for a thread: cells, -1 where there are no more, and where in the list their places stand."""
        b, threads = self.cx.b, self.cx.func.threads
        count = table.size // (2 * self.cx.func.blocks)
        found = []
        for first in range(0, count, threads):
            number = self.cx.tid + first
            there = None if first + threads <= count else b.let("there", number.lt(count))
            at = (self.cx.bx * count + number) * 2
            cell = b.ld(table, at, where=there, other=-1, cache="nc", hint="cell", lo=-1, hi=self.op.extent - 1)
            found.append((cell, at + 1))
        return found

    def _place(self, table: Buffer, at: Expr) -> Value:
        """A place of the image, asked for when it is needed: registers are short meanwhile."""
        return self.cx.b.ld(table, at, cache="nc", hint="place", lo=0, hi=self.size - 1)

    def _give(self) -> None:
        b, op = self.cx.b, self.op
        for cell, at in self._entries(op.given):
            with b.if_(cell.ge(0)):
                place = self._place(op.given, at)
                for array in range(len(op.held)):
                    value = b.ld(op.image, place + array * self.size, hint="own", degree=op.degree)
                    self.cells.give(array, cell, value)

    def _take(self) -> None:
        entries, each = self._entries(self.op.taken), max(1, AT_ONCE // len(self.op.held))
        for first in range(0, len(entries), each):
            self._batch(entries[first : first + each])

    def _batch(self, entries: list[tuple[Value, Expr]]) -> None:
        """Asks for all cells of a few entries until each of them has the tag."""
        b, op, arrays = self.cx.b, self.op, len(self.op.held)
        there = [b.let("asks", cell.ge(0)) for cell, _ in entries]
        values = self.cells.take([
            (array, cell, where) for (cell, _), where in zip(entries, there, strict=True) for array in range(arrays)
        ])  # fmt: skip
        for first, ((_, at), where) in enumerate(zip(entries, there, strict=True)):
            with b.if_(where):
                place = self._place(op.taken, at)
                for array in range(arrays):
                    b.st(op.image, place + array * self.size, values[first * arrays + array], degree=op.degree)

    def _back(self) -> None:
        """Threads with cells of the halo read theirs."""
        b, op, (planes, rows, cols) = self.cx.b, self.op, self.op.share
        (front, top, left), (back, bottom, right) = map(self.cx.resolve, op.low), map(self.cx.resolve, op.high)
        column = self.cx.lane * cols
        beside = b.let("beside", any_of(column.lt(left), (column + cols).gt(right)))
        for p, k in product(range(planes), range(rows)):
            row = self.cx.warp * rows + k
            off = any_of(front.gt(p), back.le(p)) if planes > 1 else FALSE
            with b.if_(any_of(beside, row.lt(top), row.ge(bottom), off)):
                for at, regs, register in self._registers((p, k)):
                    b.st(regs, register, b.ld(op.image, at, hint="u"))
