"""The tile ops of bands of rows that have dense tiles and other entries: both go to one set of sums, in one kernel.

A *band* is ``tile`` rows of W, 16, 32 or 64, in the order in which they are stored; a *dense tile* is ``tile`` adjacent
columns of it, kept whole.  A turn multiplies a dense tile by the ``tile`` rows of x beside it, which lie one after the
other, so they need no gather.  Then the sums go to shared memory, where teams of lanes take them up, row by row, add
the row's other entries, and store to the row of y that it is.

No other family uses them: elsewhere all of a row is stored in one way.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr, Value
from .fragments import SHAPES
from .node import Op, attr, bind, buffer, define, operand, region
from .numbers.mixed import RECORD, SPAN, TILES, fits, sums_pitch, tile_words
from .numbers.strips import COLS, DEPTH, LEAST, PIECE, sums
from .tile_ragged import of_team
from .tile_rules import mma, registers, same_type, shared, whole
from .tile_walk import FILLS
from .types import Buffer, f16, f32, s32, u32, widths


@define("tile.share_bands", kw_only=True)
class ShareBands(Op):
    """Each block has one of ``count`` bands and a tile of ``cols`` columns; runs the body once.

    ``spans`` has two words for each: its ``turns`` dense tiles, ``longest`` at most, are those from number ``begin``
    on.  The columns from ``column`` on are the block's; tiles of columns are the fastest, so that blocks that run at a
    time share dense tiles.  ``first`` is ``tile`` times the band's number: that of its first row.
    """

    spans: Buffer = buffer()
    begin: Value = bind()
    turns: Value = bind()
    first: Value = bind()
    column: Value = bind()
    count: int = attr()
    tile: int = attr()
    dense: int = attr()
    longest: int = attr()
    tiles: int = attr()
    cols: int = attr()
    body: tuple[Op, ...] = region()


@define("tile.copy_band", kw_only=True)
class CopyBand(Op):
    """Starts the copies of the rows of x that dense tile ``begin`` + ``turn`` multiplies into the turn's slot.

    They are the ``tile`` rows from ``tile`` times its number of columns on, which ``columns`` says, ``cols`` columns
    from ``column`` on.  Blocks of 64 columns (or of ``cols``, if fewer) lie one behind the other, swizzled.  ``src`` is
    [k, n], n a multiple of 8; rows from ``k`` on are zeros, columns from ``n`` on the first ones again.  Lanes look up
    the tiles of 32 turns at once, one each, into ``listed``.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    columns: Buffer = buffer()
    listed: Buffer = buffer(writes=True)
    begin: Expr = operand()
    turn: Expr = operand()
    column: Expr = operand()
    stages: int = attr()
    tile: int = attr()
    cols: int = attr()
    k: int = attr()
    n: int = attr()


@define("tile.multiply_band", kw_only=True)
class MultiplyBand(Op):
    """``acc += a * b`` of a turn: the dense tile in its slot of ``values``, and its slot of ``x``, by mma ``shape``.

    ``values`` has a tile as fragments: of each 16 columns and each 16 rows the registers of a lane, lane by lane.  Of
    ``warps`` = (down, across), warp w has the rows of strip w mod down and part w // down of the ``cols`` columns.
    Accumulator (i * blocks + j) * 4 + e is element e of the fragment of rows 16 i and columns 8 j of its share.  Not
    ``tile.multiply_strips``, whose rows of x lie where a list says.
    """

    acc: Buffer = buffer(writes=True)
    values: Buffer = buffer()
    x: Buffer = buffer()
    turn: Expr = operand()
    stages: int = attr()
    tile: int = attr()
    warps: tuple[int, int] = attr()
    cols: int = attr()
    shape: str = attr()


@define("tile.put_sums", kw_only=True)
class PutSums(Op):
    """Puts the sums of a band, as ``tile.multiply_band`` has them, into shared memory row by row; the block meets."""

    dst: Buffer = buffer(writes=True, reads=False)
    acc: Buffer = buffer()
    tile: int = attr()
    warps: tuple[int, int] = attr()
    cols: int = attr()


@define("tile.each_row", kw_only=True)
class EachRow(Op):
    """Each team of ``team`` lanes runs the body for every so-many-th of the ``tile`` rows of a band.

    ``rows`` has four words for each row, those of the band from number ``first`` on: the row of y that it is (``m`` of
    one that does not exist), its ``entries`` from ``begin`` to the one before ``end``, and its ``place`` in the band.
    The next row's are on their way meanwhile.
    """

    rows: Buffer = buffer()
    row: Value = bind()
    begin: Value = bind()
    end: Value = bind()
    place: Value = bind()
    first: Expr = operand()
    tile: int = attr()
    m: int = attr()
    entries: int = attr()
    team: int = attr()
    body: tuple[Op, ...] = region()


@define("tile.take_sums", kw_only=True)
class TakeSums(Op):
    """Takes a team's sums of the row at ``place`` out of shared memory; of ``parts`` groups the first one has them, the
    others begin with zero."""

    acc: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    place: Expr = operand()
    tile: int = attr()
    cols: int = attr()
    across: int = attr()
    parts: int = attr()
    vec: int = attr()
    blocks: int = attr()


FILLS.add(CopyBand)


# ------------------------------------------------------------------------------------------------ what they must obey
def _tile(ctx: Context, tile: int, cols: int) -> None:
    ctx.one_of(tile, TILES, "rows of a band")
    ctx.one_of(cols, COLS, "columns of a block")


def _share(ctx: Context, op: MultiplyBand | PutSums) -> None:
    """The warps are the block's, and each has its part of the sums."""
    _tile(ctx, op.tile, op.cols)
    down, across = op.warps
    ctx.need(fits(op.tile, op.cols, op.warps), f"{down} x {across} warps do not share {op.tile} x {op.cols} sums")
    ctx.need(32 * down * across == ctx.threads, f"{down} x {across} warps, the block has {ctx.threads} threads")
    registers(ctx, op.acc, sums(op.tile // down, op.cols // across), exactly=True)
    ctx.need(op.acc.dtype is f32, f"sums are made in f32, not {op.acc.dtype}")


def _ring(ctx: Context, ring: Buffer, stages: int, slot: int, what: str) -> None:
    ctx.need(stages >= LEAST, f"a ring of {stages} slots has none to fill ahead")
    shared(ctx, ring, stages * slot, what)


@check(ShareBands)
def _share_bands(op: ShareBands, ctx: Context) -> None:
    _tile(ctx, op.tile, op.cols)
    ctx.need(min(op.count, op.tiles) >= 1 and 0 <= op.longest <= op.dense, f"{op.count} bands of {op.longest} tiles")
    size = (op.spans.dtype, op.spans.size)
    ctx.need(size == (s32, SPAN * op.count), f"{op.count} bands have {SPAN} s32 each, not {size[1]} x {size[0]}")
    blocks = getattr(ctx.func, "blocks", 0)
    ctx.need(blocks == op.count * op.tiles, f"{op.count} bands x {op.tiles} tiles of columns are not {blocks} blocks")
    ctx.need(op.turns.hi == op.longest, f"%{op.turns.name} ends at {op.turns.hi}, not at {op.longest}")


@check(CopyBand)
def _copy_band(op: CopyBand, ctx: Context) -> None:
    _tile(ctx, op.tile, op.cols)
    _ring(ctx, op.dst, op.stages, op.tile * op.cols, "the rows of x of all turns")
    same_type(ctx, op.dst, op.src)
    ctx.need(op.src.dtype.nbytes == 2, f"x has 16 bits, not {op.src.dtype}")
    ctx.need(op.columns.dtype is s32, f"@{op.columns.name} has numbers of tiles, s32, not {op.columns.dtype}")
    registers(ctx, op.listed, 1, exactly=True)
    same_type(ctx, op.listed, op.columns)
    whole(ctx, ctx.threads, op.cols // PIECE, f"{ctx.threads} threads do not take whole rows of {op.cols}")
    ctx.need(op.n % PIECE == 0, f"{op.n} columns are no whole pieces of {PIECE}")
    ctx.need(op.src.size == op.k * op.n, f"{op.k} x {op.n} elements are not the {op.src.size} of @{op.src.name}")


@check(MultiplyBand)
def _multiply_band(op: MultiplyBand, ctx: Context) -> None:
    _share(ctx, op)
    mma(ctx, op.shape, op.acc)
    s = SHAPES[op.shape]
    ctx.need((s.m, s.k) == (16, DEPTH) and s.a.dtype is op.x.dtype, f"{op.shape} is no mma of {DEPTH} {op.x.dtype}")
    _ring(ctx, op.x, op.stages, op.tile * op.cols, "the rows of x of all turns")
    _ring(ctx, op.values, op.stages, tile_words(op.tile), "the dense tiles of all turns")
    ctx.need(op.values.dtype is u32, f"@{op.values.name} has words, not {op.values.dtype}")


@check(PutSums)
def _put_sums(op: PutSums, ctx: Context) -> None:
    _share(ctx, op)
    shared(ctx, op.dst, op.tile * sums_pitch(op.cols), "the sums of a band")
    same_type(ctx, op.dst, op.acc)


@check(EachRow)
def _each_row(op: EachRow, ctx: Context) -> None:
    of_team(ctx, op.team)
    ctx.one_of(op.tile, TILES, "rows of a band")
    teams = ctx.threads // op.team
    whole(ctx, op.tile, teams, f"{teams} teams do not share {op.tile} rows")
    each = RECORD * op.tile
    ctx.need(op.rows.dtype is s32 and op.rows.size % each == 0, f"@{op.rows.name} has no whole bands of {each} s32")


@check(TakeSums)
def _take_sums(op: TakeSums, ctx: Context) -> None:
    _tile(ctx, op.tile, op.cols)
    of_team(ctx, op.across, op.parts)
    ctx.one_of(op.vec, widths(f16), "columns of a lane side by side")
    ctx.need(op.across * op.blocks * op.vec == op.cols, f"{op.across} lanes do not have {op.cols} columns")
    registers(ctx, op.acc, op.blocks * op.vec, exactly=True)
    shared(ctx, op.src, op.tile * sums_pitch(op.cols), "the sums of a band")
    same_type(ctx, op.acc, op.src)
