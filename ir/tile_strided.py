"""The tile ops of Magicube's own product (SC'22, algorithm 1): the warps of a block share a vector row of W.

Values and columns of a step come to shared memory, the rows of x that it names by registers to padded shared memory,
and lanes turn their words on the way to an ``mma`` (the online transpose).  No other family uses them: others copy
asynchronously, and find rows by ``ldmatrix``.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr, Value, as_expr
from .fragments import SHAPES
from .node import Op, attr, bind, buffer, define, operand, region
from .numbers.strided import PIECE, WARP_BYTES, WIDTHS, Planes, stride, tile_words
from .op_spmm import Digit
from .tile_rules import batched, registers, shared, whole
from .tile_store import Store
from .types import Buffer, s32, u16, u32


@define("tile.walk_strides", kw_only=True)
class WalkStrides(Op):
    """The block walks the steps of vector row ``row``, ``stride`` vectors each.

    ``ptr`` has for each vector row its first vector, a multiple of the stride, and the one after its last.  Of step
    ``at``, ``list`` brings values and columns to slot ``slot`` of two, ``fetch`` the rows of x that these name to
    registers, ``keep`` these to shared memory, and ``body`` multiplies.  ``prefetch``: ``list`` and ``fetch`` of a step
    run before ``body`` of the one before (section 4.2.4); else one after another.
    """

    ptr: Buffer = buffer()
    row: Expr = operand()
    at: Value = bind()
    slot: Value = bind()
    stride: int = attr()
    prefetch: bool = attr()
    list: tuple[Op, ...] = region()
    fetch: tuple[Op, ...] = region()
    keep: tuple[Op, ...] = region()
    body: tuple[Op, ...] = region()


@define("tile.list_step", kw_only=True)
class ListStep(Op):
    """Brings the columns of step ``at`` and W's values, as words, to slot ``slot`` of ``numbers`` and ``words``.

    Of a batch all W have these columns, and number ``which`` these values.
    """

    numbers: Buffer = buffer(writes=True, reads=False)
    words: Buffer = buffer(writes=True, reads=False)
    idx: Buffer = buffer()
    values: Buffer = buffer()
    at: Expr = operand()
    slot: Expr = operand()
    which: Expr = operand(default=as_expr(0))


@define("tile.fetch_step", kw_only=True)
class FetchStep(Op):
    """Loads ``wide`` bytes, from word ``column`` on, of each row of x that slot ``slot`` of ``numbers`` names.

    ``src`` is [k, n] in words, rows of whole pieces of 16 bytes, number ``which`` of a batch; rows that there are not,
    and columns from n on, are 0.
    """

    regs: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    numbers: Buffer = buffer()
    slot: Expr = operand()
    column: Expr = operand()
    wide: int = attr()
    k: int = attr()
    n: int = attr()
    which: Expr = operand(default=as_expr(0))


@define("tile.keep_step", kw_only=True)
class KeepStep(Op):
    """Writes a step's rows of x to shared memory; ``pad``: with words left free behind the rows that a lane turns."""

    x: Buffer = buffer(writes=True, reads=False)
    regs: Buffer = buffer()
    wide: int = attr()
    bits: int = attr(one_of=(4, 8))
    pad: bool = attr()


@define("tile.multiply_step", kw_only=True)
class MultiplyStep(Op):
    """``acc += w * x`` of a step: each lane turns its words of ``x``, and multiplies digits of both.

    How sums and values lie says :class:`sparsegen.ir.numbers.strided.Planes`.  ``shuffle``: of digits of 4 bits, rows
    of x come in the order in which turning takes 8 operations for 16 digits (section 4.2.3).
    """

    acc: Buffer = buffer(writes=True)
    x: Buffer = buffer()
    words: Buffer = buffer()
    slot: Expr = operand()
    wide: int = attr()
    height: int = attr(one_of=(2, 4, 8))
    pad: bool = attr()
    shuffle: bool = attr()
    stack: bool = attr()
    w_digits: tuple[Digit, ...] = attr()
    x_digits: tuple[Digit, ...] = attr()


@define("tile.store_planes", kw_only=True)
class StorePlanes(Store):
    """Stores the sums of vector row ``row`` to y, from column ``column`` on: 8 words of x for each warp.

    Digits are added up: exact modulo 2^32 for y of s32, else in f32, with the epilogue.  Stacked ones are in other
    lanes.  Of a y by rows ``vec`` adjacent columns go at once.  y and the epilogue's operands are those of number
    ``which`` of a batch.
    """

    acc: Buffer = buffer()
    row: Expr = operand()
    column: Expr = operand()
    vec: int = attr()
    height: int = attr(one_of=(2, 4, 8))
    stack: bool = attr()
    w_digits: tuple[Digit, ...] = attr()
    x_digits: tuple[Digit, ...] = attr()
    which: Expr = operand(default=as_expr(0))


# ------------------------------------------------------------------------------------------------ what they must obey
def shape(w: Digit, x: Digit) -> str:
    """The mma of a digit of W by one of x."""
    a, b = w[1], x[1]
    return f"{a if a is b else f'{a}.{b}'}.m8n8k{stride(b.bits)}"


def planes(ctx: Context, op: MultiplyStep | StorePlanes) -> Planes:
    """The digits make sense, and registers hold their sums."""
    made = Planes(op.w_digits, op.x_digits, op.height, op.stack)
    both = (*op.w_digits, *op.x_digits)
    ctx.need(bool(op.w_digits) and bool(op.x_digits), "there are no digits")
    ctx.need({d.bits for _, d in both} in ({4}, {8}), "digits have 4 bits, or all have 8")
    for group in made.groups:
        ctx.need(len({d for _, d in group}) == 1, "one mma multiplies digits of one type", "give all of W's a sign")
    ctx.need(op.acc.dtype is s32, f"sums of integers are s32, not {op.acc.dtype}")
    registers(ctx, op.acc, made.size, exactly=True)
    return made


def _tile(ctx: Context, x: Buffer, wide: int, bits: int, pad: bool) -> None:
    """A step's rows of x, and the warps that share them."""
    ctx.one_of(wide, WIDTHS, "bytes of a row")
    ctx.need(ctx.threads == wide // WARP_BYTES * 32, f"{ctx.threads} threads, but {wide // WARP_BYTES} warps are meant")
    shared(ctx, x, tile_words(wide, bits, pad), "the rows of x of a step")
    ctx.need(x.dtype is u32, f"rows of x are words, not {x.dtype}")


@check(WalkStrides)
def _walk_strides(op: WalkStrides, ctx: Context) -> None:
    ctx.need(op.ptr.dtype is s32 and op.ptr.size >= 2 * (op.row.hi + 1),
             f"@{op.ptr.name} has no two numbers for each of {op.row.hi + 1} vector rows")  # fmt: skip
    ctx.one_of(op.stride, (stride(8), stride(4)), "vectors of a step")


@check(ListStep)
def _list_step(op: ListStep, ctx: Context) -> None:
    ctx.need(op.idx.dtype in (u16, u32) and op.numbers.dtype is s32, "columns come in 16 or 32 bits, and go in s32")
    ctx.need(op.values.dtype is u32 and op.words.dtype is u32, "values are words")
    for kept, what in ((op.numbers, "columns"), (op.words, "values")):
        shared(ctx, kept, 2, f"two slots of {what}")
        whole(ctx, kept.size, 2, f"@{kept.name} has no two slots")
    whole(ctx, op.idx.size, op.numbers.size // 2, f"@{op.idx.name} has no whole steps")
    batched(ctx, op.values, op.which, op.idx.size // (op.numbers.size // 2), op.words.size // 2)


@check(FetchStep)
def _fetch_step(op: FetchStep, ctx: Context) -> None:
    ctx.one_of(op.wide, WIDTHS, "bytes of a row")
    pieces = op.numbers.size // 2 * op.wide // PIECE
    whole(ctx, pieces, ctx.threads, f"{ctx.threads} threads do not share {pieces} pieces")
    registers(ctx, op.regs, pieces // ctx.threads * 4, exactly=True)
    ctx.need(op.regs.dtype is u32 and op.src.dtype is u32, "rows of x are words")
    whole(ctx, op.n, PIECE // 4, f"rows of {op.n} words are no whole pieces of {PIECE} bytes")
    batched(ctx, op.src, op.which, op.k, op.n)


@check(KeepStep)
def _keep_step(op: KeepStep, ctx: Context) -> None:
    _tile(ctx, op.x, op.wide, op.bits, op.pad)
    registers(ctx, op.regs, stride(op.bits) * op.wide // 4 // ctx.threads, exactly=True)


@check(MultiplyStep)
def _multiply_step(op: MultiplyStep, ctx: Context) -> None:
    made = planes(ctx, op)
    _tile(ctx, op.x, op.wide, made.bits, op.pad)
    shared(ctx, op.words, 2 * made.words, "two slots of values")
    ctx.need(not op.shuffle or made.bits == 4, "only rows of digits of 4 bits are shuffled")
    for group in made.groups:
        for x in op.x_digits:
            ctx.one_of(shape(group[0], x), tuple(SHAPES), "mma shape")


@check(StorePlanes)
def _store_planes(op: StorePlanes, ctx: Context) -> None:
    made = planes(ctx, op)
    batched(ctx, op.out, op.which, op.m, op.n)
    for buf in (op.scale, op.bias):
        if buf is not None:
            batched(ctx, buf, op.which, op.m, 1)
    along = op.n if op.order == "row" else 1
    ok = op.vec in (1, 2, 4) and made.columns % op.vec == 0 and along % op.vec == 0
    ctx.need(ok, f"{op.vec} elements at once of {along}, by {op.order}; a lane has {made.columns} side by side")
    plain = op.scale is op.bias is op.residual is None and op.activation == "none"
    ctx.need(not op.out.dtype.is_int or (op.out.dtype is s32 and plain), "an epilogue makes floats of sums")
    ctx.need(op.m <= op.height * (op.row.hi + 1), f"{op.row.hi + 1} vector rows do not cover {op.m} rows")
