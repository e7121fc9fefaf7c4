"""The tile ops of N:M patterns on CUDA cores: a lane has a row of W, and meets the others at x in shared memory.

No other family uses them: offsets of a few bits are a format of this pattern's own, and because every row keeps as many
entries of a window, all lanes are in the same window at the same time.  So they read words of x that lie side by side,
or the same one: no bank conflict in windows of up to 32 (nmSPARSE, MLSys'23, section 4: conflict-free broadcast).
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr, Value
from .node import Op, attr, base, bind, buffer, declare, define, operand, region
from .numbers.nm import LANES, chunks, x_words
from .op_spmm import MOST_WINDOW, ORDERS
from .tile_rules import registers, same_type, shared
from .types import Buffer, DType, f32, u32, widths


@define("tile.share_rows", kw_only=True)
class ShareRows(Op):
    """Each warp has a tile of 32 of the ``rows`` rows of W, a lane each, and a part of their entries.

    The body runs once.  A block has ``row_warps`` tiles, ``parts`` warps for each, and ``cols`` columns of x; their
    tiles are the fastest.  ``tile`` is the warp's tile (the last one again, if there is none), ``row`` the lane's row,
    ``column`` the first column.
    """

    tile: Value = bind()
    part: Value = bind()
    row: Value = bind()
    column: Value = bind()
    rows: int = attr()
    row_warps: int = attr()
    parts: int = attr()
    tiles: int = attr()
    cols: int = attr()
    body: tuple[Op, ...] = region()


@base
class Stage(Op):
    """Base of ops that put ``cols`` columns of x [k, n] from ``column`` on into shared words, by windows of ``m`` rows.

    A word is a column in f32; where x has 16 bits and ``cols`` is even, the columns 2 b (low half) and 2 b + 1 as they
    are: B words a row.  What lies beyond ``k`` rows and ``n`` columns is zero.  ``vec`` adjacent elements of x may be
    loaded at once.  All threads take part, and meet after it.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    column: Expr = operand()
    cols: int = attr()
    m: int = attr(least=1)
    k: int = attr()
    n: int = attr()
    order: str = attr(one_of=ORDERS)
    vec: int = attr()


@define("tile.stage_columns", kw_only=True)
class StageColumns(Stage):
    """Puts them window by window: word (w * B + b) * m + o has row w * m + o.

    ``dst`` holds ``held`` rows, whole windows.
    """

    held: int = attr()


@define("tile.walk_chunks", kw_only=True)
class WalkChunks(Op):
    """Each warp walks the chunks of its rows, every ``parts``-th from ``part`` on.

    In the body ``coming`` is the next turn's chunk (``count`` or more: there is none).  Not ``tile.walk_segment``: all
    lanes take as many turns.
    """

    chunk: Value = bind()
    coming: Value = bind()
    part: Expr = operand()
    parts: int = attr()
    count: int = attr()
    body: tuple[Op, ...] = region()


@define("tile.load_chunk", kw_only=True)
class LoadChunk(Op):
    """Loads the lane's values and offsets of a chunk of a tile into registers, if there is such a chunk.

    Both have ``tiles`` tiles of ``count`` chunks.  Of a chunk ``value_table`` has the 16-byte pieces, each
    of all lanes side by side, and ``offset_table`` the words, in groups of 4, 2 and 1, each of all lanes side by side.
    """

    values: Buffer = buffer(writes=True, reads=False)
    offsets: Buffer = buffer(writes=True, reads=False)
    value_table: Buffer = buffer()
    offset_table: Buffer = buffer()
    tile: Expr = operand()
    chunk: Expr = operand()
    tiles: int = attr()
    count: int = attr()


@define("tile.hand_over", kw_only=True)
class HandOver(Op):
    """Copies a register array, so that the next turn's data may be loaded while these are used."""

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()


@define("tile.multiply_chunk", kw_only=True)
class MultiplyChunk(Op):
    """``acc[b] += value * x[offset of its window, b]`` for the entries of a chunk, in f32, in their order.

    ``n`` of every ``m`` are kept; ``x`` is what ``tile.stage_columns`` has left for ``acc.size`` columns of ``dtype``.
    """

    acc: Buffer = buffer(writes=True)
    values: Buffer = buffer()
    offsets: Buffer = buffer()
    x: Buffer = buffer()
    chunk: Expr = operand()
    n: int = attr()
    m: int = attr()
    dtype: DType = attr()


@define("tile.sum_parts", kw_only=True)
class SumParts(Op):
    """Adds up the sums of the warps that share a tile, in their order, through shared memory.

    The body runs for the columns b = part, part + ``parts``, ...: ``total`` has the sum of the lane's row, ``column``
    is ``first`` + b.  Not ``tile.sum_warps``, whose items are pairs of an mma's accumulators.
    """

    total: Buffer = declare()
    column: Value = bind()
    acc: Buffer = buffer()
    sums: Buffer = buffer(writes=True)
    first: Expr = operand()
    parts: int = attr(least=1)
    body: tuple[Op, ...] = region()


# ------------------------------------------------------------------------------------------------ what they must obey
@check(ShareRows)
def _share_rows(op: ShareRows, ctx: Context) -> None:
    ctx.need(ctx.threads == LANES * op.row_warps * op.parts,
             f"{op.row_warps} x {op.parts} warps are not the {ctx.threads} threads of a block")  # fmt: skip


@check(StageColumns)
def _stage_columns(op: StageColumns, ctx: Context) -> None:
    ctx.need(op.held % op.m == 0 and op.held >= op.k, f"{op.held} rows are no whole windows of {op.m} that hold {op.k}")
    shared(ctx, op.dst, op.held * x_words(op.cols, op.src.dtype.nbytes), "the words of x")
    ctx.need(op.dst.dtype is u32, f"@{op.dst.name} holds words, not {op.dst.dtype}")
    ctx.one_of(op.vec, widths(op.src.dtype), f"elements of {op.src.dtype} at once")
    along = op.n if op.order == "row" else op.k
    ctx.need(along % op.vec == 0, f"{op.vec} elements at once, of runs of {along}")
    ctx.need(op.src.size == op.k * op.n, f"{op.k} x {op.n} elements are not the {op.src.size} of @{op.src.name}")


@check(WalkChunks)
def _walk_chunks(op: WalkChunks, ctx: Context) -> None:
    ctx.need(op.parts >= 1 and op.count >= 1, f"every {op.parts}-th of {op.count} chunks")


@check(LoadChunk)
def _load_chunk(op: LoadChunk, ctx: Context) -> None:
    for regs, table in ((op.values, op.value_table), (op.offsets, op.offset_table)):
        registers(ctx, regs, 1)
        same_type(ctx, regs, table)
        least = op.tiles * op.count * LANES * regs.size
        ctx.need(table.size == least, f"{op.tiles} tiles of {op.count} chunks take {least} words, not {table.size}")


@check(HandOver)
def _hand_over(op: HandOver, ctx: Context) -> None:
    registers(ctx, op.src, 1)
    registers(ctx, op.dst, op.src.size, exactly=True)
    same_type(ctx, op.dst, op.src)


@check(MultiplyChunk)
def _multiply_chunk(op: MultiplyChunk, ctx: Context) -> None:
    ctx.need(1 <= op.n < op.m <= MOST_WINDOW, f"{op.n} of every {op.m} are kept")
    c = chunks(op.n, op.m, op.dtype.nbytes)
    registers(ctx, op.acc, 1)
    registers(ctx, op.values, c.stored * op.dtype.nbytes // 4, exactly=True)
    registers(ctx, op.offsets, c.words, exactly=True)
    ctx.need(op.acc.dtype is f32, f"sums are made in f32, not {op.acc.dtype}")
    shared(ctx, op.x, x_words(op.acc.size, op.dtype.nbytes) * op.m * c.windows, "the words of x of a chunk")


@check(SumParts)
def _sum_parts(op: SumParts, ctx: Context) -> None:
    registers(ctx, op.total, 1, exactly=True)
    shared(ctx, op.sums, ctx.threads * op.acc.size, "the sums of a block")
    ctx.need(ctx.threads % (LANES * op.parts) == 0, f"{op.parts} warps a tile do not divide {ctx.threads} threads")
