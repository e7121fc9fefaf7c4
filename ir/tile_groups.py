"""The tile ops of products of warpgroups (Hopper): warps that only copy fill a ring, warpgroups multiply out of it.

A tile of W is ``groups`` x 64 rows, and a turn takes 64 of its columns: a slot has W's tile and the 64 rows of x.

Only families that multiply by warpgroups use them: their products read swizzled tiles, as they are copied.
"""

from __future__ import annotations

from abc import abstractmethod

from .checks import Context, check
from .expr import Expr, Value
from .node import Op, attr, base, bind, buffer, declare, define, operand, region
from .numbers.groups import COLS, COPIERS, LEAST, PIECE, PIECES_SIDE, ROWS, SIDE, STAGE, STEP, bars, side_pitch, threads
from .numbers.registers import MOST, at_launch
from .op_spmm import ORDERS
from .tile_rules import registers, same_type, shared, whole
from .tile_store import Store
from .types import Buffer, f32


class Fill(Op):
    """An op that puts data into a slot of a ring and arrives at the slot's mbarrier, by itself or by its copies."""

    @property
    @abstractmethod
    def arrivals(self) -> int:
        """How often, of all threads that copy, in a turn."""

    @property
    def asynchronous(self) -> bool:
        """Whether it writes through the asynchronous proxy, as products read: without it a fence comes between."""
        return False


@base
class BulkFill(Fill):
    """One that a single thread starts: bulk copies to slot ``slot`` of ``dst``, whose bytes its mbarrier waits for."""

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    bars: Buffer = buffer(writes=True)
    slot: Expr = operand()

    @property
    def arrivals(self) -> int:
        """One, of that thread, with the bytes."""
        return 1

    @property
    def asynchronous(self) -> bool:
        """Bulk copies do."""
        return True


@define("tile.walk_groups", kw_only=True)
class WalkGroups(Op):
    """Each block takes tiles of y, every ``blocks``-th, and for each walks the columns of W, ``steps`` turns.

    A tile is number ``tile`` of ``row_tiles`` of W's rows and the columns of x from ``column`` on; ``fastest`` says
    whether blocks that run at a time have tiles of W side by side (``rows``), or of x (``cols``).

    The block's last warps fill the ring, ``teams`` of four, turn about: ``ahead``, if there is anything in it, runs a
    tile before the others, for the list number ``list`` of two; ``begin`` runs once, after the first of these; ``look``
    runs before slot ``slot`` of ``stages`` is free for step ``step``, and ``early`` and ``fill`` when it is, of the
    block's next tile too; their ops arrive at the slot's mbarrier.  Those in ``early`` read what no launch writes: for
    the slots' first turns they run before ``begin``, if that waits for the launch before.

    The others are ``groups`` warpgroups that multiply: ``body``, whose ops fence the registers of their products, runs
    when a slot's data are there, ``done`` after a tile's last turn, when no product is under way any more; ``acc``, one
    of the ``registers``, begins each tile as zero.  ``turn`` counts the block's turns in all its tiles.  ``pending``:
    turns whose products are under way when the next one's begin: 0 where these read registers that ``body`` writes.
    ``bars`` has mbarriers of slots that are full, of those that are empty, and of ``lists``, to each of which one
    thread arrives.  The threads that fill may ``keep`` so many registers, of which the others get the rest.

    Not ``tile.walk``, whose warps all fill and all read, and whose turns end with a tile.
    """

    shared: tuple[Buffer, ...] = declare()
    registers: tuple[Buffer, ...] = declare()
    tile: Value = bind()
    column: Value = bind()
    step: Value = bind()
    slot: Value = bind()
    list: Value | None = bind(default=None)
    turn: Value | None = bind(default=None)
    acc: Buffer = buffer(writes=True)
    bars: Buffer = buffer(writes=True)
    groups: int = attr()
    row_tiles: int = attr()
    col_tiles: int = attr()
    cols: int = attr()
    steps: int = attr()
    stages: int = attr()
    blocks: int = attr()
    teams: int = attr(default=1)
    lists: int = attr(default=0)
    keep: int = attr(default=0)
    fastest: str = attr(one_of=("rows", "cols"))
    pending: int = attr(one_of=(0, 1), default=1)
    ahead: tuple[Op, ...] = region()
    begin: tuple[Op, ...] = region(default=())
    early: tuple[Op, ...] = region(default=())
    look: tuple[Op, ...] = region()
    fill: tuple[Op, ...] = region()
    body: tuple[Op, ...] = region()
    done: tuple[Op, ...] = region()


@define("tile.copy_tile", kw_only=True)
class CopyTile(BulkFill):
    """Copies ``size`` elements for a step of a tile of W, as they lie in ``src``, into a slot.

    One bulk copy, whose bytes the slot's full mbarrier waits for.  ``by_lanes``: lanes load what is in a slot, not the
    products of a warpgroup: then it also fences what was loaded before.
    """

    tile: Expr = operand()
    step: Expr = operand()
    steps: int = attr(least=1)
    size: int = attr(least=1)
    by_lanes: bool = attr(default=False)


@define("tile.copy_rows", kw_only=True)
class CopyRows(BulkFill):
    """Copies ``cols`` columns from ``column`` on of the 64 rows of x of a step into a slot, asynchronously.

    ``src`` is x [k, n].  By ``row``, n a multiple of 8, a slot has blocks of 64 columns (or of ``cols``, if fewer),
    each 64 rows, swizzled; by ``column``, k a multiple of 8, it has ``cols`` columns of 64 rows, swizzled.  Rows from
    ``k`` on and columns from ``n`` on are zeros.
    """

    column: Expr = operand()
    step: Expr = operand()
    cols: int = attr()
    k: int = attr()
    n: int = attr()
    order: str = attr(one_of=ORDERS)


@define("tile.multiply_group", kw_only=True)
class MultiplyGroup(Op):
    """``acc += a * b`` by each warpgroup, asynchronously: its 64 rows of a slot of ``a``, the slot's 64 rows of x.

    ``order``: how x lies in its slot, see :class:`CopyRows`.
    """

    acc: Buffer = buffer(writes=True)
    a: Buffer = buffer()
    b: Buffer = buffer()
    slot: Expr = operand()
    cols: int = attr()
    groups: int = attr()
    order: str = attr(one_of=ORDERS)


@define("tile.store_tile", kw_only=True)
class StoreTile(Store):
    """Stores warps' sums to y, with the epilogue.

    Of ``warps`` = (down, across), warp w has the w mod down-th ``high`` x 16 rows from ``row`` on, and part w // down
    of the columns from ``column`` on, as many as ``acc`` has sums for: accumulator (i * blocks + j) * 4 + e is element
    e of the fragment of rows 16 i and columns 8 j, of an mma or of a warpgroup's product.  Rows from ``end`` on, a
    multiple of 16, are another block's (None: there are none but those that do not exist).  ``vec`` elements
    that are adjacent in the ``order`` of y go at once: one, a lane's pair, or 8 of them, for which the lanes of a quad
    exchange their pairs.  Single elements of a y by rows go through ``stage``, where a warp lays out 8 rows of up to 32
    columns, so that lanes side by side store them.
    """

    acc: Buffer = buffer()
    row: Expr = operand()
    end: Expr | None = operand(default=None)
    column: Expr = operand()
    warps: tuple[int, int] = attr()
    high: int = attr(default=1)
    vec: int = attr(least=1)
    stage: Buffer | None = declare(default=None)


@define("tile.turn_columns", kw_only=True)
class TurnColumns(Op):
    """Writes x [k, n], stored column by column, row by row with ``pitch`` a row.

    Each block has 32 rows and 32 columns, through a shared ``tile``; columns from ``n`` on are zero.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    tile: Buffer = declare()
    k: int = attr()
    n: int = attr()
    pitch: int = attr()


@define("tile.pad_rows", kw_only=True)
class PadRows(Op):
    """Writes x [k, n], stored row by row with n that no piece divides, row by row with ``pitch`` a row.

    A thread has a piece of 16 bytes, which it loads ``vec`` elements at a time; columns from ``n`` on are zero.  In x
    ``panel`` adjacent columns lie together, one such matrix behind the other; 0: all do.  Not ``tile.turn_columns``:
    nothing goes from row to row.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    k: int = attr()
    n: int = attr()
    pitch: int = attr()
    vec: int = attr(default=1)
    panel: int = attr(default=0)


@define("tile.turn_pieces", kw_only=True)
class TurnPieces(Op):
    """Writes x [k, n], stored column by column with k a multiple of 8, row by row with ``pitch`` a row.

    Each block has 64 rows and 64 columns: by pieces of 16 bytes into a swizzled ``tile``, and out of it as transposed
    8x8 matrices.  Columns from ``n`` on are zero.  Not ``tile.turn_columns``, which takes any k, element by element.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    tile: Buffer = declare()
    k: int = attr()
    n: int = attr()
    pitch: int = attr()


# ------------------------------------------------------------------------------------------------ what they must obey
def in_block(ctx: Context, cols: int) -> None:
    """The columns are as many as a block may have."""
    ctx.one_of(cols, COLS, "columns of a block")


def in_groups(ctx: Context, groups: int) -> None:
    """The block has that many warpgroups, and the warps that feed them."""
    copiers = ctx.threads - threads(groups, 0)
    ctx.need(groups >= 1 and copiers >= COPIERS and copiers % COPIERS == 0,
             f"{groups} warpgroups and those that copy are not {ctx.threads} threads")  # fmt: skip


def in_ring(ctx: Context, ring: Buffer, slot: int, what: str) -> None:
    """A shared buffer is a ring of slots of so many elements."""
    shared(ctx, ring, LEAST * slot, what)
    ctx.need(ring.size % slot == 0, f"@{ring.name} has {ring.size} elements, which are no slots of {slot}")


@check(WalkGroups)
def _walk_groups(op: WalkGroups, ctx: Context) -> None:
    in_groups(ctx, op.groups)
    ctx.need(op.stages >= LEAST, f"a ring of {op.stages} slots has none to fill ahead")
    shared(ctx, op.bars, bars(op.stages, op.lists), "the mbarriers of a ring and of lists")
    ctx.need(min(op.row_tiles, op.col_tiles, op.steps, op.blocks) >= 1, "a walk has tiles, steps and blocks")
    registers(ctx, op.acc, op.cols // 2, exactly=True)
    ctx.need(ctx.threads == threads(op.groups, op.teams), f"{op.teams} teams are not the last of {ctx.threads} threads")
    ctx.need(op.teams <= op.stages, f"{op.teams} teams would wait for phases of {op.stages} slots that others begin")
    one = op.lists == 2 and op.list is not None and op.teams == 1
    ctx.need(not op.ahead or one, "what comes a tile ahead is one of two lists, for one team")
    ctx.need(any(isinstance(f, Fill) for f in op.fill), "nothing in fill arrives at a slot's mbarrier")
    ctx.need(not op.early or op.teams == 1, f"{op.teams} teams would each fill all slots early")
    own = at_launch(ctx.threads, 1)
    ctx.need(op.keep < own < MOST or not op.keep, f"{op.keep} registers are no less than the {own} of a launch")


@check(CopyTile)
def _copy_tile(op: CopyTile, ctx: Context) -> None:
    in_ring(ctx, op.dst, op.size, "W's tile of a turn")
    same_type(ctx, op.dst, op.src)
    ctx.need(op.src.size % (op.steps * op.size) == 0, f"@{op.src.name} has no whole tiles of {op.steps} x {op.size}")


@check(CopyRows)
def _copy_rows(op: CopyRows, ctx: Context) -> None:
    in_block(ctx, op.cols)
    in_ring(ctx, op.dst, STEP * op.cols, "the rows of x of a turn")
    same_type(ctx, op.dst, op.src)
    along = op.n if op.order == "row" else op.k
    ctx.need(along % PIECE == 0, f"{along} adjacent elements are no whole pieces of {PIECE}")
    ctx.need(op.src.size == op.k * op.n, f"{op.k} x {op.n} elements are not the {op.src.size} of @{op.src.name}")


@check(MultiplyGroup)
def _multiply_group(op: MultiplyGroup, ctx: Context) -> None:
    in_block(ctx, op.cols)
    in_groups(ctx, op.groups)
    registers(ctx, op.acc, op.cols // 2, exactly=True)
    ctx.need(op.acc.dtype is f32, f"sums are made in f32, not {op.acc.dtype}")
    in_ring(ctx, op.a, STEP * ROWS * op.groups, "W's tile of a turn")
    in_ring(ctx, op.b, STEP * op.cols, "the rows of x of a turn")
    same_type(ctx, op.a, op.b)


@check(StoreTile)
def _store_tile(op: StoreTile, ctx: Context) -> None:
    down, across = op.warps
    ctx.need(0 < 32 * down * across <= ctx.threads, f"{down} x {across} warps of a block of {ctx.threads} threads")
    whole(ctx, op.acc.size, 4 * op.high, f"{op.acc.size} sums are no fragments of {op.high} x 16 rows")
    ctx.need(op.acc.dtype is f32, f"the epilogue works in f32, not {op.acc.dtype}")
    ctx.need(op.out.size == op.m * op.n, f"{op.m} x {op.n} elements are not the {op.out.size} of @{op.out.name}")
    by_row = op.order == "row"
    along = op.n if by_row else op.m
    lanes = 2 * op.vec if by_row else op.vec  # sums of a lane that an exchange takes
    wide = along % op.vec == 0 and op.acc.size % (lanes * op.high) == 0
    exchanged = op.vec == 8 or (op.vec == 2 and not by_row)
    ctx.need(not exchanged or op.residual is None, "a residual is added before sums are rounded and exchanged")
    ctx.need(op.vec == 1 or (op.vec in (2, 8) and wide), f"{op.vec} elements at once of {along}, by {op.order}")
    single = by_row and op.vec == 1
    ctx.need((op.stage is not None) == single, "single elements by rows go through a stage, and no others")
    if op.stage is not None:
        shared(ctx, op.stage, down * across * STAGE, "8 rows of each warp")
        ctx.need(op.stage.dtype is f32, f"a stage has sums, f32, not {op.stage.dtype}")


def _rows(ctx: Context, op: TurnColumns | TurnPieces | PadRows) -> None:
    """x as it is, and as it is written."""
    ctx.need(op.pitch >= op.n and op.dst.size == op.k * op.pitch, f"rows of {op.n} columns, {op.pitch} apart")
    ctx.need(op.src.size == op.k * op.n, f"{op.k} x {op.n} elements are not the {op.src.size} of @{op.src.name}")


@check(TurnColumns)
def _turn_columns(op: TurnColumns, ctx: Context) -> None:
    shared(ctx, op.tile, SIDE * side_pitch(op.src.dtype.nbytes), "a tile of 32 x 32 with its pad")
    same_type(ctx, op.dst, op.src, op.tile)
    _rows(ctx, op)


@check(PadRows)
def _pad_rows(op: PadRows, ctx: Context) -> None:
    same_type(ctx, op.dst, op.src)
    whole(ctx, op.pitch, 16 // op.src.dtype.nbytes, f"{op.pitch} elements a row are no pieces of 16 bytes")
    whole(ctx, op.panel or op.n, op.vec, f"{op.vec} elements at once of rows of {op.panel or op.n}")
    whole(ctx, op.n, op.panel or op.n, f"{op.n} columns are no panels of {op.panel}")
    _rows(ctx, op)


@check(TurnPieces)
def _turn_pieces(op: TurnPieces, ctx: Context) -> None:
    shared(ctx, op.tile, PIECES_SIDE**2, "a tile of 64 x 64")
    same_type(ctx, op.dst, op.src, op.tile)
    ctx.need(op.k % PIECE == 0 and op.pitch % PIECE == 0, f"{op.k} rows, {op.pitch} a row: no pieces of {PIECE}")
    _rows(ctx, op)
