"""Magicube's own product: a step's values, columns and rows of x, and how lanes turn and multiply them."""

from __future__ import annotations

from itertools import product

from .. import tile_strided as t
from ..expr import TRUE, Expr, Value, all_of, as_expr, maximum, minimum
from ..numbers.strided import MEET, PAD, PIECE, ROWS, WORDS, Planes, turned
from ..op_spmm import Digit
from ..types import Buffer, f32, s32
from .context import Context, rule
from .epilogue import finish, of_row, put

#: Which bytes of two words make the first half of the first two columns of four words, and of the last two.
FIRST, LAST = 0x5140, 0x7362
#: The first halves of two such words, and the second ones.
LOW, HIGH = 0x5410, 0x7632
#: Low digits of 4 bits of a word's bytes, and high ones.
EVEN, ODD = 0x0F0F0F0F, 0xF0F0F0F0


@rule(t.WalkStrides)
def walk_strides(cx: Context, op: t.WalkStrides) -> None:
    b, row, total = cx.b, cx.resolve(op.row), op.at.hi + 1
    begin, end = (b.ld(op.ptr, row * 2 + i, cache="nc", hint=name, lo=0, hi=total * op.stride)
                  for i, name in enumerate(("begin", "end")))  # fmt: skip
    first = b.let("first", begin // op.stride)
    count = b.let("count", (maximum(end - begin, 0) + (op.stride - 1)) // op.stride, hi=total)

    def step(turn: Expr) -> None:
        """What follows is of this step."""
        cx.env |= {op.at: b.let("at", first + turn, hi=total - 1), op.slot: b.let("slot", turn % 2)}

    def listed(turn: Expr) -> None:
        step(turn)
        cx.all(op.list)

    if op.prefetch:
        with b.if_(count.gt(0)):
            listed(as_expr(0))
        b.barrier()
        with cx.scope(), b.if_(count.gt(0)):
            step(as_expr(0))
            cx.all(op.fetch)
    with cx.scope(), b.for_("turn", 0, count, unroll=1) as turn:
        if op.prefetch:
            later = b.let("later", turn + 1)
            more = b.let("more", later.lt(count))
            cx.all(op.keep)
            with cx.scope(), b.if_(more):
                listed(later)
            b.barrier()
            with cx.scope(), b.if_(more):
                step(later)
                cx.all(op.fetch)
        else:
            listed(turn)
            b.barrier()
            cx.all(op.fetch)
            cx.all(op.keep)
            b.barrier()
        step(turn)
        cx.all(op.body)
        if op.prefetch:
            b.barrier()  # the rows of x have been read, and those of the next step may be written


@rule(t.ListStep)
def list_step(cx: Context, op: t.ListStep) -> None:
    b, at, slot = cx.b, cx.resolve(op.at), cx.resolve(op.slot)
    steps = op.idx.size // (op.numbers.size // 2)

    def bring(dst: Buffer, src: Buffer, at: Expr, first: int) -> None:
        size, mine = dst.size // 2, b.let("mine", cx.tid + first)
        where = None if (here := mine.lt(size)) == TRUE else here
        v = b.ld(src, at * size + mine, where=where, cache="nc", hint=src.name)
        b.st(dst, slot * size + mine, cx.convert(v, dst.dtype), where=where)

    for dst, src, step in ((op.numbers, op.idx, at), (op.words, op.values, cx.resolve(op.which) * steps + at)):
        for first in range(0, dst.size // 2, cx.func.threads):
            bring(dst, src, step, first)


class _Pieces:
    """The pieces of a step's rows of x that a thread brings: row and first word of each."""

    def __init__(self, cx: Context, regs: int, wide: int) -> None:
        across = wide // PIECE
        numbers = [cx.tid + i * cx.func.threads for i in range(regs // 4)]
        self.of = [(cx.b.let("down", n // across), cx.b.let("word", n % across * (PIECE // 4))) for n in numbers]


@rule(t.FetchStep)
def fetch_step(cx: Context, op: t.FetchStep) -> None:
    b, slot, size = cx.b, cx.resolve(op.slot), op.numbers.size // 2
    for i, (down, word) in enumerate(_Pieces(cx, op.regs.size, op.wide).of):
        k = b.ld(op.numbers, slot * size + down, hint="k")
        column = b.let("column", cx.resolve(op.column) + word)
        there = b.let("there", all_of(k.ge(0), k.lt(op.k), column.lt(op.n)))
        line = b.let("line", minimum(maximum(k, 0), op.k - 1))
        at = (cx.resolve(op.which) * op.k + line) * op.n + minimum(column, op.n - PIECE // 4)
        for e, v in enumerate(b.ldv(op.src, at, 4, where=there, cache="nc", hint="x")):
            b.st(op.regs, 4 * i + e, v)


def _word(row: Expr, word: Expr, wide: int, bits: int, pad: bool) -> Expr:
    """Where a word of a step's rows of x lies."""
    at = row * (wide // 4) + word
    return at + row // turned(bits) * PAD if pad else at


@rule(t.KeepStep)
def keep_step(cx: Context, op: t.KeepStep) -> None:
    b = cx.b
    for i, (down, word) in enumerate(_Pieces(cx, op.regs.size, op.wide).of):
        vals = [b.ld(op.regs, 4 * i + e, hint="x") for e in range(4)]
        b.st(op.x, _word(down, word, op.wide, op.bits, op.pad), *vals)


@rule(t.MultiplyStep)
def multiply_step(cx: Context, op: t.MultiplyStep) -> None:
    b, made = cx.b, Planes(op.w_digits, op.x_digits, op.height, op.stack)
    g, lane = cx.coordinates()
    left = _of_w(cx, op, made, g)
    rows = turned(made.bits)
    word = b.let("word", cx.warp * WORDS + g)
    top = b.let("top", _word(lane * rows, word, op.wide, made.bits, op.pad))
    degree = 1 if op.pad else MEET
    held = [b.ld(op.x, top + i * (op.wide // 4), hint="x", degree=degree) for i in range(rows)]
    found = _turn(cx, held) if made.bits == 8 else _turn_halves(cx, held, op.shuffle)
    for i, register in enumerate(found):
        column, digit = divmod(i, len(op.x_digits))
        x = op.x_digits[-1 - digit]  # the low one comes first
        for number, group in enumerate(made.groups):
            sums = made.at(column, made.kind(number, x))
            cx.multiply(t.shape(group[0], x), [left[number]], [register], op.acc, sums)


def _of_w(cx: Context, op: t.MultiplyStep, made: Planes, g: Expr) -> list[Value]:
    """The first operand of each mma: rows that there are not are zero."""
    b, found = cx.b, []
    rows, many = made.height * made.per, made.height * len(made.w_digits)
    for number in range(len(made.groups)):
        row = b.let("row", number * rows + g)
        last = min((number + 1) * rows, many)
        there = None if last - number * rows == ROWS else row.lt(last)
        at = cx.resolve(op.slot) * made.words + minimum(row, many - 1) * 4 + cx.lane % 4
        found.append(b.ld(op.words, at, where=there, hint="w"))
    return found


def _turn(cx: Context, words: list[Value]) -> list[Value]:
    """Four words by four: word c has byte c of each (the online transpose, section 4.2.2)."""
    b, out = cx.b, []
    for which in (FIRST, LAST):
        low, high = (b.prmt(words[i], words[i + 1], which, hint="h") for i in (0, 2))
        out += [b.prmt(low, high, half, hint="b") for half in (LOW, HIGH)]
    return out


def _turn_halves(cx: Context, words: list[Value], shuffle: bool) -> list[Value]:
    """Eight words of eight digits of 4 bits: word c has digit c of each."""
    b, out = cx.b, []
    for first, last in zip(_turn(cx, words[:4]), _turn(cx, words[4:]), strict=True):
        if shuffle:  # rows 0, 2, 4, 6 and rows 1, 3, 5, 7: digits of both lie side by side
            low = b.binary("shl", b.binary("and", last, EVEN), 4)
            out.append(b.binary("or", b.binary("and", first, EVEN), low))
            high = b.binary("and", b.binary("shr", first, 4), EVEN)
            out.append(b.binary("or", high, b.binary("and", last, ODD)))
        else:
            out += [_gathered(cx, first, last, half) for half in (0, 1)]
    return out


def _gathered(cx: Context, first: Value, last: Value, half: int) -> Value:
    """The low (or high) digits of the bytes of two words side by side, digit by digit."""
    b, made = cx.b, None
    for i, (word, e) in enumerate(product((first, last), range(4))):
        by = 4 * i - (8 * e + 4 * half)
        moved = b.binary("shl" if by > 0 else "shr", word, abs(by)) if by else word
        digit = b.binary("and", moved, 0xF << 4 * i)
        made = digit if made is None else b.binary("or", made, digit)
    assert made is not None
    return made


@rule(t.StorePlanes)
def store_planes(cx: Context, op: t.StorePlanes) -> None:
    b, made = cx.b, Planes(op.w_digits, op.x_digits, op.height, op.stack)
    g, lane = cx.coordinates()
    inner = b.let("inner", g % op.height)
    row = b.let("row", cx.resolve(op.row) * op.height + inner)
    read = b.let("read", minimum(row, op.m - 1))
    which = cx.resolve(op.which)
    of = of_row(cx, op.scale, which * op.m + read), of_row(cx, op.bias, which * op.m + read)
    mine = all_of(g.lt(op.height), row.lt(op.m))
    for half in range(2):
        word = b.let("word", cx.warp * WORDS + lane * 2 + half)
        col = b.let("col", cx.resolve(op.column) + word * made.columns)
        for first in range(0, made.columns, op.vec):
            vals = [_total(cx, op, made, g, column, half, of) for column in range(first, first + op.vec)]
            at = row * op.n + col + first if op.order == "row" else (col + first) * op.m + row
            put(cx, op, vals, which * (op.m * op.n) + at, b.let("here", all_of(mine, (col + first).lt(op.n))))


def _total(
    cx: Context, op: t.StorePlanes, made: Planes, g: Expr, column: int, half: int,
    of: tuple[Value | None, Value | None],
) -> Value:  # fmt: skip
    """The sum of all digits of a column: modulo 2^32, or in f32 with the epilogue."""
    b, whole = cx.b, op.out.dtype is s32
    total: Value | None = None
    for i, (group, shift) in enumerate(made.kinds):
        v = b.ld(op.acc, made.at(column, i) + half, hint="sum")
        by = _shift(g, made.groups[group], op.height) + shift if made.stack else as_expr(shift)
        if whole:
            one = v if by == as_expr(0) else b.binary("shl", v, by)
            total = one if total is None else b.binary("add", total, one)
        elif len(made.w_digits) == len(made.x_digits) == 1:
            total = b.convert(v, f32)
        elif made.stack:
            total = cx.plus(total, b.convert(b.binary("shl", b.name(as_expr(1), "one"), by), f32), b.convert(v, f32))
        else:
            total = cx.plus(total, b.const(f32, 2.0**shift), b.convert(v, f32))
    assert total is not None
    for apart in range(1, made.per):  # stacked digits, those of the highest rows first
        if apart & (apart - 1) == 0:
            other = b.shfl("xor", total, 4 * op.height * apart, hint="other")
            total = b.binary("add", total, other)
    return total if whole else finish(cx, total, *of, op.activation)


def _shift(g: Expr, digits: tuple[Digit, ...], height: int) -> Expr:
    """By how many bits a lane's sums are shifted: as the digit in its row of an mma is."""
    top, last = digits[0][0], digits[-1][0]
    each = (top - last) // max(1, len(digits) - 1)
    return maximum(top - g // height * each, 0)
