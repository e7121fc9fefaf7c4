"""The tile ops of products of strips: warps that share a tile of x, each with rows of W and kept columns of its own.

A *strip* is 16, 32 or 64 rows of W, those of a warp.  A turn is some whole windows of W: the rows of x that any strip
of the block keeps there come once, each to its place in a swizzled tile of shared memory, and every warp finds its own
among them by ``ldmatrix``, whose lanes give an address a row.  So the gather costs no instruction, and x comes once
for all strips of a block, however different their columns.

No other family uses them: those of ``nm_gather`` feed warpgroups, whose rows must lie one after the other.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr, Value
from .fragments import SHAPES
from .node import Op, attr, base, bind, buffer, define, operand, region
from .numbers.strips import BANKS, COLS, DEPTH, LEAST, MOST_ROWS, PIECE, STRIPS, passes, sums
from .tile_rules import mma, registers, same_type, shared, whole
from .tile_walk import FILLS, READS
from .types import Buffer, u16, u32


@define("tile.each_block", kw_only=True)
class EachBlock(Op):
    """Runs its body in each block, ``block`` its number: tiles are told from turns, which go on from tile to tile.

    Not ``tile.for_tiles``, in which a walk ends with its tile.
    """

    block: Value = bind()
    body: tuple[Op, ...] = region()


@define("tile.copy_strips", kw_only=True)
class CopyStrips(Op):
    """Starts the copies of a turn of a tile of W into slot ``slot``.

    Of each of ``down`` strips the values, ``depth`` columns as mma fragments (words of two), to ``values``, and where
    the rows of x of these columns lie in the slot, 16 bits each, to ``places``: as they lie in memory, turn by turn of
    ``steps`` a tile.
    """

    values: Buffer = buffer(writes=True, reads=False)
    places: Buffer = buffer(writes=True, reads=False)
    values_src: Buffer = buffer()
    places_src: Buffer = buffer()
    tile: Expr = operand()
    step: Expr = operand()
    slot: Expr = operand()
    steps: int = attr()
    stages: int = attr()
    strip: int = attr()
    down: int = attr()
    depth: int = attr()


@define("tile.gather_window", kw_only=True)
class GatherWindow(Op):
    """Starts the copies of the rows of x that a tile of W keeps in a turn, ``cols`` columns from ``column`` on.

    Row i of the slot is the row of x that the turn's list names i-th of ``rows``.  The list of the turn after is loaded
    into ``listed`` meanwhile.  Blocks of 64 columns (or of ``cols``, if fewer) lie one
    behind the other, each ``rows`` rows, swizzled.  ``src`` is [k, n], n a multiple of 8; columns from ``n`` on are the
    first ones again.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    lists: Buffer = buffer()
    listed: Buffer = buffer(writes=True)
    turn: Expr = operand()
    tile: Expr = operand()
    step: Expr = operand()
    column: Expr = operand()
    slot: Expr = operand()
    steps: int = attr()
    stages: int = attr()
    rows: int = attr()
    cols: int = attr()
    k: int = attr()
    n: int = attr()


@base
class OfStrips(Op):
    """Base of ops of a warp's share of a turn: in slot ``slot`` of ``stages`` its strip's ``values`` and ``places``,
    and ``rows`` rows of ``x``.

    Of ``warps`` = (down, across), warp w has strip w mod down, of ``strip`` rows and ``depth`` kept columns, and part
    w // down of the ``cols`` columns.  ``there``: whether there is such a turn.
    """

    values: Buffer = buffer()
    places: Buffer = buffer()
    x: Buffer = buffer()
    there: Expr = operand()
    slot: Expr = operand()
    stages: int = attr()
    strip: int = attr()
    warps: tuple[int, int] = attr()
    depth: int = attr()
    rows: int = attr()
    cols: int = attr()


@define("tile.take_strips", kw_only=True)
class TakeStrips(OfStrips):
    """Reads what a warp's first products of a turn need: its places to ``own``, first fragments to ``a`` and ``b``.

    ``own`` has a register for each 16 columns (lane l: that of row l mod 16); ``a`` and ``b`` have room for two: of one
    the tensor core multiplies, the other is being read.
    """

    own: Buffer = buffer(writes=True, reads=False)
    a: Buffer = buffer(writes=True, reads=False)
    b: Buffer = buffer(writes=True, reads=False)


@define("tile.multiply_strips", kw_only=True)
class MultiplyStrips(OfStrips):
    """``acc += a * b`` of a turn: a warp's strip of values, and the rows of x at its places, by mma ``shape``.

    Accumulator (i * blocks + j) * 4 + e is element e of the fragment of rows 16 i and columns 8 j of the strip and the
    part.  Not ``tile.product``, whose second operand is a constant, and whose first lies where a layout says, not a
    list.
    """

    acc: Buffer = buffer(writes=True)
    own: Buffer = buffer()
    a: Buffer = buffer(writes=True)
    b: Buffer = buffer(writes=True)
    shape: str = attr()


@define("tile.finish_tile", kw_only=True)
class FinishTile(Op):
    """After a tile's last turn (``last``): runs the body, which takes the sums ``acc``; the next tile's are zero."""

    acc: Buffer = buffer(writes=True)
    last: Expr = operand()
    body: tuple[Op, ...] = region()


FILLS.update((CopyStrips, GatherWindow))
READS.add(TakeStrips)


# ------------------------------------------------------------------------------------------------ what they must obey
def _values(ctx: Context, ring: Buffer, op: CopyStrips | TakeStrips | MultiplyStrips, down: int) -> None:
    """The ring has room for the values of ``stages`` turns."""
    ctx.one_of(op.strip, STRIPS, "rows of a strip")
    ctx.need(op.stages >= LEAST, f"a ring of {op.stages} slots has none to fill ahead")
    whole(ctx, op.depth, DEPTH, f"{op.depth} kept columns are no whole number of {DEPTH}")
    shared(ctx, ring, op.stages * down * op.strip * op.depth // 2, "the values of all turns")


def _window(ctx: Context, ring: Buffer, op: GatherWindow | TakeStrips | MultiplyStrips) -> None:
    """The ring has room for the rows of x of ``stages`` turns."""
    ctx.one_of(op.cols, COLS, "columns of a block")
    ctx.need(op.stages >= LEAST, f"a ring of {op.stages} slots has none to fill ahead")
    whole(ctx, op.rows, BANKS, f"{op.rows} rows of x are no whole number of {BANKS}")
    shared(ctx, ring, op.stages * op.rows * op.cols, "the rows of x of all turns")


def _lists(ctx: Context, buf: Buffer, each: int, steps: int, what: str) -> None:
    whole(ctx, buf.size, each * steps, f"@{buf.name} has no whole {what} of {steps} x {each}")


@check(EachBlock)
def _each_block(op: EachBlock, ctx: Context) -> None:
    blocks = getattr(ctx.func, "blocks", 0)
    ctx.need((op.block.lo, op.block.hi) == (0, blocks - 1), f"%{op.block.name} must count {blocks} blocks from 0")


@check(CopyStrips)
def _copy_strips(op: CopyStrips, ctx: Context) -> None:
    _values(ctx, op.values, op, op.down)
    same_type(ctx, op.values, op.values_src)
    same_type(ctx, op.places, op.places_src)
    ctx.need((op.values.dtype, op.places.dtype) == (u32, u16), "values are words, places have 16 bits")
    shared(ctx, op.places, op.stages * op.down * op.depth, "the places of all turns")
    _lists(ctx, op.values_src, op.down * op.strip * op.depth // 2, op.steps, "tiles of values")
    _lists(ctx, op.places_src, op.down * op.depth, op.steps, "tiles of places")


@check(GatherWindow)
def _gather_window(op: GatherWindow, ctx: Context) -> None:
    _window(ctx, op.dst, op)
    same_type(ctx, op.dst, op.src)
    ctx.need(isinstance(op.turn, Value), f"{op.turn} is no value of a walk, of which lists are loaded ahead")
    each = passes(op.cols, ctx.threads, op.rows)
    ctx.need(each <= MOST_ROWS, f"a thread copies pieces of {each} rows of x, {MOST_ROWS} at most", "take more warps")
    registers(ctx, op.listed, each, exactly=True)
    _lists(ctx, op.lists, op.rows, op.steps, "lists")
    ctx.need(op.n % PIECE == 0, f"{op.n} columns are no whole pieces of {PIECE}")
    ctx.need(op.src.size == op.k * op.n, f"{op.k} x {op.n} elements are not the {op.src.size} of @{op.src.name}")


@check(TakeStrips, MultiplyStrips)
def _of_a_warp(op: TakeStrips | MultiplyStrips, ctx: Context) -> None:
    down, across = op.warps
    ctx.need(32 * down * across == ctx.threads, f"{down} x {across} warps, the block has {ctx.threads} threads")
    whole(ctx, op.cols, DEPTH * across, f"{op.cols} columns are no whole fragments of {across} warps")
    _values(ctx, op.values, op, down)
    _window(ctx, op.x, op)
    shared(ctx, op.places, op.stages * down * op.depth, "the places of all turns")
    for buf, size in ((op.own, op.depth // DEPTH), (op.a, op.strip // 2), (op.b, 8)):
        registers(ctx, buf, size, exactly=True)


@check(MultiplyStrips)
def _multiply_strips(op: MultiplyStrips, ctx: Context) -> None:
    mma(ctx, op.shape, op.acc)
    s = SHAPES[op.shape]
    ctx.need((s.m, s.k) == (16, DEPTH) and s.a.dtype is op.x.dtype, f"{op.shape} is no mma of {DEPTH} {op.x.dtype}")
    registers(ctx, op.acc, sums(op.strip, op.cols // op.warps[1]), exactly=True)


@check(FinishTile)
def _finish_tile(op: FinishTile, ctx: Context) -> None:
    registers(ctx, op.acc, 1)
    ctx.condition(op.last, "whether a tile ends")
