"""The tile ops of products whose rows of x are gathered for warpgroups (Hopper): a ring of W's tiles and rows of x.

A tile of W is ``groups`` x 64 rows that share a list of columns; 64 of them are a turn.  Their rows of x come by
asynchronous copies, each to its place in a swizzled tile, so the gather costs only addresses; then each warpgroup
multiplies its 64 rows by them.

No other family uses them: only products of warpgroups read swizzled tiles, and warps that only copy feed them.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr, Value
from .node import Op, attr, bind, buffer, declare, define, operand, region
from .numbers.gather import COLS, LEAST, PIECE, ROWS, SIDE, SIDE_PITCH, STEP, bars, list_words, threads
from .op_spmm import ACTIVATIONS, ORDERS
from .tile_rules import registers, same_type, shared
from .types import Buffer, f32


@define("tile.walk_kept", kw_only=True)
class WalkKept(Op):
    """Each block takes tiles of y, every ``blocks``-th, and for each walks the kept columns of W, ``steps`` turns.

    A tile is number ``tile`` of ``row_tiles`` of W's rows and the columns of x from ``column`` on; ``fastest`` says
    whether blocks that run at a time have tiles of W side by side (``rows``), or of x (``cols``).

    The block's last four warps copy: ``ahead`` runs a tile before the others, for the list number ``list`` of two;
    ``look`` runs before slot ``slot`` of ``stages`` is free for step ``step``, and ``fill`` when it is, of the block's
    next tile too.  The others are ``groups`` warpgroups that multiply: ``body`` runs when a slot's data are there,
    ``done`` after a tile's last turn, when no product is under way any more; ``acc``, one of the ``registers``, begins
    each tile as zero.  ``bars`` has mbarriers of slots that are full, of those that are empty, and of the lists.

    Not ``tile.walk``, whose warps all fill and all read, and whose turns end with a tile.
    """

    shared: tuple[Buffer, ...] = declare()
    registers: tuple[Buffer, ...] = declare()
    tile: Value = bind()
    column: Value = bind()
    step: Value = bind()
    slot: Value = bind()
    list: Value = bind()
    acc: Buffer = buffer(writes=True)
    bars: Buffer = buffer(writes=True)
    groups: int = attr()
    row_tiles: int = attr()
    col_tiles: int = attr()
    cols: int = attr()
    steps: int = attr()
    stages: int = attr()
    blocks: int = attr()
    fastest: str = attr(one_of=("rows", "cols"))
    ahead: tuple[Op, ...] = region()
    look: tuple[Op, ...] = region()
    fill: tuple[Op, ...] = region()
    body: tuple[Op, ...] = region()
    done: tuple[Op, ...] = region()


@define("tile.copy_list", kw_only=True)
class CopyList(Op):
    """Copies the numbers of the rows of x that a tile of W names, ``steps`` x 64 of 16 bits, to list ``list`` of two.

    Words of two; one bulk copy, whose bytes the list's mbarrier waits for.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    bars: Buffer = buffer(writes=True)
    tile: Expr = operand()
    list: Expr = operand()
    steps: int = attr()


@define("tile.list_rows", kw_only=True)
class ListRows(Op):
    """Loads the numbers of those rows of x that a copying thread takes a piece of in a step, as words of two."""

    rows: Buffer = buffer(writes=True, reads=False)
    lists: Buffer = buffer()
    list: Expr = operand()
    step: Expr = operand()
    steps: int = attr()
    cols: int = attr()


@define("tile.gather_rows", kw_only=True)
class GatherRows(Op):
    """Copies ``cols`` columns from ``column`` on of the rows of x that ``rows`` names into a slot, asynchronously.

    A slot has blocks of 64 columns (or of ``cols``, if fewer), each 64 rows, swizzled.  ``src`` is [k, n], n a multiple
    of 8; columns from ``n`` on are the last ones again.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    rows: Buffer = buffer()
    slot: Expr = operand()
    column: Expr = operand()
    cols: int = attr()
    k: int = attr()
    n: int = attr()


@define("tile.copy_tile", kw_only=True)
class CopyTile(Op):
    """Copies a tile of W for a step, ``groups`` x 64 rows of 64 columns as they lie in ``src``, into a slot.

    One bulk copy, whose bytes the slot's full mbarrier waits for.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    bars: Buffer = buffer(writes=True)
    slot: Expr = operand()
    tile: Expr = operand()
    step: Expr = operand()
    steps: int = attr()
    groups: int = attr()


@define("tile.multiply_group", kw_only=True)
class MultiplyGroup(Op):
    """``acc += a * b`` by each warpgroup, asynchronously: its 64 rows of a slot of ``a``, the slot's 64 rows of x."""

    acc: Buffer = buffer(writes=True)
    a: Buffer = buffer()
    b: Buffer = buffer()
    slot: Expr = operand()
    cols: int = attr()
    groups: int = attr()


@define("tile.store_tile", kw_only=True)
class StoreTile(Op):
    """Stores a warpgroup's sums to y, with the epilogue: ``activation(scale * sum + bias) + residual``.

    The tile's rows are ``groups`` x 64 from 64 * ``groups`` * ``tile`` on; rows from ``m`` and columns from ``n`` on do
    not exist.  ``vec`` adjacent columns go at once: one, a lane's pair, or 8 of them, for which the lanes of a quad
    exchange their pairs.
    """

    out: Buffer = buffer(writes=True, reads=False)
    acc: Buffer = buffer()
    scale: Buffer | None = buffer()
    bias: Buffer | None = buffer()
    residual: Buffer | None = buffer()
    tile: Expr = operand()
    column: Expr = operand()
    m: int = attr()
    n: int = attr()
    groups: int = attr()
    vec: int = attr()
    order: str = attr(one_of=ORDERS)
    activation: str = attr(one_of=ACTIVATIONS)


@define("tile.turn_columns", kw_only=True)
class TurnColumns(Op):
    """Writes x [k, n], stored column by column or with n that no piece divides, row by row with ``pitch`` a row.

    Each block has 32 rows and 32 columns, of an x by columns through a shared ``tile``; columns from ``n`` on are zero.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    tile: Buffer = declare()
    k: int = attr()
    n: int = attr()
    pitch: int = attr()
    order: str = attr(one_of=ORDERS)


# ------------------------------------------------------------------------------------------------ what they must obey
def _block(ctx: Context, cols: int) -> None:
    ctx.one_of(cols, COLS, "columns of a block")


def _groups(ctx: Context, groups: int) -> None:
    ctx.need(groups >= 1 and ctx.threads == threads(groups),
             f"{groups} warpgroups and those that copy are not {ctx.threads} threads")  # fmt: skip


def _ring(ctx: Context, ring: Buffer, slot: int, what: str) -> None:
    shared(ctx, ring, LEAST * slot, what)
    ctx.need(ring.size % slot == 0, f"@{ring.name} has {ring.size} elements, which are no slots of {slot}")


@check(WalkKept)
def _walk_kept(op: WalkKept, ctx: Context) -> None:
    _groups(ctx, op.groups)
    ctx.need(op.stages >= LEAST, f"a ring of {op.stages} slots has none to fill ahead")
    shared(ctx, op.bars, bars(op.stages), "the mbarriers of a ring and two lists")
    ctx.need(min(op.row_tiles, op.col_tiles, op.steps, op.blocks) >= 1, "a walk has tiles, steps and blocks")
    registers(ctx, op.acc, op.cols // 2, exactly=True)


@check(CopyList)
def _copy_list(op: CopyList, ctx: Context) -> None:
    words = op.steps * STEP // 2
    shared(ctx, op.dst, 2 * words, "two lists")
    same_type(ctx, op.dst, op.src)
    ctx.need(op.src.size % words == 0, f"@{op.src.name} has no whole lists of {op.steps} x {STEP} numbers")


@check(ListRows)
def _list_rows(op: ListRows, ctx: Context) -> None:
    _block(ctx, op.cols)
    registers(ctx, op.rows, list_words(op.cols), exactly=True)
    same_type(ctx, op.rows, op.lists)
    shared(ctx, op.lists, op.steps * STEP, "two lists")


@check(GatherRows)
def _gather_rows(op: GatherRows, ctx: Context) -> None:
    _block(ctx, op.cols)
    registers(ctx, op.rows, list_words(op.cols), exactly=True)
    _ring(ctx, op.dst, STEP * op.cols, "the rows of x of a turn")
    same_type(ctx, op.dst, op.src)
    ctx.need(op.n % PIECE == 0, f"{op.n} columns are no whole pieces of {PIECE}")
    ctx.need(op.src.size == op.k * op.n, f"{op.k} x {op.n} elements are not the {op.src.size} of @{op.src.name}")


@check(CopyTile)
def _copy_tile(op: CopyTile, ctx: Context) -> None:
    _groups(ctx, op.groups)
    size = STEP * ROWS * op.groups
    _ring(ctx, op.dst, size, "W's tile of a turn")
    same_type(ctx, op.dst, op.src)
    ctx.need(op.src.size % (op.steps * size) == 0, f"@{op.src.name} has no whole tiles of {op.steps} x {size}")


@check(MultiplyGroup)
def _multiply_group(op: MultiplyGroup, ctx: Context) -> None:
    _block(ctx, op.cols)
    _groups(ctx, op.groups)
    registers(ctx, op.acc, op.cols // 2, exactly=True)
    ctx.need(op.acc.dtype is f32, f"sums are made in f32, not {op.acc.dtype}")
    _ring(ctx, op.a, STEP * ROWS * op.groups, "W's tile of a turn")
    _ring(ctx, op.b, STEP * op.cols, "the rows of x of a turn")
    same_type(ctx, op.a, op.b)


@check(StoreTile)
def _store_tile(op: StoreTile, ctx: Context) -> None:
    _groups(ctx, op.groups)
    ctx.need(op.acc.dtype is f32, f"the epilogue works in f32, not {op.acc.dtype}")
    ctx.need(op.out.size == op.m * op.n, f"{op.m} x {op.n} elements are not the {op.out.size} of @{op.out.name}")
    wide = op.order == "row" and op.n % op.vec == 0 and op.acc.size % (2 * op.vec) == 0
    ctx.need(op.vec < 8 or op.residual is None, "a residual is added before sums are rounded and exchanged")
    ctx.need(op.vec == 1 or (op.vec in (2, 8) and wide), f"{op.vec} adjacent columns at once of {op.n}, by {op.order}")


@check(TurnColumns)
def _turn_columns(op: TurnColumns, ctx: Context) -> None:
    shared(ctx, op.tile, SIDE * SIDE_PITCH, "a tile of 32 x 32 with its pad")
    same_type(ctx, op.dst, op.src, op.tile)
    ctx.need(op.pitch >= op.n and op.dst.size == op.k * op.pitch, f"rows of {op.n} columns, {op.pitch} apart")
    ctx.need(op.src.size == op.k * op.n, f"{op.k} x {op.n} elements are not the {op.src.size} of @{op.src.name}")
