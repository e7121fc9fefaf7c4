"""Sampled products: rows of a to registers, gathered rows of a strip by row address, mma, sums to the vectors."""

from __future__ import annotations

from .. import tile_sampled as t
from .. import warp as w
from ..expr import Expr, Value, all_of, as_expr
from ..numbers.sampled import CHUNK, GROUP, PHASE, PIECE, TILE, chunks, entry_bits, no_vector, tiles
from ..swizzle import swizzled
from ..tile_tasks import RECORD
from ..types import Buffer, s32, u32
from .context import Context, rule

#: Rows of a phase of ``ldmatrix`` that lie in one bank, at most: all, where a pattern has only such columns.
DEGREE = 8
#: Which bytes of two words are the low ones of their four 16-bit numbers, and the high ones.
LOW, HIGH = 0x6420, 0x7531
#: The high digits of a word's eight 4-bit numbers.
DIGITS = 0xF0F0F0F0
#: Of 16-bit numbers: which sum the products of a pair of bytes (of b, of a: 0 low, 1 high) go to, and their mma.
PLANES = (
    ((1, 1), 0, "s8.m16n8k32"), ((1, 0), 1, "s8.u8.m16n8k32"),
    ((0, 1), 1, "u8.s8.m16n8k32"), ((0, 0), 2, "u8.m16n8k32"),
)  # fmt: skip


@rule(t.FirstTask)
def first_task(cx: Context, op: t.FirstTask) -> None:
    b, warps = cx.b, cx.func.threads // 32
    with cx.scope():
        at = b.let("first", (cx.resolve(op.list) * (op.length * warps) + cx.warp) * RECORD)
        cx.env[op.row] = b.ld(op.tasks, at, cache="nc", hint="row", lo=0, hi=op.rows)
        cx.all(op.body)


class _Rows:
    """The buffer of a warp: 8 rows of a, slice by slice."""

    def __init__(self, cx: Context, op: t.FetchRows | t.TakeRows | t.ClearRest) -> None:
        self.b, self.item = cx.b, op.buffers.dtype.nbytes
        self.piece, self.cols = PIECE // self.item, op.width // self.item
        self.begin = cx.b.let("mine", cx.warp * (GROUP * op.slices * self.cols))
        self.place = swizzled(GROUP, op.width, op.width, self.item)

    def at(self, row: Expr, piece: Expr) -> Expr:
        """Where a piece of a row begins."""
        across = self.cols // self.piece
        inner = self.place(row, piece % across * self.piece)
        return self.begin + inner + piece // across * (GROUP * self.cols)

    def clear(self, buffer: Buffer, at: Expr, where: Expr) -> None:
        """Writes zeros to a piece."""
        zero = self.b.convert(self.b.name(as_expr(0), "zero"), buffer.dtype)
        for e in range(0, self.piece, 4):
            self.b.st(buffer, at + e, *[zero] * 4, where=where, degree=DEGREE)


@rule(t.FetchRows)
def fetch_rows(cx: Context, op: t.FetchRows) -> None:
    b, rows, wide = cx.b, _Rows(cx, op), -(-op.nbytes // PIECE)
    group, which = cx.resolve(op.row), cx.resolve(op.which)

    def fetch() -> None:
        for first in range(0, GROUP * wide, 32):
            number = cx.lane + first
            row, piece = b.let("r", number // wide), b.let("piece", number % wide)
            real = number.lt(GROUP * wide)
            at = b.let("to", rows.at(row, piece))
            line = b.let("line", group * GROUP + row)
            inside = all_of(real, line.lt(op.m)) if op.m % GROUP else real
            source = (which * op.m + line) * op.n + (op.column + piece * rows.piece)
            b.cp_async(op.buffers, at, op.src, source, rows.piece, where=None if inside == as_expr(1) else inside)
            if op.m % GROUP:
                rows.clear(op.buffers, at, all_of(real, line.ge(op.m)))

    cx.guard(group.lt(-(-op.m // GROUP)), fetch)
    if op.alone:
        b.commit()


@rule(t.ClearRest)
def clear_rest(cx: Context, op: t.ClearRest) -> None:
    b, rows, first = cx.b, _Rows(cx, op), op.copied // PIECE
    left = chunks(op.nbytes, op.dtype.bits) * CHUNK // PIECE - first
    with b.for_("p", cx.lane, GROUP * left, 32) as p:
        rows.clear(op.buffers, b.let("at", rows.at(p // left, p % left + first)), as_expr(1).eq(1))


@rule(t.TakeRows)
def take_rows(cx: Context, op: t.TakeRows) -> None:
    b, rows, pieces = cx.b, _Rows(cx, op), chunks(op.nbytes, op.dtype.bits) * CHUNK // PIECE
    if op.waits:
        b.wait(0)
        b.sync()
    taken = list[Value]()
    for first in range(0, pieces, 4):
        many = min(4, pieces - first)
        piece = first + (cx.lane // GROUP if many == 4 else cx.lane // GROUP % many)
        out = tuple(b.fresh("b", u32) for _ in range(many))
        b.emit(w.LdMatrix(out, op.buffers, b.let("at", rows.at(cx.lane % GROUP, piece))))
        taken += out
    for i, v in enumerate(_digits(cx, taken, op.dtype.bits)):
        b.st(op.own, i, v)
    if op.again:
        b.sync()  # the next rows may come


def _digits(cx: Context, words: list[Value], bits: int) -> list[Value]:
    """The registers of an mma of bytes: of words of 16-bit numbers the low and the high bytes of each two, of 4-bit
    ones the low and the high digits of each, times 16."""
    b = cx.b
    if bits == 8:
        return words
    if bits == 16:
        pairs = zip(words[::2], words[1::2], strict=True)
        return [b.prmt(first, second, which) for first, second in pairs for which in (LOW, HIGH)]
    return [
        b.binary("and", v, DIGITS) for word in words for v in (b.binary("shl", word, 4), word)
    ]  # fmt: skip


@rule(t.EachTile)
def each_tile(cx: Context, op: t.EachTile) -> None:
    b, most = cx.b, (1 << entry_bits(op.rows, op.height)) - 1
    begin, end = cx.resolve(op.begin), cx.resolve(op.end)
    count = b.let("count", end - begin, lo=0)
    many = b.let("tiles", tiles(count), hi=op.entries.size // TILE)
    g, lane = cx.coordinates()
    cx.alloc(op.entry)
    cx.alloc(op.place)
    own_row = b.let("own_row", lane * 2 // op.height)
    strip_row = b.let("strip_row", cx.resolve(op.row) * (GROUP // op.height) + own_row)
    start = strip_row * op.strips + cx.resolve(op.strip)
    begins = b.ld(op.starts, start, cache="nc", hint="first", lo=0, hi=op.vectors)
    none = b.name(as_expr(op.vectors * (op.which.hi + 1)), "none")
    mine = b.let("mine", begin + cx.lane % TILE)
    first = b.let("first", cx.resolve(op.which) * op.vectors + begins)

    def look(tile: Expr) -> None:
        found = b.ld(op.entries, mine + tile * TILE, where=tile.lt(many), cache="nc")
        b.st(op.entry, 1, found if found.dtype is u32 else b.convert(found, u32))

    look(as_expr(0))
    cx.all(op.first)
    with cx.scope(), b.for_("tile", 0, many, unroll=1) as tile:
        b.st(op.entry, 0, b.ld(op.entry, 1))
        look(tile + 1)
        entry = b.ld(op.entry, 0, hint="entry")
        for half in range(TILE // PHASE):
            named = b.fresh("entry", s32, 0, most)
            b.emit(w.Convert((named,), b.shfl("idx", entry, g + half * PHASE, hint="entry")))
            if op.height == GROUP:
                there = (named // op.rows).lt(no_vector(op.rows, op.height, count))
            else:
                there = (named // (op.rows * op.rows)).eq(own_row)
            vector = b.name(b.let("vector", first + named // op.rows % op.rows), "vector")
            b.st(op.place, half, b.select(b.let("there", there), vector, none, hint="place"))
        cx.all(op.body)


@rule(t.MultiplyTile)
def multiply_tile(cx: Context, op: t.MultiplyTile) -> None:
    b, item = cx.b, op.strip.dtype.nbytes
    entry = b.ld(op.entry, 0, hint="entry")
    place = swizzled(op.rows, op.width, op.width, item)
    begin = b.let("row", place(entry % op.rows, cx.lane // TILE * (PIECE // item)))
    products(cx, op, op.strip, begin, op.rows * op.width // item)


def products(cx: Context, op: t.OfSums, source: Buffer, begin: Expr, apart: int) -> None:
    """The sums of 16 rows of ``source``, of which a lane's begins at ``begin``, and slices lie so far apart."""
    b, bits, piece = cx.b, op.dtype.bits, PIECE // source.dtype.nbytes
    inner = [b.let("at", begin ^ (2 * piece * i)) for i in range(op.width // CHUNK)]
    cx.clear(op.acc)

    def gathered(chunk: int) -> list[Value]:
        """Chunk number ``chunk`` of the 16 rows: as an mma's first operand has it."""
        part, within = divmod(chunk, len(inner))
        out = tuple(b.fresh("a", u32) for _ in range(4))
        b.emit(w.LdMatrix(out, source, inner[within] + part * apart, degree=DEGREE))
        return list(out)

    def mine(first: int, step: int = 1) -> list[Value]:
        return [b.ld(op.own, first + e * step, hint="b") for e in (0, 1)]

    for j in range(0, chunks(op.nbytes, bits), 2 if bits == 16 else 1):
        if bits == 16:
            first, second = gathered(j), gathered(j + 1)
            planes = list(zip(*(_planes(cx, *pair) for pair in _pairs(first, second)), strict=True))
            for (of_b, of_a), total, shape in PLANES:
                cx.multiply(shape, planes[of_b], mine(2 * j + of_a, 2), op.acc, 4 * total)
        elif bits == 4:
            digits = _digits(cx, gathered(j), 4)
            for which in (0, 1):
                cx.multiply("s8.m16n8k32", digits[which::2], mine(4 * j + which, 2), op.acc, 4 * which)
        else:
            cx.multiply("s8.m16n8k32", gathered(j), mine(2 * j), op.acc, 4 * (j % 2))


def _pairs(first: list[Value], second: list[Value]) -> list[tuple[Value, Value]]:
    """Of two chunks of 16-bit numbers the words that make a register of an mma of bytes, in its order."""
    return [(first[0], first[2]), (first[1], first[3]), (second[0], second[2]), (second[1], second[3])]


def _planes(cx: Context, one: Value, other: Value) -> tuple[Value, Value]:
    """The low and the high bytes of the four 16-bit numbers of two words."""
    return cx.b.prmt(one, other, LOW), cx.b.prmt(one, other, HIGH)


def _total(cx: Context, acc: Buffer, e: int, bits: int) -> Value:
    """A lane's sum number ``e``."""
    b = cx.b
    one, other = b.ld(acc, e, hint="s"), b.ld(acc, 4 + e, hint="s")
    if bits == 16:
        high, middle = b.binary("shl", one, 16), b.binary("shl", other, 8)
        return b.binary("add", b.binary("add", high, middle), b.ld(acc, 8 + e, hint="s"))
    total = b.binary("add", one, other)
    return b.binary("shr", total, 8) if bits == 4 else total


def _places(cx: Context, op: t.OfPlaces, out: Buffer, half: int) -> tuple[Expr, list[Expr]]:
    """Whether the lane has two rows of a vector among the 8 first or last ones of a tile, and where: one element after
    the other, or two by two where they are adjacent."""
    b, many = cx.b, out.size // op.height
    _, lane = cx.coordinates()
    row = b.let("r", lane * 2 % op.height)
    vector = b.ld(op.place, half, hint="vector", lo=0, hi=many)
    if not op.stride:
        return b.let("there", vector.lt(many)), [b.let("to", vector * op.height + row)]
    at = b.let("to", (vector // op.stride * op.height + row) * op.stride + vector % op.stride)
    return b.let("there", vector.lt(many)), [at, at + op.stride]


@rule(t.LoadSampled)
def load_sampled(cx: Context, op: t.LoadSampled) -> None:
    cx.alloc(op.old)
    for half in range(TILE // PHASE):
        there, places = _places(cx, op, op.out, half)
        found = [v for at in places for v in cx.b.ldv(op.out, at, 2 // len(places), where=there, hint="old")]
        for e, v in enumerate(found):
            cx.b.st(op.old, 2 * half + e, v)


@rule(t.StoreSampled)
def store_sampled(cx: Context, op: t.StoreSampled) -> None:
    b = cx.b
    for half in range(TILE // PHASE):
        there, places = _places(cx, op, op.out, half)
        sums = [_total(cx, op.acc, 2 * half + e, op.dtype.bits) for e in (0, 1)]
        if op.old is not None:
            sums = [b.binary("add", v, b.ld(op.old, 2 * half + e, hint="old")) for e, v in enumerate(sums)]
        for i, at in enumerate(places):
            b.st(op.out, at, *(sums if len(places) == 1 else sums[i : i + 1]), where=there)


@rule(t.FillUp)
def fill_up(cx: Context, op: t.FillUp) -> None:
    b, rows, warps, one = cx.b, op.ptr.size // 2, cx.func.threads // 32, op.out.size // (op.which.hi + 1)
    zero = b.convert(b.name(as_expr(0), "zero"), s32)
    with b.for_("row", cx.resolve(op.block) * warps + cx.warp, rows, op.blocks * warps, unroll=1) as row:
        end = b.ld(op.ptr, row * 2 + 1, cache="nc", hint="end", lo=0, hi=one // op.height)
        begin = b.let("begin", cx.resolve(op.which) * one + end // op.stride * (op.stride * op.height))
        used = b.let("used", end % op.stride)
        with b.for_("e", cx.lane, op.stride * op.height, 32) as e:
            b.st(op.out, begin + e, zero, where=all_of(used.gt(0), (e % op.stride).ge(used)))
