"""The tile ops of products with bitmap tiles whose warps share a ring: the walk, x in its slots, warpgroups, sums.

No other family uses them: in ``bitmap`` each warp has a ring of its own and loads its operands of x from L2.

By rows x of a slab lies in a slot as [cols / 8][64][8], row 16 f + 4 t + j of it at 16 f + 2 t + j % 2 + 8 (j / 2):
W's order of columns (:mod:`sparsegen.formats.bitmap`) is then that of an mma's k.  By columns it lies as [cols][64], a
piece of 8 rows at its number xor 2 (column % 4), so that lanes which load four rows of eight columns meet in no bank.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr, Value
from .node import Op, attr, bind, buffer, declare, define, operand, region
from .numbers.bitmap import slot_words
from .numbers.bitmap_block import COLS, GROUP, GROUP_COLS, PIECE, exchanged, lag, operands
from .op_spmm import ORDERS, SLAB
from .tile_rules import registers, same_type, shared
from .types import Buffer, DType, f32, u32
from .warp_cluster import SIZES


@define("tile.share_runs", kw_only=True)
class ShareRuns(Op):
    """Each block has one of ``runs`` of strips, as even as ``unit`` adjacent ones come, part of the slabs and columns.

    Of several splits it makes ``met``, an mbarrier for one arrival, which the fence of a walk shows to others.  Its run
    is the ``count`` strips from ``first`` on, part ``split`` of ``splits`` of the slabs, the fastest, so that those of
    a run are a cluster, and the ``cols`` columns from ``column`` on; runs the body once.
    """

    shared: tuple[Buffer, ...] = declare()
    met: Buffer | None = buffer(writes=True)
    first: Value = bind()
    count: Value = bind()
    split: Value = bind()
    column: Value = bind()
    strips: int = attr()
    unit: int = attr()
    runs: int = attr()
    splits: int = attr()
    tiles: int = attr()
    cols: int = attr()
    body: tuple[Op, ...] = region()


@define("tile.walk_block", kw_only=True)
class WalkBlock(Op):
    """The warps of a block walk its slabs by a ring of ``stages`` slots that they share, a slab each.

    ``parts`` sets of warps take the slabs by turns, and have slots of their own.  The w-th warp of a set has the w-th
    ``rows`` strips of the block's ``count``, ``most`` at most, from ``first`` on; ``left`` of them lie behind its
    first, and where it has none, those are the block's last (``whole``: warps have all of theirs or none).

    A slot has the tiles' index, their masks and ``chunks`` chunks of values, of the ``stored`` ones: the warp's lie
    from words ``index_at``, ``masks_at`` and ``values_at`` of the ``ring`` on, where the first chunk has number
    ``base``; and x, from element ``x_at`` of ``columns`` on.  The body runs when they are there.

    Warps fill slots by turns: after each slab one fills the slot of some slabs before (``numbers.bitmap_block.lag``)
    of its own set, for a parity does not tell whether a slot is two rounds behind.  Bulk copies bring W, and ``fill``,
    for slab ``coming``, brings x to element ``to`` of ``columns``, by copies that the slot's mbarrier counts as well.
    ``bars``: of slots that are full, and of those that are empty.

    ``grouped``: the body's products are asynchronous, by warpgroups: all warps run it even where they have no strip.
    Their slot is free once they have ended; with ``late`` they go on into the next slab, whose body frees the slot
    ``used`` of the one before (none: -1) by ``tile.free_slot``.

    Not ``tile.walk_slabs``, of which each warp copies for itself, nor ``tile.walk_apart``, all of whose threads fill.
    """

    left: Value = bind()
    index_at: Value = bind()
    masks_at: Value = bind()
    values_at: Value = bind()
    base: Value = bind()
    x_at: Value = bind()
    used: Value | None = bind(default=None)
    coming: Value = bind()
    to: Value = bind()
    ring: Buffer = buffer(writes=True)
    columns: Buffer = buffer(writes=True)
    bars: Buffer = buffer(writes=True)
    index: Buffer = buffer()
    masks: Buffer = buffer()
    values: Buffer = buffer()
    first: Expr = operand()
    count: Expr = operand()
    split: Expr = operand()
    most: int = attr()
    strips: int = attr()
    slabs: int = attr()
    splits: int = attr()
    parts: int = attr(least=1)
    rows: int = attr()
    cols: int = attr()
    chunks: int = attr()
    stored: int = attr()
    stages: int = attr()
    whole: bool = attr(default=False)
    grouped: bool = attr(default=False)
    late: bool = attr(default=False)
    fill: tuple[Op, ...] = region()
    body: tuple[Op, ...] = region()


@define("tile.free_slot", kw_only=True)
class FreeSlot(Op):
    """Waits for the warpgroup's products, all of which read slot ``slot`` of ``stages``, and says for the warp that it
    is empty; nothing to say of none, -1."""

    bars: Buffer = buffer(writes=True)
    slot: Expr = operand()
    stages: int = attr()


@define("tile.copy_columns", kw_only=True)
class CopyColumns(Op):
    """Starts a warp's copies of x of a slab, ``cols`` columns from ``column`` on, to element ``to`` of ``dst``.

    ``src`` is x [k, n] by ``order``, whose rows (or columns) are whole pieces of 16 bytes.  Rows from ``k`` on are the
    last one again (W has zeros there); columns from ``n`` on are others, whose sums nobody stores.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    slab: Expr = operand()
    to: Expr = operand()
    column: Expr = operand()
    cols: int = attr()
    k: int = attr()
    n: int = attr()
    order: str = attr(one_of=ORDERS)


@define("tile.load_columns", kw_only=True)
class LoadColumns(Op):
    """B fragments of x, which lies from element ``at`` of ``src`` on: those of ``fragments`` fragments from ``first``.

    Register (f * cols / 8 + b) * 2 + h holds rows j = 2 h, 2 h + 1 of the columns 8 b .. 8 b + 7.
    """

    regs: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    at: Expr = operand()
    first: Expr = operand()
    fragments: int = attr()
    cols: int = attr()
    order: str = attr(one_of=ORDERS)


@define("tile.multiply_fragments", kw_only=True)
class MultiplyFragments(Op):
    """``acc += a * x[fragment]`` by a warpgroup, asynchronously: of each warp 16 rows, in registers, x out of a slot.

    Fragments have their A in ``a`` and ``other`` by turns.  Accumulator b * 4 + e is element e of the C fragment of
    columns 8 b, as an mma has it.
    """

    acc: Buffer = buffer(writes=True)
    a: Buffer = buffer()
    other: Buffer = buffer()
    src: Buffer = buffer()
    at: Expr = operand()
    fragment: Expr = operand()
    dtype: DType = attr()
    cols: int = attr()


@define("tile.sum_cluster", kw_only=True)
class SumCluster(Op):
    """Adds up sums, in order, and runs the body where a warp has all of its: those of the ``parts`` warps that share
    its rows, as many apart as a part has, then those of the ``splits`` blocks of a cluster.

    Of the first of these warps, w sends what it has to block w mod splits.  ``acc``, a lane's sums, goes through
    ``sums``, 32-bit words, and is waited for by ``bars``, an mbarrier for one arrival.
    """

    acc: Buffer = buffer(writes=True)
    sums: Buffer = buffer(writes=True)
    bars: Buffer | None = buffer(writes=True)
    parts: int = attr(least=1)
    splits: int = attr()
    body: tuple[Op, ...] = region()


# ------------------------------------------------------------------------------------------------ what they must obey
def _columns(ctx: Context, src: Buffer, cols: int, grouped: bool = False) -> None:
    ctx.one_of(cols, GROUP_COLS if grouped else COLS, "columns of a block")
    ctx.need(src.space == "shared" and src.size % (SLAB * cols) == 0, f"@{src.name} has no slabs of {cols} columns")


@check(ShareRuns)
def _share_runs(op: ShareRuns, ctx: Context) -> None:
    for buf in op.shared:
        ctx.need(buf.space == "shared", f"@{buf.name} must be in shared memory, not in {buf.space}")
    ctx.need((op.met is not None) == (op.splits > 1), "there is an mbarrier for several splits, and only then")
    ctx.need(op.unit >= 1 and 1 <= op.runs <= -(-op.strips // op.unit) and op.tiles >= 1,
             f"{op.strips} strips, {op.unit} together, make no {op.runs} runs")  # fmt: skip
    ctx.one_of(op.splits, SIZES, "splits")
    cluster = getattr(ctx.func, "cluster", 1)
    ctx.need(cluster == op.splits, f"{op.splits} splits are a cluster, the function's have {cluster} blocks")
    blocks = getattr(ctx.func, "blocks", 0)
    ctx.need(blocks == op.runs * op.tiles * op.splits, f"runs, tiles and splits are not {blocks} blocks")


@check(WalkBlock)
def _walk_block(op: WalkBlock, ctx: Context) -> None:
    warps = ctx.warps() // op.parts
    ctx.need(ctx.threads == 32 * warps * op.parts, f"{op.parts} parts of {ctx.threads} threads")
    ctx.need(1 <= op.most <= warps * op.rows, f"{warps} warps of {op.rows} strips have no {op.most}")
    ctx.need(not op.whole or op.strips % op.rows == 0, f"{op.strips} strips are not all of whole warps of {op.rows}")
    ctx.need(not op.grouped or (warps % GROUP == 0 and op.rows == op.parts == 1),
             f"{warps} warps of {op.rows} strips and {op.parts} slabs make no warpgroups of 64 rows")  # fmt: skip
    ctx.need(op.stages > lag(op.parts, op.late) and op.stages % op.parts == 0,
             f"{op.parts} sets of warps do not share {op.stages} slots, or have none to fill ahead")  # fmt: skip
    shared(ctx, op.ring, op.stages * slot_words(op.most, op.chunks), f"{op.stages} slots of tiles")
    _columns(ctx, op.columns, op.cols, op.grouped)
    shared(ctx, op.columns, op.stages * SLAB * op.cols, f"{op.stages} slots of x")
    shared(ctx, op.bars, 2 * op.stages, f"barriers of {op.stages} slots")
    ctx.need(op.late == (op.used is not None) and op.late <= op.grouped, "a slot that is freed late is of warpgroups")
    same_type(ctx, op.ring, op.index, op.masks, op.values)


@check(FreeSlot)
def _free_slot(op: FreeSlot, ctx: Context) -> None:
    shared(ctx, op.bars, 2 * op.stages, f"barriers of {op.stages} slots")
    ctx.need(-1 <= op.slot.lo and op.slot.hi < op.stages, f"slot {op.slot} is none of {op.stages}")


@check(SumCluster)
def _sum_cluster(op: SumCluster, ctx: Context) -> None:
    ctx.one_of(op.splits, SIZES, "splits")
    ctx.need(op.acc.dtype is f32 and op.acc.size % 4 == 0, f"@{op.acc.name} has no C fragments in f32")
    warps = ctx.warps() // op.parts
    ctx.need(warps * op.parts * 32 == ctx.threads, f"{op.parts} parts of {ctx.threads} threads")
    shared(ctx, op.sums, exchanged(op.acc.size, (warps, op.parts), op.splits), "sums of other warps")
    ctx.need(op.sums.dtype is u32, f"@{op.sums.name} has words, not {op.sums.dtype}")
    ctx.need((op.bars is not None) == (op.splits > 1), "there is an mbarrier for several splits, and only then")


@check(CopyColumns)
def _copy_columns(op: CopyColumns, ctx: Context) -> None:
    _columns(ctx, op.dst, op.cols, True)
    same_type(ctx, op.dst, op.src)
    ctx.need(op.src.dtype.nbytes == 2, f"x has 16 bits, not {op.src.dtype}")
    ctx.need(op.src.size == op.k * op.n, f"x of {op.k} x {op.n} has not the {op.src.size} elements of @{op.src.name}")
    along = op.n if op.order == "row" else op.k
    ctx.need(along % PIECE == 0, f"{along} elements are no whole pieces of {PIECE}")


@check(LoadColumns)
def _load_columns(op: LoadColumns, ctx: Context) -> None:
    _columns(ctx, op.src, op.cols)
    ctx.one_of(op.fragments, (1, SLAB // 16), "fragments")
    registers(ctx, op.regs, operands(op.cols, op.fragments), exactly=True)
    ctx.need(op.regs.dtype is u32, f"registers hold pairs, u32, not {op.regs.dtype}")


@check(MultiplyFragments)
def _multiply_fragments(op: MultiplyFragments, ctx: Context) -> None:
    _columns(ctx, op.src, op.cols, True)
    registers(ctx, op.acc, op.cols // 2, exactly=True)
    ctx.need(op.acc.dtype is f32, f"sums are made in f32, not {op.acc.dtype}")
    for regs in (op.a, op.other):
        registers(ctx, regs, 4, exactly=True)
    ctx.need(op.src.dtype is op.dtype, f"x has {op.dtype}, not {op.src.dtype}")
