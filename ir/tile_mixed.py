"""The tile ops of bands of rows that have dense tiles and other entries: both go to one set of sums, in one kernel.

A *dense tile* is ``tile`` x ``tile`` elements of W that are kept whole, 16, 32 or 64; a *band* is ``rows`` rows in the
order in which they are stored, as high as one, two or four tiles.  A turn multiplies ``tile`` adjacent columns of it,
of which one tile is dense at least (others are zeros), by the ``tile`` rows of x beside them: these lie one after the
other, so they need no gather, and come once for all tiles of the band.  Then the sums go to shared memory, where teams
of lanes take them up, row by row, add the row's other entries, and store to the row of y that it is.  The entries of a
long row are cut into *pieces*, which teams add up before: their sums are in shared memory too, side by side.

No other family uses them: elsewhere all of a row is stored in one way.
"""

from __future__ import annotations

from math import prod

from .checks import Context, check
from .expr import Expr, Value
from .fragments import SHAPES
from .node import Op, attr, base, bind, buffer, define, operand, region
from .numbers.mixed import PIECE, RECORD, ROWS, SPAN, TILES, fits, sums_pitch, tile_words
from .numbers.strips import COLS, DEPTH, LEAST, sums
from .tile_ragged import of_team
from .tile_rules import mma, registers, same_type, shared, whole
from .tile_walk import FILLS
from .types import Buffer, f16, f32, s32, tf32, u32, widths


@define("tile.share_bands", kw_only=True)
class ShareBands(Op):
    """Each block has one of ``count`` bands and a tile of ``cols`` columns; runs the body once.

    ``spans`` has two words for each: its ``turns``, ``longest`` at most, are those from number ``begin`` on, of
    ``dense`` in all.  The columns from ``column`` on are the block's; tiles of columns are the fastest, so that blocks
    that run at a time share dense tiles.  ``first`` is ``rows`` times the band's number: that of its first row.
    """

    spans: Buffer = buffer()
    begin: Value = bind()
    turns: Value = bind()
    first: Value = bind()
    column: Value = bind()
    count: int = attr()
    rows: int = attr()
    dense: int = attr()
    longest: int = attr()
    tiles: int = attr()
    cols: int = attr()
    body: tuple[Op, ...] = region()


@define("tile.copy_band", kw_only=True)
class CopyBand(Op):
    """Starts the copies of the rows of x that turn ``begin`` + ``turn`` multiplies into its slot.

    They are the ``tile`` rows from ``tile`` times the number on that ``columns`` has for it, ``cols`` columns from
    ``column`` on.  Blocks of 128 bytes (or of ``cols``, if fewer) lie one behind the other, swizzled.  ``src`` is [k,
    n], of 16 or 32 bits, its rows whole pieces of 16 bytes; rows from ``k`` on are zeros, columns from ``n`` on the
    first ones again.  Lanes look up the numbers of 32 turns at once, one each, into ``listed``.  ``blanks``: whether
    the number behind W's last columns may be among them, for turns without a tile: all their rows are zeros.
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
    blanks: bool = attr(default=False)


@base
class OfBand(Op):
    """What warps do with the sums of a band, ``rows`` x ``cols``; ``warps``: (down, across, slices) of them."""

    rows: int = attr()
    warps: tuple[int, int, int] = attr()
    cols: int = attr()


@base
class OfTurn(OfBand):
    """What they do in a turn, with its slots of ``values``, dense tiles of ``tile`` columns, and of ``x``."""

    values: Buffer = buffer()
    x: Buffer = buffer()
    turn: Expr = operand()
    stages: int = attr()
    tile: int = attr()


@define("tile.multiply_band", kw_only=True)
class MultiplyBand(OfTurn):
    """``acc += a * b`` of a turn: the dense tiles in its slot of ``values``, and its slot of ``x``, by mma ``shape``.

    ``values`` has them as fragments: of each 16 columns and each 16 rows the registers of a lane, lane by lane.  Of
    f32, of each 8 columns, the even ones first.  f32 is multiplied in tf32, either rounded to it (``values`` come
    rounded, x is here), or ``split``: each number is one of tf32 and what that leaves, and three of the four products
    of these parts are added up, as the fourth is less than f32 keeps; a turn has sums of its own then.  Of ``warps`` =
    (down, across, slices), warp w has the rows of strip w mod down, part w // down mod across of the ``cols`` columns,
    and slice w // (down * across) of the turn's k, or, where there are more slices than products along that, of so many
    turns.  Slices are as many sets of sums, which nothing has added up yet.
    Accumulator (i * blocks + j) * 4 + e is element e of the fragment of rows 16 i and columns 8 j of its share.  Not
    ``tile.multiply_strips``, whose rows of x lie where a list says.
    """

    acc: Buffer = buffer(writes=True)
    shape: str = attr()
    split: bool = attr(default=False)


@define("tile.put_sums", kw_only=True)
class PutSums(OfBand):
    """Puts the sums of a band, as ``tile.multiply_band`` has them, into shared memory row by row, those of each slice
    of k behind the ones before."""

    dst: Buffer = buffer(writes=True, reads=False)
    acc: Buffer = buffer()


@define("tile.each_row", kw_only=True)
class EachRow(Op):
    """Each team of ``team`` lanes runs the body for every so-many-th of ``rows`` rows of a band, or pieces of them.

    ``records`` has four words for each row, those of the band from number ``first`` on: the row of y that it is (``m``
    of one that does not exist), its ``entries`` from ``begin`` to the one before ``end``, and its ``place`` in the
    band.  The next row's are on their way meanwhile, those of the first one while ``ahead`` runs.
    """

    records: Buffer = buffer()
    row: Value = bind()
    begin: Value = bind()
    end: Value = bind()
    place: Value = bind()
    first: Expr = operand()
    rows: int = attr(least=1)
    m: int = attr()
    entries: int = attr()
    team: int = attr()
    ahead: tuple[Op, ...] = region()
    body: tuple[Op, ...] = region()


@base
class OfTeam(Op):
    """What a team does with its sums of a row, of which shared memory has ``rows`` of ``cols``: ``across`` lanes side
    by side, in ``parts`` groups that share the row's entries, each with ``blocks`` times ``vec`` columns."""

    rows: int = attr()
    cols: int = attr()
    across: int = attr()
    parts: int = attr()
    vec: int = attr()
    blocks: int = attr()


@define("tile.take_sums", kw_only=True)
class TakeSums(OfTeam):
    """Takes a team's sums of the row at ``place`` out of shared memory, those of all ``slices`` of k added up in their
    order; of ``parts`` groups the first one has them, the others begin with zero."""

    acc: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    place: Expr = operand()
    slices: int = attr(default=1)


@define("tile.put_row", kw_only=True)
class PutRow(OfTeam):
    """Puts a team's sums into row ``place`` of ``rows`` in shared memory; one of ``parts`` groups does, all have them.

    The inverse of ``tile.take_sums``; ``tile.put_sums`` has them as mma has them.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    acc: Buffer = buffer()
    place: Expr = operand()


@define("tile.add_rows", kw_only=True)
class AddRows(OfTeam):
    """Adds ``count`` rows of shared memory to a team's sums, from row ``first`` of ``rows`` on, one after the other; of
    ``parts`` groups the first one does."""

    acc: Buffer = buffer(writes=True)
    src: Buffer = buffer()
    first: Expr = operand()
    count: Expr = operand()


FILLS.add(CopyBand)


# ------------------------------------------------------------------------------------------------ what they must obey
def _block(ctx: Context, rows: int, cols: int) -> None:
    ctx.one_of(rows, ROWS, "rows of a band")
    ctx.one_of(cols, COLS, "columns of a block")


def _share(ctx: Context, op: MultiplyBand | PutSums) -> None:
    """The warps are the block's, and each has its part of the sums."""
    _block(ctx, op.rows, op.cols)
    down, across, _ = op.warps
    share = " x ".join(map(str, op.warps))
    ctx.need(fits(op.rows, op.cols, op.warps), f"{share} warps do not share {op.rows} x {op.cols} sums")
    ctx.need(32 * prod(op.warps) == ctx.threads, f"{share} warps, the block has {ctx.threads} threads")
    registers(ctx, op.acc, sums(op.rows // down, op.cols // across), exactly=True)
    ctx.need(op.acc.dtype is f32, f"sums are made in f32, not {op.acc.dtype}")


def _ring(ctx: Context, ring: Buffer, stages: int, slot: int, what: str) -> None:
    ctx.need(stages >= LEAST, f"a ring of {stages} slots has none to fill ahead")
    shared(ctx, ring, stages * slot, what)


@check(ShareBands)
def _share_bands(op: ShareBands, ctx: Context) -> None:
    _block(ctx, op.rows, op.cols)
    ctx.need(min(op.count, op.tiles) >= 1 and 0 <= op.longest <= op.dense, f"{op.count} bands of {op.longest} tiles")
    size = (op.spans.dtype, op.spans.size)
    ctx.need(size == (s32, SPAN * op.count), f"{op.count} bands have {SPAN} s32 each, not {size[1]} x {size[0]}")
    blocks = getattr(ctx.func, "blocks", 0)
    ctx.need(blocks == op.count * op.tiles, f"{op.count} bands x {op.tiles} tiles of columns are not {blocks} blocks")
    ctx.need(op.turns.hi == op.longest, f"%{op.turns.name} ends at {op.turns.hi}, not at {op.longest}")


@check(CopyBand)
def _copy_band(op: CopyBand, ctx: Context) -> None:
    ctx.one_of(op.tile, TILES, "columns of a dense tile")
    ctx.one_of(op.cols, COLS, "columns of a block")
    _ring(ctx, op.dst, op.stages, op.tile * op.cols, "the rows of x of all turns")
    same_type(ctx, op.dst, op.src)
    item = op.src.dtype.nbytes
    ctx.need(item in (2, 4), f"x has 16 or 32 bits, not {op.src.dtype}")
    ctx.need(op.columns.dtype is s32, f"@{op.columns.name} has numbers of tiles, s32, not {op.columns.dtype}")
    registers(ctx, op.listed, 1, exactly=True)
    same_type(ctx, op.listed, op.columns)
    piece = PIECE // item
    whole(ctx, ctx.threads, op.cols // piece, f"{ctx.threads} threads do not take whole rows of {op.cols}")
    ctx.need(op.n % piece == 0, f"{op.n} columns are no whole pieces of {piece}")
    ctx.need(op.src.size == op.k * op.n, f"{op.k} x {op.n} elements are not the {op.src.size} of @{op.src.name}")


@check(MultiplyBand)
def _multiply_band(op: MultiplyBand, ctx: Context) -> None:
    _share(ctx, op)
    ctx.one_of(op.tile, TILES, "columns of a dense tile")
    mma(ctx, op.shape, op.acc)
    s = SHAPES[op.shape]
    kind, deep, words = (tf32, DEPTH // 2, f32) if op.x.dtype is f32 else (op.x.dtype, DEPTH, u32)
    ctx.need((s.m, s.k) == (16, deep) and s.a.dtype is kind, f"{op.shape} is no mma of {deep} {kind}")
    _ring(ctx, op.x, op.stages, op.tile * op.cols, "the rows of x of all turns")
    _ring(ctx, op.values, op.stages, tile_words(op.rows, op.tile, op.x.dtype.nbytes), "the dense tiles of all turns")
    ctx.need(op.values.dtype is words, f"@{op.values.name} has {words}, not {op.values.dtype}")
    ctx.need(op.x.dtype is f32 or not op.split, f"only f32 is split, not {op.x.dtype}")


@check(PutSums)
def _put_sums(op: PutSums, ctx: Context) -> None:
    _share(ctx, op)
    shared(ctx, op.dst, op.warps[-1] * op.rows * sums_pitch(op.cols), "the sums of a band")
    same_type(ctx, op.dst, op.acc)


@check(EachRow)
def _each_row(op: EachRow, ctx: Context) -> None:
    of_team(ctx, op.team)
    teams = ctx.threads // op.team
    whole(ctx, op.rows, teams, f"{teams} teams do not share {op.rows} rows")
    each, records = RECORD * op.rows, op.records
    ctx.need(records.dtype is s32 and records.size % each == 0, f"@{records.name} has no whole bands of {each} s32")


@check(TakeSums)
def _take_sums(op: TakeSums, ctx: Context) -> None:
    ctx.one_of(op.rows, ROWS, "rows of a band")
    ctx.need(op.slices >= 1, f"{op.slices} slices of k")
    _sums_of_team(ctx, op, op.src, "the sums of a band", op.slices)


@check(PutRow)
def _put_row(op: PutRow, ctx: Context) -> None:
    _sums_of_team(ctx, op, op.dst, "the sums of pieces")
    ctx.need(op.place.hi < op.rows, f"row {op.place.hi} is none of {op.rows}")


@check(AddRows)
def _add_rows(op: AddRows, ctx: Context) -> None:
    _sums_of_team(ctx, op, op.src, "the sums of pieces")


def _sums_of_team(ctx: Context, op: TakeSums | PutRow | AddRows, rows: Buffer, meaning: str, sets: int = 1) -> None:
    """A team's lanes have all columns of the rows in shared memory, of which there are so many sets."""
    of_team(ctx, op.across, op.parts)
    ctx.one_of(op.vec, widths(f16), "columns of a lane side by side")
    ctx.need(op.across * op.blocks * op.vec == op.cols, f"{op.across} lanes do not have {op.cols} columns")
    registers(ctx, op.acc, op.blocks * op.vec, exactly=True)
    shared(ctx, rows, sets * op.rows * sums_pitch(op.cols), meaning)
    same_type(ctx, op.acc, rows)
