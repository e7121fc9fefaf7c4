"""The tile ops of products with vectors: warps walk vector rows of W against rows of x in shared memory.

A *step* is 32 vectors: their values as the second operand of an mma, 8 rows of W, and the 32 rows of x at their columns
as the first, transposed on the way into registers.  No other family uses them: in others rows of W are the first
operand.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr
from .fragments import SHAPES
from .node import Op, attr, buffer, define, operand
from .numbers.resident import WIDTHS
from .numbers.vectors import HIGH, PIECE, SPARE, STEP, Sums, depth, digits, item, spread, words
from .op_spmm import Digit
from .tile_rules import registers, shared, whole
from .tile_store import Store
from .types import Buffer, DType, f32, s32, u16, u32

#: Parts of a strip of which a record says from which step on they are needed, and bits of such a step.
PARTS, BITS = 4, 10


@define("tile.load_vectors", kw_only=True)
class LoadVectors(Op):
    """Loads what a lane has of the steps from ``at`` on: where its row of x begins, and W's values as words.

    ``places`` has for each vector the place of its row of x in the strip, in pieces of 16 bytes; ``values`` a lane's
    words of a step side by side.  Both are there for some steps behind the last one.
    """

    rows: Buffer = buffer(writes=True, reads=False)
    words: Buffer = buffer(writes=True, reads=False)
    places: Buffer = buffer()
    values: Buffer = buffer()
    at: Expr = operand()
    strip: int = attr()


@define("tile.await_steps", kw_only=True)
class AwaitSteps(Op):
    """The warp waits for the parts of a strip that steps ``at`` to ``at + by`` - 1 of a task are the first to need.

    ``word`` has, ten bits each, from which step of the task on, counted from ``begin``, parts 1, 2 and 3 are needed.
    """

    bars: Buffer = buffer(writes=True)
    at: Expr = operand()
    begin: Expr = operand()
    word: Expr = operand()
    by: int = attr()
    parts: int = attr()


@define("tile.multiply_vectors", kw_only=True)
class MultiplyVectors(Op):
    """``acc += x^T * w^T`` of the steps from ``at`` on that lie before ``end``: as many as ``rows`` has registers.

    ``x`` has rows of ``wide`` bytes, swizzled; a lane's ``rows`` say where those that its lane names begin, in
    elements.  How the sums lie says :class:`sparsegen.ir.numbers.vectors.Sums`.
    """

    acc: Buffer = buffer(writes=True)
    x: Buffer = buffer()
    rows: Buffer = buffer()
    words: Buffer = buffer()
    at: Expr = operand()
    end: Expr = operand()
    wide: int = attr()
    w_digits: tuple[Digit, ...] = attr()
    x_digits: tuple[Digit, ...] = attr()


@define("tile.store_vectors", kw_only=True)
class StoreVectors(Store):
    """Stores a warp's sums of vector row ``row`` to y, from column ``column`` on, ``wide`` bytes of x's rows.

    Digits are added up: exact modulo 2^32 for y of s32, else in f32, with the epilogue.  Of a y by rows ``vec``
    adjacent columns go at once, by columns as many rows: at most :func:`widest`.
    """

    acc: Buffer = buffer()
    row: Expr = operand()
    column: Expr = operand()
    wide: int = attr()
    vec: int = attr()
    w_digits: tuple[Digit, ...] = attr()
    x_digits: tuple[Digit, ...] = attr()


# ------------------------------------------------------------------------------------------------ what they must obey
def _digits(ctx: Context, op: MultiplyVectors | StoreVectors) -> Sums:
    """The digits are those of integers, or floats of 16 bits, and registers hold their sums."""
    for side in (op.w_digits, op.x_digits):
        ctx.need(len(side) >= 1 and len({digit.bits for _, digit in side}) == 1, "no digits, or of several widths")
        for _, digit in side:
            one = digit.is_int or (digit.bits == 16 and op.w_digits == op.x_digits == ((0, digit),))
            ctx.need(one and digits(digit) == ((0, digit),), f"{digit} is no digit of 4 or 8 bits, and no float of 16")
    ctx.one_of(op.wide, WIDTHS, "bytes of a strip's row")
    sums = Sums.of(op.w_digits, op.x_digits, op.wide)
    ctx.need(op.acc.dtype is sums.dtype, f"sums are {sums.dtype}, not {op.acc.dtype}")
    registers(ctx, op.acc, sums.size, exactly=True)
    return sums


def shape(x: Digit, w: Digit) -> str:
    """The mma of a digit of x by one of W."""
    a, b = spread(x[1]), spread(w[1])
    return f"{a}.m16n8k{depth(a)}" if a is b else f"{a}.{b}.m16n8k{depth(a)}"


def widest(sums: Sums, y: DType, order: str) -> int:
    """Adjacent elements of y that a lane stores, at most: columns by rows, or rows by columns.

    Of floats a lane has single columns, and pairs of rows, which are transposed where y has 16 bits.
    """
    if order == "column" or (sums.dtype is f32 and y.bits == 16):
        return 2
    return len(sums.runs[0][2])


@check(LoadVectors)
def _load_vectors(op: LoadVectors, ctx: Context) -> None:
    registers(ctx, op.rows, 1)
    ctx.need((op.places.dtype, op.values.dtype) == (u16, u32), "places have 16 bits, values are words")
    ctx.need((op.rows.dtype, op.words.dtype) == (s32, u32), "registers hold places as s32, and words")
    whole(
        ctx, op.words.size, op.rows.size, f"{op.words.size} words are no whole number for each of {op.rows.size} steps"
    )
    steps = op.places.size // STEP
    ctx.need(steps >= SPARE and op.places.size == steps * STEP, f"@{op.places.name} has no {SPARE} spare steps")
    each = op.words.size // op.rows.size * 32
    ctx.need(op.values.size == steps * each, f"@{op.values.name} has {op.values.size} words, not {steps} x {each}")
    ctx.need(op.strip >= PIECE, f"a strip of {op.strip} bytes has no piece of {PIECE}")
    ctx.need(2 * op.rows.size <= SPARE, f"{op.rows.size} steps at once are more than half of {SPARE} spare ones")


@check(AwaitSteps)
def _await_steps(op: AwaitSteps, ctx: Context) -> None:
    shared(ctx, op.bars, op.parts, "the mbarriers of a strip")
    ctx.need(1 <= op.parts <= PARTS, f"a record tells of {PARTS} parts, not of {op.parts}")


@check(MultiplyVectors)
def _multiply_vectors(op: MultiplyVectors, ctx: Context) -> None:
    _digits(ctx, op)
    shared(ctx, op.x, STEP * op.wide // op.x.dtype.nbytes, "rows of x")
    bytes_, kind = item(op.x_digits), op.x_digits[0][1]
    alike = op.x.dtype is kind or (op.x.dtype.is_int and kind.is_int)
    ctx.need(alike and op.x.dtype.nbytes == bytes_, f"x of {op.x.dtype} has no digits of {kind}, {bytes_} bytes in all")
    registers(ctx, op.words, op.rows.size * words(op.w_digits), exactly=True)
    for w in op.w_digits:
        for x in op.x_digits:
            ctx.one_of(shape(x, w), tuple(SHAPES), "mma shape")


@check(StoreVectors)
def _store_vectors(op: StoreVectors, ctx: Context) -> None:
    sums = _digits(ctx, op)
    ctx.need(op.out.size == op.m * op.n, f"{op.m} x {op.n} elements are not the {op.out.size} of @{op.out.name}")
    along, most = op.n if op.order == "row" else op.m, widest(sums, op.out.dtype, op.order)
    ctx.need(op.vec in (1, 2, 4) and op.vec <= most and along % op.vec == 0,
             f"{op.vec} elements at once of {along}, by {op.order}; a lane has {most} side by side")  # fmt: skip
    plain = op.scale is op.bias is op.residual is None and op.activation == "none"
    ctx.need(not op.out.dtype.is_int or (op.out.dtype is s32 and plain), "an epilogue makes floats of sums")
    ctx.need(op.m <= HIGH * (op.row.hi + 1), f"{op.row.hi + 1} vector rows do not cover {op.m} rows")
