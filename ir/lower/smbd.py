"""SpInfer's own product: a block's walk along group tiles, what it copies, and how lanes decode bitmaps."""

from __future__ import annotations

from collections.abc import Iterator

from .. import tile_smbd as t
from .. import warp as w
from ..expr import TRUE, Expr, Value, as_expr, minimum
from ..node import Op
from ..numbers.smbd import BITMAPS, PIECE, SIDE, STRIPS, TILE, place
from ..types import u32, u64
from .bitmap import part
from .bitmap_sums import arrived
from .context import Context, rule

#: Words of u64 that a load takes, those of starts that a copy does, and sums that a lane stores or loads at once.
PAIR, WORDS, WIDE = 2, 4, 4


@rule(t.WalkNested)
def walk_nested(cx: Context, op: t.WalkNested) -> None:
    b, split = cx.b, cx.resolve(op.split)
    begin = b.let("begin", part(split, op.splits, op.slabs))
    count = b.let("count", part(split + 1, op.splits, op.slabs) - begin, lo=1, hi=-(-op.slabs // op.splits))
    first = b.let("tile0", cx.resolve(op.row) * op.slabs + begin)

    def of(turn: Expr, ops: tuple[Op, ...]) -> None:
        """What the ops do in this turn, which there is."""
        with cx.scope():
            cx.env |= {
                op.at: b.let("at", first + turn, hi=op.at.hi), op.slab: b.let("slab", begin + turn, hi=op.slabs - 1),
                op.slot: b.let("slot", turn % op.buffers),
            }  # fmt: skip
            cx.all(ops)

    def fetch(turn: Expr, there: Expr) -> None:
        cx.guard(there, lambda: of(turn, op.weights))
        if op.groups == 2:
            b.commit()
        cx.guard(there, lambda: of(turn, op.columns))
        b.commit()

    def ready(turn: Expr, there: Expr) -> None:
        """W has come, and is decoded; x has come as well."""
        b.wait(op.groups - 1)
        b.barrier()
        cx.guard(there, lambda: of(turn, op.decode))
        if op.groups == 2:
            b.wait(0)
            b.barrier()

    if op.buffers == 2:
        fetch(as_expr(0), TRUE)
        ready(as_expr(0), TRUE)
        with b.for_("turn", 0, count, unroll=1) as turn:
            later = b.let("later", turn + 1)
            more = b.let("more", later.lt(count))
            fetch(later, more)
            of(turn, op.body)
            ready(later, more)
        return
    with b.for_("turn", 0, count, unroll=1) as turn:
        fetch(turn, TRUE)
        ready(turn, TRUE)
        of(turn, op.body)
        b.barrier()  # the slot has been read, and may be filled again


def _each(cx: Context, size: int, wide: int) -> Iterator[tuple[Expr, Expr | None]]:
    """Of ``size`` elements the first of each piece of ``wide`` that a thread has, and whether there is one."""
    for first in range(0, size // wide, cx.func.threads):
        here = (cx.tid + first).lt(size // wide)
        yield (cx.tid + first) * wide, None if here == TRUE else here


@rule(t.CopyNested)
def copy_nested(cx: Context, op: t.CopyNested) -> None:
    b, at, slot = cx.b, cx.resolve(op.at), cx.resolve(op.slot)
    begin, end = (b.ld(op.starts, (at + i) * STRIPS, cache="nc", hint=name, lo=0, hi=op.values.size)
                  for i, name in enumerate(("begin", "end")))  # fmt: skip
    for size, wide, dst, src in ((STRIPS, WORDS, op.first, op.starts), (BITMAPS, PAIR, op.bits, op.bitmaps)):
        for piece, here in _each(cx, size, wide):
            b.cp_async(dst, slot * size + piece, src, at * size + piece, wide, where=here)
    most = op.kept.size // op.buffers
    count = b.let("count", end - begin, lo=0, hi=most)
    with b.for_("piece", cx.tid * PIECE, count, cx.func.threads * PIECE) as piece:
        b.cp_async(op.kept, slot * most + piece, op.values, begin + piece, PIECE)


@rule(t.CopySlab)
def copy_slab(cx: Context, op: t.CopySlab) -> None:
    b, by_rows, to = cx.b, op.order == "row", place(op.cols, op.order)
    rows, width = to.extents
    base = b.let("to", cx.resolve(op.slot) * to.size())
    k0, n0 = b.let("k0", cx.resolve(op.slab) * SIDE), cx.resolve(op.column)
    zero = cx.zero(op.dst.dtype) if op.k % SIDE else None
    with b.for_("piece", cx.tid, rows * width // PIECE, cx.func.threads) as piece:
        line, inner = b.let("line", piece // (width // PIECE)), b.let("inner", piece % (width // PIECE) * PIECE)
        own = b.let("own", base + to(line, inner))
        k = b.let("k", k0 + (line if by_rows else inner))
        n = b.let("n", minimum(n0 + (inner if by_rows else line), op.n - (PIECE if by_rows else 1)))

        def copy() -> None:
            b.cp_async(op.dst, own, op.src, k * op.n + n if by_rows else n * op.k + k, PIECE)

        if zero is None:
            copy()
        else:
            cx.branch(b.let("there", k.lt(op.k)), copy, lambda: b.st(op.dst, own, *[zero] * PIECE))


@rule(t.DecodeNested)
def decode_nested(cx: Context, op: t.DecodeNested) -> None:
    b, slot, most = cx.b, cx.resolve(op.slot), op.kept.size // op.buffers
    mine = b.let("strip", cx.warp * (op.a.size * STRIPS // BITMAPS))  # a register is of one bitmap
    zero, own = (b.ld(op.first, slot * STRIPS + strip, hint="start") for strip in (as_expr(0), mine))
    base = b.let("base", slot * most + (own - zero), lo=0, hi=op.kept.size)
    bit = b.let("bit", cx.lane * 2)
    one = b.convert(b.name(as_expr(1), "one"), u64)
    below = b.binary("sub", b.binary("shl", one, bit), one, hint="below")
    upto = below if op.two_phase else b.binary("or", b.binary("shl", below, 1), one, hint="upto")
    words: list[Value] = []
    for register in range(op.a.size):
        if not words:
            words += b.ldv(op.bits, slot * BITMAPS + mine * (BITMAPS // STRIPS) + register, PAIR, hint="bits")
        word = words.pop(0)
        before = b.unary("popc", b.binary("and", word, below), hint="before")
        pair = b.convert(b.binary("shr", word, bit), u32, hint="pair")
        first = b.name(b.binary("and", pair, 1, hint="has").ne(0), "first")
        second = b.name(b.binary("and", pair, 2, hint="has").ne(0), "second")
        at = b.let("at", base + before, hi=op.kept.size)
        if op.two_phase:
            after = b.let("after", at + first, hi=op.kept.size)
        else:
            after = b.let("after", base + b.unary("popc", b.binary("and", word, upto)), hi=op.kept.size)
        low, high = (b.ld(op.kept, i, where=has, hint="w") for i, has in ((at, first), (after, second)))
        b.st(op.a, register, b.pack(low, high, hint="a"))
        if register + 1 < op.a.size:
            base = b.let("base", base + b.unary("popc", word, hint="all"), hi=op.kept.size)


@rule(t.MultiplyNested)
def multiply_nested(cx: Context, op: t.MultiplyNested) -> None:
    b, at, blocks = cx.b, place(op.cols, op.order), op.cols // 8
    high = op.acc.size // (4 * blocks)
    base = b.let("x0", cx.resolve(op.slot) * at.size())
    load = _by_ldmatrix if op.ldmatrix else _by_elements
    across = SIDE // 16
    for two in range(0, across, 2):  # two fragments of W at a time: four matrices of x
        for block in range(blocks):
            xs = load(cx, op, base, two, block)
            for f in (two, two + 1):
                for i in range(high):
                    a = [b.ld(op.a, (i * across + f) * TILE + r, hint="a") for r in range(TILE)]
                    cx.multiply(op.shape, a, xs[2 * (f - two) : 2 * (f - two) + 2], op.acc, (i * blocks + block) * 4)


def _by_ldmatrix(cx: Context, op: t.MultiplyNested, base: Expr, two: int, block: int) -> list[Value]:
    """Lane l has the address of a row of matrix l // 8: of 8 rows of x, or of 8 columns."""
    b, lane, by_rows = cx.b, cx.lane, op.order == "row"
    line = lane + 16 * two if by_rows else lane % 8 + 8 * block
    piece = as_expr(block) if by_rows else lane // 8 + 2 * two
    out = tuple(b.fresh("b", u32) for _ in range(4))
    b.emit(w.LdMatrix(out, op.x, base + place(op.cols, op.order)(line, piece * PIECE), by_rows))
    return list(out)


def _by_elements(cx: Context, op: t.MultiplyNested, base: Expr, two: int, block: int) -> list[Value]:
    """A lane's pairs of rows 2 t and 2 t + 1 of column g: side by side if x comes by columns."""
    b, at, (g, lane) = cx.b, place(op.cols, op.order), cx.coordinates()
    column, out = g + 8 * block, []
    for half in range(4):
        row = lane * 2 + (16 * two + 8 * half)
        if op.order == "row":
            low, high = (b.ld(op.x, base + at(row + e, column), hint="x") for e in (0, 1))
        else:
            low, high = b.ldv(op.x, base + at(column, row), 2, hint="x")
        out.append(b.pack(low, high, hint="b"))
    return out


@rule(t.SumSplits)
def sum_splits(cx: Context, op: t.SumSplits) -> None:
    b, tile, split, threads = cx.b, cx.resolve(op.tile), cx.resolve(op.split), cx.func.threads

    def place(other: Expr, e: int) -> Expr:
        """Where a thread's sums from the e-th on are: those of the threads lie side by side."""
        return ((tile * op.splits + other) * op.acc.size + e) * threads + cx.tid * WIDE

    for e in range(0, op.acc.size, WIDE):
        b.st(op.slots, place(split, e), *(b.ld(op.acc, e + i, hint="sum") for i in range(WIDE)))
    cx.shared.append(op.turn)
    last = arrived(cx, op.counter, tile, op.splits, op.turn)
    with b.if_(last):
        cx.clear(op.acc)
        with b.for_("other", 0, op.splits) as other:
            for e in range(0, op.acc.size, WIDE):
                for i, v in enumerate(b.ldv(op.slots, place(other, e), WIDE, cache="cg", hint="part")):
                    b.st(op.acc, e + i, b.binary("add", b.ld(op.acc, e + i, hint="sum"), v))
        cx.all(op.body)
