"""A sum over GPUs: every thread writes its words to all others, then waits for theirs and adds them in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .. import tile_all_reduce as t
from ..expr import Expr, Value, as_expr
from ..types import f32, u16, u32, u64
from .context import Context, rule


@rule(t.AllReduce)
def all_reduce(cx: Context, op: t.AllReduce) -> None:
    _AllReduce(cx, op).run()


#: Bits of a clock that patience does not count: 32 bits have room for the others.
UNIT = 20


class _AllReduce:
    """The words of a launch, and where they lie in the buffers of this one's half."""

    def __init__(self, cx: Context, op: t.AllReduce) -> None:
        self.cx, self.op, self.b, b = cx, op, cx.b, cx.b
        self.most, self.ranks = op.src.size, len(op.theirs)
        self.words = b.ld(op.words, 0, hint="words", lo=1, hi=self.most)
        before = b.ld(op.epoch, cx.bx, hint="before")
        self.epoch = b.binary("add", before, 1, hint="epoch")
        self.tag = b.convert(self.epoch, u64, hint="tag")
        odd = b.binary("and", self.epoch, 1, hint="odd")
        half = b.select(b.name(odd.eq(1), "second"), b.name(as_expr(self.ranks * self.most), "far"),
                        b.name(as_expr(0), "near"), hint="half")  # fmt: skip
        self.half = half

    def run(self) -> None:
        b, op, cx = self.b, self.op, self.cx
        others = [rank for rank in range(self.ranks) if rank != op.rank]
        with self._mine() as i:
            word = b.ld(op.src, i, hint="word")
            for rank in others:
                b.st_tagged(op.theirs[rank], self._cell(op.rank, i), [word], self.tag, "sys")
        began = b.clock("began") if op.patience else None
        with self._mine() as i:
            self._wait(i, others, began)
        b.barrier()  # all have read the epoch
        b.st(op.epoch, cx.bx, self.epoch, where=cx.tid.eq(0))

    @contextmanager
    def _mine(self) -> Iterator[Value]:
        """Each of the thread's words."""
        first, step = self.cx.bx * self.cx.func.threads + self.cx.tid, self.cx.func.blocks * self.cx.func.threads
        with self.b.for_("i", self.b.let("first", first), self.words, step, unroll=1) as i:
            yield i

    def _cell(self, rank: int, i: Expr) -> Expr:
        """The word that a rank has sent, and its tag."""
        return (self.half + rank * self.most + i) * 2

    def _wait(self, i: Value, others: Sequence[int], began: Value | None) -> None:
        """Asks for all ranks' words at once until each has its tag, and stores the sum."""
        b, op = self.b, self.op
        got = b.alloc("got", u64, len(others))
        with b.loop():
            differ: Value | None = None
            for place, rank in enumerate(others):
                word, tag = b.ld_tagged(op.theirs[op.rank], self._cell(rank, i), scope="sys")
                b.st(got, place, word)
                other = b.binary("xor", b.convert(tag, u32), self.epoch)
                differ = other if differ is None else b.binary("or", differ, other)
            assert differ is not None
            b.break_if(differ.eq(0))
            if began is not None:
                waited = b.binary("shr", b.binary("sub", b.clock(), began), UNIT)
                b.trap(b.let("late", b.convert(waited, u32).ge(op.patience)))
        total: list[Value] = []
        own = b.ld(op.src, i, hint="own")
        for rank in range(self.ranks):
            word = own if rank == op.rank else b.ld(got, others.index(rank))
            numbers = self._numbers(word)
            total = [b.binary("add", x, y) for x, y in zip(total, numbers, strict=True)] if total else numbers
        b.st(op.dst, i, self._word(total))

    def _halves(self, word: Value) -> list[Value]:
        """The two words of 32 bits, the low one first."""
        return [self.b.convert(word, u32), self.b.convert(self.b.binary("shr", word, 32), u32)]

    def _numbers(self, word: Value) -> list[Value]:
        """What a word of 8 bytes holds, in f32."""
        halves = self._halves(word)
        if self.op.dtype is f32:
            return [self.b.bitcast(half, f32) for half in halves]
        return [x for half in halves for x in self.cx.halves(half, self.op.dtype)]

    def _word(self, numbers: Sequence[Value]) -> Value:
        """The word of numbers, each rounded once."""
        b, dtype = self.b, self.op.dtype
        if dtype is f32:
            low, high = (b.bitcast(x, u32) for x in numbers)
        else:
            bits = [b.bitcast(b.convert(x, dtype), u16) for x in numbers]
            low, high = (b.pack(bits[i], bits[i + 1]) for i in (0, 2))
        return b.binary("or", b.convert(low, u64), b.binary("shl", b.convert(high, u64), 32))
