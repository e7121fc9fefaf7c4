"""Products with vectors: what a lane loads, digits and their mma, and the store of sums."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from .. import tile_vectors as t
from .. import warp as w
from ..expr import Expr, Value, all_of, as_expr, minimum
from ..numbers.vectors import HIGH, PIECE, STEP, Sums, words
from ..types import f32, s32, u32
from .context import Context, rule
from .epilogue import finish, of_row, put
from .quad import halves
from .quad import words as packed

#: Bytes of the even and of the odd columns, of two words of pairs.
EVEN, ODD = 0x6420, 0x7531
#: The high four bits of each byte: an element of 4 bits times 16.
HALVES = 0xF0F0F0F0
#: Rows of a phase of ``ldmatrix`` that lie in one bank, at most: the order of vectors makes it 1.1 to 1.3 on average.
DEGREE = 8


@rule(t.LoadVectors)
def load_vectors(cx: Context, op: t.LoadVectors) -> None:
    b, at = cx.b, cx.resolve(op.at)
    each, item = op.words.size // op.rows.size, PIECE
    for u in range(op.rows.size):
        mine = b.let("mine", (at + u) * STEP + cx.lane)
        place = b.ld(op.places, mine, cache="nc", hint="place", lo=0, hi=op.strip // item - 1)
        b.st(op.rows, u, b.convert(place, s32))
        for i, v in enumerate(b.ldv(op.values, mine * each, each, cache="nc", hint="w")):
            b.st(op.words, u * each + i, v)


@rule(t.AwaitSteps)
def await_steps(cx: Context, op: t.AwaitSteps) -> None:
    b, word = cx.b, cx.resolve(op.word)
    done = b.let("done", cx.resolve(op.at) - cx.resolve(op.begin))
    for part in range(1, op.parts):
        first = b.let("needed", (word >> t.BITS * (part - 1)) & ((1 << t.BITS) - 1))
        with b.if_(all_of(done.le(first), first.lt(done + op.by))):
            b.mbar_wait(op.bars, part, 0)


@rule(t.MultiplyVectors)
def multiply_vectors(cx: Context, op: t.MultiplyVectors) -> None:
    at, end = cx.resolve(op.at), cx.resolve(op.end)
    for u in range(op.rows.size):
        if u == 0:
            _step(cx, op, u)
        else:
            with cx.b.if_((at + u).lt(end)):
                _step(cx, op, u)


def _step(cx: Context, op: t.MultiplyVectors, u: int) -> None:
    """The products of a step: each digit of W by each of x, for all columns."""
    b, sums = cx.b, Sums.of(op.w_digits, op.x_digits, op.wide)
    piece = PIECE // op.x.dtype.nbytes
    place = b.ld(op.rows, u, hint="row", lo=0, hi=op.x.size // piece - 1)
    row = b.let("at", place * piece)
    right = _of_w(cx, op, u)
    for unit in range(sums.units):
        for fragment, left in enumerate(_of_x(cx, op, row, unit)):
            for (x, a), (y, c) in product(zip(op.x_digits, left, strict=True), zip(op.w_digits, right, strict=True)):
                at = sums.at(unit, fragment, sums.shifts.index(x[0] + y[0]))
                for i in range(sums.parts):
                    cx.multiply(t.shape(x, y), a[4 * i : 4 * i + 4], c[2 * i : 2 * i + 2], op.acc, at)


def _of_w(cx: Context, op: t.MultiplyVectors, u: int) -> list[list[Value]]:
    """The second operand of each digit of W, of one part of a step after the other."""
    b, each = cx.b, words(op.w_digits)
    found = [b.ld(op.words, u * each + i, hint="w") for i in range(each)]
    if op.w_digits[0][1].bits == 4:
        return [list(_halves(cx, found[0]))]
    own = each // len(op.w_digits)
    return [found[i : i + own] for i in range(0, each, own)]


def _halves(cx: Context, word: Value) -> tuple[Value, Value]:
    """The elements of 4 bits in the low halves of a word's bytes, and those in the high ones, each times 16."""
    b = cx.b
    return b.binary("and", b.binary("shl", word, 4), HALVES), b.binary("and", word, HALVES)


def _of_x(cx: Context, op: t.MultiplyVectors, row: Expr, unit: int) -> list[list[list[Value]]]:
    """For each fragment of a unit of columns: the first operand of each digit of x, of one part of a step after the
    other."""
    b = cx.b
    piece = PIECE // op.x.dtype.nbytes

    def pairs(number: int) -> list[Value]:
        out = tuple(b.fresh("pair", u32) for _ in range(4))
        b.emit(w.LdMatrix(out, op.x, as_expr(row ^ number * piece), True, DEGREE))
        return list(out)

    def taken(r: list[Value], which: int) -> list[Value]:
        return [b.prmt(r[i], r[i + 1], which, hint="x") for i in (0, 2)]

    if op.x.dtype.nbytes == 2:  # the first 8 columns and the next 8
        found = [pairs(2 * unit + half) for half in (0, 1)]
        if not op.x.dtype.is_int:
            return [[[v for both in zip(*found, strict=True) for v in both]]]
        # of each element the high byte, then the low one
        planes = [[taken(r, which) for r in found] for which in (ODD, EVEN)]
        return [[[first[0], second[0], first[1], second[1]] for first, second in planes]]
    r = pairs(unit)
    even, odd = taken(r, EVEN), taken(r, ODD)
    whole = [even[0], odd[0], even[1], odd[1]]
    if op.x_digits[0][1].bits == 8:
        return [[whole]]
    split = [_halves(cx, v) for v in whole]
    return [[[two[half] for two in split]] for half in (0, 1)]


@rule(t.StoreVectors)
def store_vectors(cx: Context, op: t.StoreVectors) -> None:
    b = cx.b
    g, lane = cx.coordinates()
    sums = Sums.of(op.w_digits, op.x_digits, op.wide)
    top, column = b.let("row0", cx.resolve(op.row) * HIGH + lane * 2), cx.resolve(op.column)
    rows = [b.let("row", top + j) for j in (0, 1)]
    read = [b.let("read", minimum(row, op.m - 1)) for row in rows]
    of = [(of_row(cx, op.scale, row), of_row(cx, op.bias, row)) for row in read]
    for unit, (first, by, parts) in product(range(sums.units), sums.runs):
        col = b.let("col", column + g * by + (unit * sums.columns + first))

        def one(j: int, part: tuple[int, int], unit: int = unit) -> Value:
            return _total(cx, op, sums, unit, part, j, of[j])

        if op.order == "row" and op.vec > len(parts):
            _turned(cx, op, [one(j, parts[0]) for j in (0, 1)], column + lane * 2 + (unit * sums.columns + first), g)
            continue
        if op.order == "row":
            for j, i in product((0, 1), range(0, len(parts), op.vec)):
                here = b.let("here", all_of(rows[j].lt(op.m), (col + i).lt(op.n)))
                put(cx, op, [one(j, part) for part in parts[i : i + op.vec]], rows[j] * op.n + col + i, here)
            continue
        for (i, part), j in product(enumerate(parts), range(0, 2, op.vec)):
            here = b.let("here", all_of(rows[j].lt(op.m), (col + i).lt(op.n)))
            put(cx, op, [one(j + e, part) for e in range(op.vec)], (col + i) * op.m + rows[j], here)


def _turned(cx: Context, op: t.StoreVectors, two: list[Value], column: Expr, g: Expr) -> None:
    """Stores two adjacent columns of a row, transposed: a lane has the sums ``two`` of two rows of a column.

    The residual comes as y goes, and is transposed to where the sums are: these are rounded once.
    """
    b, kind = cx.b, op.out.dtype
    row, col = b.let("mine", cx.resolve(op.row) * HIGH + g), b.let("col", column)
    at, here = row * op.n + col, b.let("here", all_of(row.lt(op.m), col.lt(op.n)))

    def turned(pair: Sequence[Value]) -> list[Value]:
        (word,) = packed(cx, [pair], kind)
        return halves(cx, [b.movmatrix(word, hint="turned")], kind)

    if op.residual is not None:
        more = turned(b.ldv(op.residual, at, 2, where=here, hint="r"))
        two = [b.binary("add", v, cx.convert(r, f32)) for v, r in zip(two, more, strict=True)]
    b.st(op.out, at, *turned(two), where=here)


def _total(
    cx: Context, op: t.StoreVectors, sums: Sums, unit: int, part: tuple[int, int], j: int,
    of: tuple[Value | None, Value | None],
) -> Value:  # fmt: skip
    """The sum of all digits of a column and one of the lane's two rows: modulo 2^32, or in f32 with the epilogue."""
    b, (fragment, half) = cx.b, part
    found = [b.ld(op.acc, sums.at(unit, fragment, s) + 2 * half + j, hint="sum") for s in range(len(sums.shifts))]
    if sums.dtype is f32:
        return finish(cx, found[0], *of, op.activation)
    if op.out.dtype is s32:
        total = found[-1]
        for v, shift in zip(found[:-1], sums.shifts, strict=False):
            total = b.binary("add", total, b.binary("shl", v, shift))
        return b.binary("shr", total, sums.over) if sums.over else total
    made: Value | None = None
    for v, shift in zip(found, sums.shifts, strict=True):
        made = cx.plus(made, b.const(f32, 2.0 ** (shift - sums.over)), b.convert(v, f32))
    assert made is not None
    return finish(cx, made, *of, op.activation)
