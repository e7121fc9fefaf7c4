"""``tile.exchange_lines``: whole lines go from registers of one block to those of another, three words a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import tile_held as t
from ..expr import Expr, Value, any_of
from ..numbers.held import Line
from ..numbers.records import RECORD, WORDS
from ..types import u32, u64
from .context import Context, phased
from .held import await_tagged, from_word, round_tag, to_word
from .held_direct import Direct


@phased(t.ExchangeLines)
def exchange_lines(cx: Context, op: t.ExchangeLines) -> Callable[[], None]:
    return _Lines(cx, op).turn


class _Lines(Direct[t.ExchangeLines]):
    """A bit for each of a warp's lines."""

    def __init__(self, cx: Context, op: t.ExchangeLines) -> None:
        super().__init__(cx, op, cx.bx * (cx.func.threads // 32) + cx.warp, op.share[0] * op.share[1])
        self.records, self.dtype = op.records, op.held[0].dtype

    def exchange(self) -> None:
        b, each, (nz, ny, _) = self.cx.b, self.records.lines_at_once, self.op.extent
        self.tag = round_tag(self.cx, self.op.tag)
        self.half = b.let("half", self.cx.resolve(self.op.round) % 2 * (nz * ny))
        for p, k in self.op.given:  # one by one: measured, that is 1 to 8 % faster than some lines together
            with b.if_(self._is(self.gives, p, k)):
                self._give(p, k)
        for first in range(0, len(self.op.taken), each):
            lines = self.op.taken[first : first + each]
            with b.if_(any_of(*(self._is(self.takes, p, k) for p, k in lines))):
                self._take(lines)

    def _is(self, bits: Sequence[Value], p: int, k: int) -> Expr:
        return self.bit(bits, p * self.op.share[1] + k)

    def _start(self, p: int, k: int) -> Expr:
        """The first record of a line."""
        return self.cx.b.let("line", (self.half + self.line(p, k)) * self.records.size)

    def _give(self, p: int, k: int) -> None:
        b, lane, start, own = self.cx.b, self.cx.lane, self._start(p, k), self.records.own
        cells = [b.ld(regs, self.register(p, k, c)) for regs in self.op.held for c in range(self.op.share[2])]
        words = [word for cell in cells for word in self._words(cell)]
        for r in range(own):
            some = words[r * WORDS : (r + 1) * WORDS]
            some += some[-1:] * (WORDS - len(some))
            b.st_tagged(self.op.cells, (start + r * 32 + lane) * RECORD, some, self.tag)
        if self.records.beside:
            first = b.let("first", lane * WORDS)
            three = [b.shfl("idx", words[-1], (first + i) % 32) for i in range(WORDS)]
            with b.if_(lane.lt(-(-32 // WORDS))):
                b.st_tagged(self.op.cells, (start + own * 32 + lane) * RECORD, three, self.tag)

    def _take(self, lines: Sequence[Line]) -> None:
        """All records of some lines at once."""
        b, lane, own, beside = self.cx.b, self.cx.lane, self.records.own, self.records.beside
        asks = [b.let("asks", self._is(self.takes, p, k)) for p, k in lines]
        asked = list[tuple[Expr, Expr]]()
        for (p, k), where in zip(lines, asks, strict=True):
            start = self._start(p, k)
            places = [start + r * 32 + lane for r in range(own)] + [start + own * 32 + lane // WORDS] * beside
            asked += [(place * RECORD, where) for place in places]
        found = await_tagged(self.cx, self.op.cells, asked, self.tag, WORDS)
        which = [b.let(name, (lane % WORDS).eq(i)) for i, name in enumerate(("second", "third"), 1) if beside]
        for i, ((p, k), where) in enumerate(zip(lines, asks, strict=True)):
            got = found[i * self.records.asked : (i + 1) * self.records.asked]
            words = [word for record in got[:own] for word in record][: self.records.words]
            if beside:
                word, *others = got[-1]
                for mine, other in zip(which, others, strict=True):
                    word = b.select(mine, other, word)
                words.append(word)
            self._keep(p, k, words, where)

    def _keep(self, p: int, k: int, words: Sequence[Value], where: Expr) -> None:
        """The words of a line are its cells, array by array, where it comes from another block."""
        cols = self.op.share[2]
        each = len(words) // (len(self.op.held) * cols)
        for array in range(len(self.op.held)):
            for c in range(cols):
                first = (array * cols + c) * each
                self.keep(array, self.register(p, k, c), self._cell(words[first : first + each]), where)

    def _words(self, cell: Value) -> list[Value]:
        """A cell as words of 32 bits, the low one first."""
        b = self.cx.b
        if self.dtype.bits < 64:
            return [to_word(self.cx, cell, u32)]
        word = to_word(self.cx, cell, u64)
        return [b.convert(word, u32), b.convert(b.binary("shr", word, 32), u32)]

    def _cell(self, words: Sequence[Value]) -> Value:
        """The cell that words are."""
        b, word = self.cx.b, words[0]
        if len(words) > 1:
            low, high = (b.convert(half, u64) for half in words)
            word = b.binary("or", low, b.binary("shl", high, 32))
        return from_word(self.cx, word, self.dtype)
