"""The tile ops of SpInfer's own product (EuroSys'25, algorithm 1): a block walks a row of W's group tiles.

A group tile's bitmaps and compressed values come to shared memory as they lie in TCA-BME, a slab of x beside them;
warps decode bitmaps right into the registers of ``mma`` (shared memory bitmap decoding).  No other family uses them but
``tile.sum_splits``: those of ``bitmap`` have a mask a lane, byte planes, and rings of single warps.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr, Value
from .fragments import SHAPES
from .node import Op, attr, bind, buffer, declare, define, operand, region
from .numbers.smbd import BITMAPS, COLS, PIECE, SIDE, STRIPS, WARPS, fragments, place, sums
from .op_spmm import ORDERS
from .tile_rules import mma, registers, same_type, shared, whole
from .types import Buffer, f32, u16, u32, u64


@define("tile.walk_nested", kw_only=True)
class WalkNested(Op):
    """The block walks the group tiles of row ``row``: part ``split`` of ``splits`` of its ``slabs``, one a turn.

    ``weights`` copies group tile ``at`` to slot ``slot`` of ``buffers``, ``columns`` the rows of x of slab ``slab``;
    ``decode`` makes operands of the tile, ``body`` multiplies them.  With two slots those of a turn are filled while
    the turn before multiplies, whose operands are in registers.  With two ``groups`` of copies W's are one and x's the
    other, so that x still comes while W is decoded; with one, everything waits for everything.
    """

    row: Expr = operand()
    split: Expr = operand()
    at: Value = bind()
    slab: Value = bind()
    slot: Value = bind()
    slabs: int = attr()
    splits: int = attr()
    buffers: int = attr(one_of=(1, 2))
    groups: int = attr(one_of=(1, 2))
    weights: tuple[Op, ...] = region()
    columns: tuple[Op, ...] = region()
    decode: tuple[Op, ...] = region()
    body: tuple[Op, ...] = region()


@define("tile.copy_nested", kw_only=True)
class CopyNested(Op):
    """Starts the copies of group tile ``at`` to slot ``slot``: its bitmaps, its values, and where its strips begin.

    ``starts`` has the first value of each strip of 16 rows of all group tiles, and at the end how many there are; a
    slot has room for those of a tile, and for as many values as its part of ``kept``.
    """

    first: Buffer = buffer(writes=True, reads=False)
    bits: Buffer = buffer(writes=True, reads=False)
    kept: Buffer = buffer(writes=True, reads=False)
    starts: Buffer = buffer()
    bitmaps: Buffer = buffer()
    values: Buffer = buffer()
    at: Expr = operand()
    slot: Expr = operand()
    buffers: int = attr()


@define("tile.copy_slab", kw_only=True)
class CopySlab(Op):
    """Starts the copies of 64 rows of x, those of slab ``slab``, and ``cols`` columns from ``column`` on, to a slot.

    ``src`` is [k, n] by ``order``, whose adjacent elements are whole pieces of 16 bytes.  Rows from k on are zero;
    columns from n on hold the last ones again, as their sums are not stored.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    slab: Expr = operand()
    column: Expr = operand()
    slot: Expr = operand()
    buffers: int = attr()
    cols: int = attr(one_of=COLS)
    k: int = attr()
    n: int = attr()
    order: str = attr(one_of=ORDERS)


@define("tile.decode_nested", kw_only=True)
class DecodeNested(Op):
    """Decodes a warp's strips of a slot right into ``a``: register (i * 4 + f) * 4 + r is that of bitmap tile r of the
    tensor-core tile f of the warp's strip i.

    Lane l has bits 2 l and 2 l + 1 of each bitmap.  How many values lie before the first one is counted in the bits
    below it (MaskedPopCount), and how many lie before the next bitmap in all of them (PopCount).  The second value
    follows the first one, if there is one (``two_phase``), else it is counted as well.
    """

    a: Buffer = buffer(writes=True, reads=False)
    first: Buffer = buffer()
    bits: Buffer = buffer()
    kept: Buffer = buffer()
    slot: Expr = operand()
    buffers: int = attr()
    two_phase: bool = attr()


@define("tile.multiply_nested", kw_only=True)
class MultiplyNested(Op):
    """``acc += a * x`` of a warp's strips of a group tile, by a slot's slab of ``x``, with mma ``shape``.

    Accumulator (i * blocks + j) * 4 + e is element e of the fragment of strip i and columns 8 j.  Operands of x come
    by ``ldmatrix``, or else lanes load their elements one by one.
    """

    acc: Buffer = buffer(writes=True)
    a: Buffer = buffer()
    x: Buffer = buffer()
    slot: Expr = operand()
    buffers: int = attr()
    cols: int = attr(one_of=COLS)
    order: str = attr(one_of=ORDERS)
    ldmatrix: bool = attr()
    shape: str = attr()


@define("tile.sum_splits", kw_only=True)
class SumSplits(Op):
    """Adds up the sums ``acc`` of the ``splits`` blocks that share tile ``tile``; runs the body in the last of them.

    Each block leaves its sums in ``slots``, and the last to arrive adds them in order: the result does not depend on
    who that was.  ``counter`` has an element for each tile, zero before and after.

    Only smbd has splits whose sums stay in the registers that they were made in: ``tile.sum_warps`` adds up warps
    through shared memory first, and ``tile.sum_pieces`` has single warps, of as many pieces as a row has.
    """

    acc: Buffer = buffer(writes=True)
    slots: Buffer = buffer(writes=True)
    counter: Buffer = buffer(writes=True)
    turn: Buffer = declare()
    tile: Expr = operand()
    split: Expr = operand()
    splits: int = attr()
    body: tuple[Op, ...] = region()


# ------------------------------------------------------------------------------------------------ what they must obey
def _slots(ctx: Context, buf: Buffer, buffers: int, each: int, what: str) -> None:
    """Slots of exactly so many elements."""
    shared(ctx, buf, buffers * each, f"{buffers} slots of {what}")
    ctx.need(buf.size == buffers * each, f"@{buf.name} has {buf.size} elements, not {buffers} slots of {each}")


def _of_w(ctx: Context, op: CopyNested | DecodeNested) -> None:
    """A slot's part of W."""
    _slots(ctx, op.first, op.buffers, STRIPS, "where strips begin")
    _slots(ctx, op.bits, op.buffers, BITMAPS, "bitmaps")
    whole(ctx, op.kept.size, op.buffers * PIECE, f"{op.kept.size} values are no {op.buffers} slots of whole pieces")
    types = (op.first.dtype, op.bits.dtype, op.kept.dtype)
    ctx.need(types == (u32, u64, u16), "starts are u32, bitmaps u64, and values 16 bits as they are")


def _of_x(ctx: Context, buf: Buffer, op: CopySlab | MultiplyNested) -> None:
    """A slot's part of x."""
    _slots(ctx, buf, op.buffers, place(op.cols, op.order).size(), f"a slab of {op.cols} columns")
    ctx.need(buf.dtype.bits == 16, f"@{buf.name} is {buf.dtype}; x has 16 bits")


@check(WalkNested)
def _walk_nested(op: WalkNested, ctx: Context) -> None:
    ctx.need(1 <= op.splits <= op.slabs, f"{op.slabs} slabs make no {op.splits} parts")
    ctx.need(op.at.hi >= (op.row.hi + 1) * op.slabs - 1 and op.slab.hi >= op.slabs - 1,
             f"%{op.at.name} ends at {op.at.hi}, there are {op.row.hi + 1} x {op.slabs} group tiles")  # fmt: skip


@check(CopyNested)
def _copy_nested(op: CopyNested, ctx: Context) -> None:
    _of_w(ctx, op)
    tiles = op.at.hi + 1
    for src, dst in ((op.starts, op.first), (op.bitmaps, op.bits), (op.values, op.kept)):
        same_type(ctx, src, dst)
    sizes = op.starts.size == STRIPS * tiles + 1 and op.bitmaps.size == BITMAPS * tiles
    ctx.need(sizes, f"{op.starts.size} starts and {op.bitmaps.size} bitmaps are not those of {tiles} group tiles")
    whole(ctx, op.values.size, PIECE, f"{op.values.size} values are no whole pieces")


@check(CopySlab)
def _copy_slab(op: CopySlab, ctx: Context) -> None:
    _of_x(ctx, op.dst, op)
    same_type(ctx, op.dst, op.src)
    ctx.need(op.src.size == op.k * op.n, f"{op.k} x {op.n} elements are not the {op.src.size} of @{op.src.name}")
    along = op.n if op.order == "row" else op.k
    whole(ctx, along, PIECE, f"{along} adjacent elements are no whole pieces of {PIECE}")
    ctx.need(op.slab.hi < -(-op.k // SIDE), f"{op.slab.hi + 1} slabs, x has {op.k} rows")


def _warps(ctx: Context, a: Buffer) -> int:
    """The warps that share a group tile."""
    ctx.one_of(ctx.warps(), WARPS, "warps of a block")
    registers(ctx, a, fragments(ctx.warps()), exactly=True)
    return ctx.warps()


@check(DecodeNested)
def _decode_nested(op: DecodeNested, ctx: Context) -> None:
    _of_w(ctx, op)
    _warps(ctx, op.a)


@check(MultiplyNested)
def _multiply_nested(op: MultiplyNested, ctx: Context) -> None:
    _of_x(ctx, op.x, op)
    mma(ctx, op.shape, op.acc)
    ctx.need(SHAPES[op.shape].a.dtype is op.x.dtype, f"{op.shape} does not multiply {op.x.dtype}")
    registers(ctx, op.acc, sums(op.cols, _warps(ctx, op.a)), exactly=True)


@check(SumSplits)
def _sum_splits(op: SumSplits, ctx: Context) -> None:
    ctx.need(op.splits > 1 and op.split.hi < op.splits, f"part {op.split.hi} of {op.splits} splits")
    shared(ctx, op.turn, 1, "who arrives last")
    same_type(ctx, op.acc, op.slots)
    ctx.need(op.acc.dtype is f32 and op.counter.dtype is u32, "sums are f32, and counted in u32")
    whole(ctx, op.acc.size, 4, f"{op.acc.size} sums are not moved four at a time")
    tiles = op.tile.hi + 1
    ctx.need(op.counter.size == tiles, f"@{op.counter.name} has not an element for each of {tiles} tiles")
    each = ctx.threads * op.acc.size
    ctx.need(op.slots.size == tiles * op.splits * each, f"{tiles} x {op.splits} slots of {each} sums are not the "
             f"{op.slots.size} of @{op.slots.name}")  # fmt: skip
