"""The tile ops of products with bitmap tiles: who owns which strips, a ring a warp, decode, multiply, sum and store.

No other family uses them: their fragments come from a bitmap, byte planes and an order of columns of their own.

A strip is 16 rows, a slab 64 columns of W; a tile is where they cross (SpInfer's TCBlock row, EuroSys'25, section 4.1,
with one 32-bit mask a lane in place of a bitmap a 8 x 8 block: see :mod:`sparsegen.formats.bitmap`).
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr, Value
from .fragments import SHAPES
from .node import Op, attr, bind, buffer, declare, define, operand, region
from .numbers.bitmap import INDEX, MASKS, slot_words
from .op_spmm import NARROW, ORDERS
from .tile_rules import mma, registers, same_type, shared
from .tile_store import Store
from .types import Buffer, DType, f32, widths


@define("tile.share_strips", kw_only=True)
class ShareStrips(Op):
    """Each block owns a run of strips, a part of the slabs and some columns of x; runs the body once.

    Of ``groups`` runs of strips, as even as they come, block b has run b // (splits * tiles): ``count`` strips from
    ``first`` on.  It has part ``split`` of ``splits`` of the slabs, and the ``cols`` columns from ``column`` on (the
    tiles of columns are the fastest), and the ``shared`` buffers.
    """

    shared: tuple[Buffer, ...] = declare()
    first: Value = bind()
    count: Value = bind()
    split: Value = bind()
    column: Value = bind()
    strips: int = attr()
    groups: int = attr()
    splits: int = attr()
    tiles: int = attr()
    cols: int = attr()
    body: tuple[Op, ...] = region()


@define("tile.walk_slabs", kw_only=True)
class WalkSlabs(Op):
    """Each warp walks its slabs; bulk copies bring its tiles of a slab into a slot of its own ring.

    Warp w has the (w % row_warps)-th part of the block's strips (``mine`` of them, ``rows`` at most)
    and every slab_warps-th slab of the split from the (w // row_warps)-th on.  A slot holds the tiles' index (4 words
    each), masks (32 words each) and ``chunks`` chunks of values (2 words each), in 32-bit words from ``slot`` on, of
    the ``stored`` ones.  ``early`` runs while they are on their way, ``body`` when they are there: ``base`` is then the
    number of the first chunk (an even one, as 16 bytes are two chunks); after it the slot is refilled for the slab
    ``stages`` turns later.  ``slab`` is the turn's; ``ahead`` runs before the first turn and at the end of each, for
    the slab ``coming`` next.

    Not a ``tile.walk``: each warp has its own number of turns, they tell where their data lie 32 at a time, refill last
    (lag 0), and their data are three arrays that land in a slot by bulk copies with barriers.

    The ring belongs to no other warp, so no block barrier and no count of readers is needed.  Afterwards it is free
    for others: it has at least ``least`` words.  Without ``bars`` (before sm_90) all lanes copy, 16 bytes at a time by
    ``cp.async``, a group for each turn.
    """

    ring: Buffer = buffer(writes=True)
    bars: Buffer | None = buffer(writes=True)
    slab: Value = bind()
    coming: Value = bind()
    mine: Value = bind()
    slot: Value = bind()
    base: Value = bind()
    index: Buffer = buffer()
    masks: Buffer = buffer()
    values: Buffer = buffer()
    first: Expr = operand()
    count: Expr = operand()
    split: Expr = operand()
    strips: int = attr()
    slabs: int = attr()
    splits: int = attr()
    row_warps: int = attr()
    slab_warps: int = attr()
    rows: int = attr()
    chunks: int = attr()
    stored: int = attr()
    least: int = attr()
    ahead: tuple[Op, ...] = region()
    early: tuple[Op, ...] = region(default=())
    body: tuple[Op, ...] = region(default=())
    stages: int = attr(default=1)

    @property
    def slot_words(self) -> int:
        """32-bit words of a slot."""
        return slot_words(self.rows, self.chunks)


@define("tile.fetch_columns", kw_only=True)
class FetchColumns(Op):
    """Loads the lane's elements of x for a slab into ``raw`` registers, as they come; ``pack_columns`` makes operands.

    Lane (g, t) takes rows 16 f + 4 t + j of the slab for fragment f, j = 0..3 (W's order, not the mma's: a sum may go
    in any order), and of the ``blocks`` blocks of 8 columns g * blocks + b.  Rows past ``k`` and columns past ``n`` are
    zero; columns past ``end`` too, where it is given.  A register holds two neighbours in memory: of a row (``order``
    row; one element if there is one block) in the order f, j, pair of columns, or of a column in the order f, b, pair
    of rows.
    """

    raw: Buffer = buffer(writes=True, reads=False)
    x: Buffer = buffer()
    slab: Expr = operand()
    column: Expr = operand()
    k: int = attr()
    n: int = attr()
    blocks: int = attr()
    order: str = attr(one_of=ORDERS)
    vec: int = attr()
    end: Expr | None = operand(default=None)


@define("tile.pack_columns", kw_only=True)
class PackColumns(Op):
    """B fragments from ``raw``: register (f * blocks + b) * 2 + h holds rows j = 2 h, 2 h + 1 of block b.

    If ``regs`` is f32 there is one column, in registers f * 4 + j, the same for all g.
    """

    regs: Buffer = declare()
    raw: Buffer = buffer()
    dtype: DType = attr()
    blocks: int = attr()
    order: str = attr(one_of=ORDERS)


@define("tile.expand_bitmap", kw_only=True)
class ExpandBitmap(Op):
    """Decodes each of the warp's tiles in a slot, fragment by fragment: ``a`` holds A when the body runs for it.

    In the ``ring`` of 32-bit words the warp's ``mine`` tiles (``rows`` at most) have their indices from ``index`` on,
    their masks from ``masks`` on, and ``values`` is where chunk number ``base`` lies.  The lane's eight elements of a
    fragment are compressed in memory (byte planes of four values) and expanded, zeros included, by byte permutes whose
    selectors are products of the mask: no branch, no table.  Where a lane's values begin, a sum over the lanes before
    it tells; it is worked out while the strip before is decoded.  With ``left``, so many tiles lie behind the first,
    and those that are missing are the last one again: tiles that are always decoded are decoded side by side.

    With ``other`` products read A asynchronously: fragments have ``a`` and ``other`` by turns, and all products but the
    latest have ended before one of them is written again; those of an earlier tile have ended before.  ``begun`` runs
    when the first values are on their way; with ``early`` those of a fragment are loaded before the products of the one
    before are waited for.

    ``narrow``: elements of 8 bits (:data:`sparsegen.ir.op_spmm.NARROW`; integers as v + 128), which lie byte by byte in
    place of planes, and are widened to f16.
    """

    a: Buffer = buffer(writes=True, reads=False)
    other: Buffer | None = buffer(writes=True, reads=False)
    strip: Value = bind()
    fragment: Value = bind()
    ring: Buffer = buffer()
    index: Expr = operand()
    masks: Expr = operand()
    values: Expr = operand()
    base: Expr = operand()
    mine: Expr = operand()
    left: Expr | None = operand(default=None)
    rows: int = attr()
    narrow: DType | None = attr(default=None)
    early: bool = attr(default=False)
    begun: tuple[Op, ...] = region(default=())
    body: tuple[Op, ...] = region()


@define("tile.multiply_fragment", kw_only=True)
class MultiplyFragment(Op):
    """``acc[strip] += a * x[fragment]`` by mma ``shape``, or (``none``) by multiply-adds of one column in f32.

    Accumulator (strip * blocks + b) * 4 + e is element e of the C fragment of block b; with ``none``, strip * 2 + h is
    the lane's part of the sum of row g + 8 h.  ``x`` has the operands of all four fragments, or of this one.
    """

    acc: Buffer = buffer(writes=True)
    a: Buffer = buffer()
    x: Buffer = buffer()
    strip: Expr = operand()
    fragment: Expr = operand()
    dtype: DType = attr()
    shape: str = attr()
    blocks: int = attr()


@define("tile.sum_warps", kw_only=True)
class SumWarps(Op):
    """Adds up the accumulators of a block's slab warps (through ``sums``), then those of the splits; runs the body.

    The body runs for each pair of elements that are neighbours in an accumulator: ``total`` holds the four sums of
    rows ``row`` and row + 8, columns ``col`` and col + ``blocks`` (counted from the block's first column); of one
    column (``shape`` none) only sums 0 and 2.  With splits, each block puts its sums into its slots of the workspace,
    and the last to arrive adds them in order: the result does not depend on who that was.
    """

    total: Buffer = declare()
    row: Value = bind()
    col: Value = bind()
    acc: Buffer = buffer()
    sums: Buffer = buffer(writes=True)
    turn: Buffer | None = buffer(writes=True)
    slots: Buffer | None = buffer(writes=True)
    counter: Buffer | None = buffer(writes=True)
    first: Expr = operand()
    count: Expr = operand()
    split: Expr = operand()
    row_warps: int = attr()
    slab_warps: int = attr()
    rows: int = attr()
    blocks: int = attr()
    splits: int = attr()
    tiles: int = attr()
    shape: str = attr()
    body: tuple[Op, ...] = region()

    @property
    def items(self) -> int:
        """How often the body runs in a block: once for each lane that holds sums of a fragment."""
        return self.row_warps * self.rows * (8 if self.shape == "none" else 32 * self.blocks)

    @property
    def words(self) -> int:
        """Sums of an item."""
        return 2 if self.shape == "none" else 4


@define("tile.store_product", kw_only=True)
class StoreProduct(Store):
    """Stores the sums of ``total`` to y, with the epilogue.

    ``gated``: rows ``row`` and row + 8 of W are those of two matrices, and one row of y: the product of their sums,
    each with its own scale and bias, the first with the activation.

    Of several ``experts`` ``row`` is counted over all of them: ``expert`` is whose it is, and columns from ``end`` on
    are another's.  Vectors have the elements of each in turn.
    """

    total: Buffer = buffer()
    row: Expr = operand()
    col: Expr = operand()
    column: Expr = operand()
    blocks: int = attr()
    shape: str = attr()
    gated: bool = attr(default=False)
    end: Expr | None = operand(default=None)
    expert: Expr | None = operand(default=None)
    experts: int = attr(default=0)


@check(ShareStrips)
def _share_strips(op: ShareStrips, ctx: Context) -> None:
    for buf in op.shared:
        ctx.need(buf.space == "shared", f"@{buf.name} must be in shared memory, not in {buf.space}")
    ctx.need(1 <= op.groups <= op.strips, f"{op.strips} strips make no {op.groups} runs")
    ctx.need(op.splits >= 1 and op.tiles >= 1, f"{op.splits} splits of {op.tiles} tiles of columns")


@check(WalkSlabs)
def _walk_slabs(op: WalkSlabs, ctx: Context) -> None:
    warps = op.row_warps * op.slab_warps
    ctx.need(32 * warps == ctx.threads, f"{op.row_warps} x {op.slab_warps} warps, the block has {ctx.threads} threads")
    shared(ctx, op.ring, max(op.least, warps * op.stages * op.slot_words), f"{op.stages} slots of {warps} warps")
    if op.bars is not None:
        shared(ctx, op.bars, warps * op.stages, f"barriers of {op.stages} slots of {warps} warps")
    same_type(ctx, op.ring, op.index, op.masks, op.values)


def _fragments_of_x(ctx: Context, raw: Buffer, blocks: int, order: str) -> None:
    """``raw`` holds the lane's elements of a slab of x, two a register."""
    words = 8 * blocks if order == "column" else 16 * ((blocks + 1) // 2)
    registers(ctx, raw, words, exactly=True)


@check(FetchColumns)
def _fetch_columns(op: FetchColumns, ctx: Context) -> None:
    _fragments_of_x(ctx, op.raw, op.blocks, op.order)
    ctx.need(op.x.size == op.k * op.n, f"x of {op.k} x {op.n} has not the {op.x.size} elements of @{op.x.name}")
    ctx.one_of(op.vec, widths(op.x.dtype), "elements at once")


@check(PackColumns)
def _pack_columns(op: PackColumns, ctx: Context) -> None:
    _fragments_of_x(ctx, op.raw, op.blocks, op.order)
    registers(ctx, op.regs, 16 if op.regs.dtype is f32 else 8 * op.blocks, exactly=True)


@check(ExpandBitmap)
def _expand_bitmap(op: ExpandBitmap, ctx: Context) -> None:
    registers(ctx, op.a, 4, exactly=True)
    ctx.need(op.strip.hi == op.rows - 1, f"%{op.strip.name} must count {op.rows} strips")
    if op.other is not None:
        registers(ctx, op.other, 4, exactly=True)
    shared(ctx, op.ring, op.rows * (INDEX + MASKS), "the index and masks of the tiles")
    ctx.need(op.narrow is None or op.narrow in NARROW, f"no 8-bit elements of {op.narrow} are widened",
             f"take one of {', '.join(map(str, NARROW))}")  # fmt: skip


@check(MultiplyFragment)
def _multiply_fragment(op: MultiplyFragment, ctx: Context) -> None:
    registers(ctx, op.a, 4, exactly=True)
    ctx.one_of(op.shape, ("none", *SHAPES), "mma shape")
    if op.shape == "none":
        registers(ctx, op.x, 16, exactly=True)
        registers(ctx, op.acc, 2 * (op.strip.hi + 1))
        return
    mma(ctx, op.shape, op.acc)
    ctx.need(SHAPES[op.shape].a.dtype is op.dtype, f"{op.shape} does not multiply {op.dtype}")
    ctx.one_of(op.x.size, (2 * op.blocks, 8 * op.blocks), "operands of x")
    registers(ctx, op.acc, 4 * op.blocks * (op.strip.hi + 1))


@check(SumWarps)
def _sum_warps(op: SumWarps, ctx: Context) -> None:
    ctx.need(32 * op.row_warps * op.slab_warps == ctx.threads,
             f"{op.row_warps} x {op.slab_warps} warps, the block has {ctx.threads} threads")  # fmt: skip
    registers(ctx, op.total, op.words)
    shared(ctx, op.sums, op.items * op.words * op.slab_warps, "the sums of all slab warps")
    parts = (op.turn, op.slots, op.counter)
    ctx.need(all((op.splits > 1) == (x is not None) for x in parts),
             "a turn, slots and a counter are there if splits are, and only then")  # fmt: skip


@check(StoreProduct)
def _store_product(op: StoreProduct, ctx: Context) -> None:
    ctx.need(op.out.size == op.m * op.n, f"y of {op.m} x {op.n} has not the {op.out.size} elements of @{op.out.name}")
    ctx.need(all((op.experts > 0) == (x is not None) for x in (op.end, op.expert)),
             "an expert, and an end of its columns, are there if there are experts")  # fmt: skip
    rows = op.m * (1 + op.gated) * max(1, op.experts)
    for buf, size in ((op.scale, rows), (op.bias, rows), (op.residual, op.m * op.n)):
        ctx.need(buf is None or buf.size == size, f"the epilogue's operands have {rows} or {op.m * op.n} elements")
