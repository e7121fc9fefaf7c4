"""The tile ops of N:M patterns on CUDA cores for many columns: outer products of W's kept columns and rows of x.

A block has a tile of y, and walks windows of W: x's rows of some windows wait whole in a ring, with the values that a
tile of W keeps of them and lists of which rows those name.  All of x comes by copies of 16 bytes whatever is kept, so
that it is read from L2 once for a tile, not once for each group of rows that share a pattern.

No other family uses them: others multiply by fragments, or have few columns, for which a lane has no outer product.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr, Value
from .node import Op, attr, bind, buffer, define, operand, region
from .numbers.outer import EACH, HIGH, LEAST, PIECE, TALL, list_words, threads
from .tile_rules import registers, same_type, shared
from .tile_store import Store
from .tile_walk import FILLS
from .types import Buffer, f32


@define("tile.walk_apart", kw_only=True)
class WalkApart(Op):
    """Runs its body turn by turn, all warps of a block at their own pace, on a ring of ``stages`` slots that they fill.

    ``first`` runs when the data of turn 0 are there.  Of each turn follow ``body``, ``fill`` for turn ``turn`` +
    ``stages`` - 1 (where that is the turn at hand) once all warps have left the slot, and ``last`` when the data of
    turn ``coming``, the next one (of the last turn itself), are there as well: operands of the next turn are loaded
    while products are under way, and no warp waits for another that is less than a turn behind.  ``fill`` copies
    asynchronously.  ``bars`` has mbarriers of slots that are full, and of those that are empty.

    Not ``tile.walk``, whose warps meet where they share a ring, nor ``tile.walk_kept``, which has warps that only copy:
    the registers of one more warp would be those of a lane's sums.
    """

    bars: Buffer = buffer(writes=True)
    turn: Value = bind()
    coming: Value = bind()
    turns: int = attr()
    stages: int = attr()
    fill: tuple[Op, ...] = region()
    first: tuple[Op, ...] = region()
    body: tuple[Op, ...] = region()
    last: tuple[Op, ...] = region()


@define("tile.copy_window", kw_only=True)
class CopyWindow(Op):
    """Starts a block's copies of a turn: ``deep`` rows of x [k, n] into the turn's slot, ``cols`` columns.

    They are rows ``turn`` * ``deep`` on, columns ``column`` on; rows from ``k`` on are left out, columns from ``n`` on
    are the first ones again.  Pieces of four columns; not ``tile.fetch``, which has a window of each warp.
    """

    ring: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    turn: Expr = operand()
    column: Expr = operand()
    stages: int = attr()
    deep: int = attr()
    cols: int = attr(least=1)
    k: int = attr()
    n: int = attr()


@define("tile.copy_run", kw_only=True)
class CopyRun(Op):
    """Starts a block's copies of a turn: the ``size`` adjacent elements that ``src`` has for a tile and a turn.

    ``src`` has ``turns`` such runs for each tile; turns beyond them are of the tiles that follow.
    """

    ring: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    tile: Expr = operand()
    turn: Expr = operand()
    stages: int = attr()
    turns: int = attr(least=1)
    size: int = attr(least=1)


@define("tile.load_entry", kw_only=True)
class LoadEntry(Op):
    """Loads what a turn's products begin with: the first piece of the lane's list into ``names``, and the operands of
    its first entry into ``held``.  The fields are those of ``tile.multiply_outer``."""

    names: Buffer = buffer(writes=True, reads=False)
    held: Buffer = buffer(writes=True, reads=False)
    values: Buffer = buffer()
    lists: Buffer = buffer()
    x: Buffer = buffer()
    turn: Expr = operand()
    stages: int = attr()
    entries: int = attr()
    deep: int = attr()
    rows: int = attr()
    cols: int = attr()
    share: int = attr()


@define("tile.multiply_outer", kw_only=True)
class MultiplyOuter(Op):
    """``acc[r, c] += value[entry, r] * x[row[entry], c]`` for the ``entries`` of a turn, in their order.

    The tile is ``rows`` x ``cols``; a warp has 32 rows of it and 8 x ``each`` columns, a lane 8 adjacent rows and
    ``each`` columns, four adjacent ones every 32.  Slots of ``values`` are entry by entry, each of all rows; those of
    ``lists`` have, for every ``share`` rows, the entries' rows of x in the slot of ``x``, up to whole pieces of four.

    An entry's operands are loaded while the one before is multiplied, ``names`` and ``held`` are those at hand:
    ``coming`` none: the entries of all pieces but the last; else those of the last, and the turn ``coming`` begins.
    """

    acc: Buffer = buffer(writes=True)
    names: Buffer = buffer(writes=True)
    held: Buffer = buffer(writes=True)
    values: Buffer = buffer()
    lists: Buffer = buffer()
    x: Buffer = buffer()
    turn: Expr = operand()
    coming: Expr | None = operand(default=None)
    stages: int = attr()
    entries: int = attr()
    deep: int = attr()
    rows: int = attr()
    cols: int = attr()
    share: int = attr()


@define("tile.store_outer", kw_only=True)
class StoreOuter(Store):
    """Stores the sums of a tile of ``rows`` x ``cols``, as ``tile.multiply_outer`` leaves them, with the epilogue.

    The tile begins at row ``row`` and column ``column``.  ``vec`` elements go at once, adjacent columns of y by rows,
    adjacent rows of one by columns.
    """

    acc: Buffer = buffer()
    row: Expr = operand()
    column: Expr = operand()
    rows: int = attr()
    cols: int = attr()
    vec: int = attr()


FILLS.add(CopyRun)


# ------------------------------------------------------------------------------------------------ what they must obey
def _tile(ctx: Context, each: int, rows: int, cols: int) -> None:
    """A lane with so many columns is one of a block that has such a tile."""
    ctx.one_of(each, EACH, "columns of a lane")
    ctx.need(rows % TALL == 0 and ctx.threads == threads(rows, cols, each),
             f"a tile of {rows} x {cols}, {HIGH} x {each} a lane, is not one of {ctx.threads} threads")  # fmt: skip


def _sums(ctx: Context, acc: Buffer, rows: int, cols: int) -> None:
    registers(ctx, acc, acc.size // HIGH * HIGH, exactly=True)
    ctx.need(acc.dtype is f32, f"sums are made in f32, not {acc.dtype}")
    _tile(ctx, acc.size // HIGH, rows, cols)


def _ring(ctx: Context, ring: Buffer, stages: int, slot: int, what: str) -> None:
    shared(ctx, ring, stages * slot, f"{stages} slots of {what}")
    ctx.need(ring.dtype.nbytes == 4 and slot % PIECE == 0, f"a slot of {slot} {ring.dtype} is no 16-byte pieces")


@check(WalkApart)
def _walk_apart(op: WalkApart, ctx: Context) -> None:
    ctx.need(op.stages >= LEAST, f"a ring of {op.stages} slots has none to fill ahead", f"take at least {LEAST}")
    ctx.need(op.turns >= 1 and op.turn.lo >= 0 and op.turn.hi == op.coming.hi == op.turns - 1,
             f"%{op.turn.name} must count {op.turns} turns from 0")  # fmt: skip
    shared(ctx, op.bars, 2 * op.stages, "the mbarriers of a ring")
    for inner in op.fill:
        ctx.need(isinstance(inner, (CopyWindow, CopyRun)), f"{inner.name} does not fill a ring")
    for inner in (*op.fill, *op.first, *op.body, *op.last):
        stages = getattr(inner, "stages", op.stages)
        ctx.need(stages == op.stages, f"{inner.name} has {stages} stages, its walk {op.stages}")


@check(CopyWindow)
def _copy_window(op: CopyWindow, ctx: Context) -> None:
    _ring(ctx, op.ring, op.stages, op.deep * op.cols, "rows of x")
    same_type(ctx, op.ring, op.src)
    ctx.need(op.src.size == op.k * op.n, f"{op.k} x {op.n} elements are not the {op.src.size} of @{op.src.name}")
    ctx.need(op.n % PIECE == 0 and op.cols % PIECE == 0, f"{op.n} columns, {op.cols} a tile, are no whole pieces")
    ctx.need(ctx.threads % (op.cols // PIECE) == 0, f"{ctx.threads} threads do not take whole rows of {op.cols}")


@check(CopyRun)
def _copy_run(op: CopyRun, ctx: Context) -> None:
    shared(ctx, op.ring, op.stages * op.size, f"{op.stages} slots of a run")
    nbytes = op.size * op.ring.dtype.nbytes
    ctx.need(nbytes % 16 == 0, f"a run of {op.size} {op.ring.dtype} is no 16-byte pieces")
    same_type(ctx, op.ring, op.src)
    run = op.turns * op.size
    ctx.need(op.src.size % run == 0, f"@{op.src.name} has {op.src.size} elements, which are no tiles of {run}")


@check(LoadEntry, MultiplyOuter)
def _entries(op: LoadEntry | MultiplyOuter, ctx: Context) -> None:
    each = op.held.size - HIGH
    _tile(ctx, each, op.rows, op.cols)
    registers(ctx, op.names, PIECE, exactly=True)
    same_type(ctx, op.names, op.lists)
    ctx.one_of(op.share, tuple(HIGH << i for i in range(3)), "rows that read one list")
    _ring(ctx, op.x, op.stages, op.deep * op.cols, "rows of x")
    _ring(ctx, op.values, op.stages, op.entries * op.rows, "values")
    _ring(ctx, op.lists, op.stages, list_words(op.entries, op.rows, op.share), "lists")
    same_type(ctx, op.held, op.values, op.x)


@check(MultiplyOuter)
def _multiply_outer(op: MultiplyOuter, ctx: Context) -> None:
    _sums(ctx, op.acc, op.rows, op.cols)
    same_type(ctx, op.acc, op.held)


@check(StoreOuter)
def _store_outer(op: StoreOuter, ctx: Context) -> None:
    _sums(ctx, op.acc, op.rows, op.cols)
    ctx.need(op.out.size == op.m * op.n, f"{op.m} x {op.n} elements are not the {op.out.size} of @{op.out.name}")
    along = op.n if op.order == "row" else op.m
    ctx.need(op.vec in (1, PIECE) and along % op.vec == 0, f"{op.vec} elements at once, of runs of {along}")
