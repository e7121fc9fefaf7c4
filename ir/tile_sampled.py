"""The tile ops of sampled products: a warp has 8 rows of a in registers and multiplies them by gathered columns of b.

Columns of b are rows of a strip that stays in shared memory; ``ldmatrix`` takes any 16 of them as they lie, as rows of
the mma's first operand, and the 8 rows of a are its second.  Where the pattern's vectors have fewer than 8 rows, some
vector rows share a task: every column is multiplied by all 8 rows, and those of its own vector row are stored.

No other family uses them: attention goes on with its scores in registers, all others multiply by rows of W.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr, Value, as_expr
from .node import Op, attr, base, bind, buffer, declare, define, operand, region
from .numbers.sampled import CHUNK, GROUP, TILE, bits_of, chunks, entry_type, own, sums
from .op_sddmm import DTYPES, HEIGHTS
from .tile_rules import batched, registers, same_type, shared
from .tile_tasks import RECORD
from .types import Buffer, DType, s32, u32


@define("tile.first_task", kw_only=True)
class FirstTask(Op):
    """Runs the body in each warp that has a task in list number ``list``: ``row`` is the row of its first one.

    ``tasks``, ``length`` and ``rows`` are those of ``tile.each_task``, which comes after it.
    """

    tasks: Buffer = buffer()
    row: Value = bind()
    list: Expr = operand()
    length: int = attr(least=1)
    rows: int = attr()
    body: tuple[Op, ...] = region()


@base
class OfRows(Op):
    """Base of ops of the buffers of warps, 8 rows of a: ``slices`` x ``width`` bytes each, ``nbytes`` of them used."""

    width: int = attr()
    slices: int = attr()
    nbytes: int = attr()


@define("tile.fetch_rows", kw_only=True)
class FetchRows(OfRows):
    """Starts the copies of the 8 rows of group ``row`` of ``src`` [m, n] from ``column`` on to the warp's ``buffers``.

    ``row`` may be one beyond the last group: then there is nothing to copy.  Rows beyond the matrix are zeros.  It is
    matrix ``which`` of a batch.  ``alone``: they are a group of copies of their own; else what comes next closes it.
    """

    buffers: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    row: Expr = operand()
    column: int = attr()
    m: int = attr()
    n: int = attr()
    alone: bool = attr(default=True)
    which: Expr = operand(default=as_expr(0))


@define("tile.take_rows", kw_only=True)
class TakeRows(OfRows):
    """Takes a warp's rows to registers, as an mma's second operand, digit by digit, once its copies have come.

    ``waits``: for these; else what runs before has waited.

    ``dtype`` s8: as they are; s4: the low and the high digits of each two registers, times 16; s16: the low and the
    high bytes.  ``again``: afterwards the buffer may be filled again.
    """

    own: Buffer = buffer(writes=True, reads=False)
    buffers: Buffer = buffer()
    dtype: DType = attr()
    waits: bool = attr(default=True)
    again: bool = attr(default=True)


@define("tile.clear_rest", kw_only=True)
class ClearRest(OfRows):
    """Writes zeros to what of the buffers no copy writes and a product reads, from byte ``copied`` of a row on."""

    buffers: Buffer = buffer(writes=True, reads=False)
    dtype: DType = attr()
    copied: int = attr()


@define("tile.each_tile", kw_only=True)
class EachTile(Op):
    """Runs the body for each 16 vectors of a task, whose ``entries`` are those from ``begin`` to before ``end``.

    ``entry`` has the lane's entry (of vector lane mod 16), and that of the next tile, which is loaded meanwhile: the
    column in the strip, the vector's place among those of its vector row there, and which vector row of the group; an
    entry without a vector has a place or a vector row beyond them (``no_vector`` of the numbers).
    ``starts`` [vector rows, strips] has the first vector in strip ``strip`` of each vector row, also those of group
    ``row``.  ``place``: which vectors of the result the lane has two rows of, of the 8 first and the 8 last of a tile;
    one beyond the last of the batch where it has none; result ``which`` of it has ``vectors`` of them.  ``first`` runs
    once, when the first loads are under way.
    """

    entry: Buffer = declare()
    place: Buffer = declare()
    entries: Buffer = buffer()
    starts: Buffer = buffer()
    begin: Expr = operand()
    end: Expr = operand()
    row: Expr = operand()
    strip: Expr = operand()
    strips: int = attr(least=1)
    rows: int = attr()
    height: int = attr()
    vectors: int = attr()
    which: Expr = operand(default=as_expr(0))
    first: tuple[Op, ...] = region()
    body: tuple[Op, ...] = region()


@base
class OfSums(OfRows):
    """Base of ops that multiply 16 columns of b, rows of a tile, by a warp's 8 rows of a: ``acc = own * columns``.

    ``dtype`` s16 makes three sums, of the digits' products; the others two, of chunks of k turn about.
    """

    acc: Buffer = buffer(writes=True)
    own: Buffer = buffer()
    dtype: DType = attr()


@define("tile.multiply_tile", kw_only=True)
class MultiplyTile(OfSums):
    """Multiplies the 16 rows of a ``strip`` of ``rows`` that ``entry`` names."""

    strip: Buffer = buffer()
    entry: Buffer = buffer()
    rows: int = attr()


@base
class OfPlaces(Op):
    """Base of ops of a tile's vectors ``place`` of the result ``out``.

    It has blocks of ``stride`` vectors, row by row, or vector by vector (0).  ``old``: what is there of two rows of the
    8 first and of the 8 last vectors, as another launch has left it.
    """

    place: Buffer = buffer()
    height: int = attr()
    stride: int = attr()


@define("tile.load_sampled", kw_only=True)
class LoadSampled(OfPlaces):
    """Loads what is there, so that it has come when a tile's sums are done."""

    old: Buffer = declare()
    out: Buffer = buffer()


@define("tile.store_sampled", kw_only=True)
class StoreSampled(OfPlaces):
    """Stores a tile's sums, added to what was there, if that is given."""

    out: Buffer = buffer(writes=True, reads=False)
    acc: Buffer = buffer()
    old: Buffer | None = buffer(default=None)
    dtype: DType = attr()


@define("tile.fill_up", kw_only=True)
class FillUp(Op):
    """Writes zeros to the vectors that fill vector rows up to whole blocks of ``stride``, behind their ends in ``ptr``.

    All warps of ``blocks`` blocks share those of result ``which`` of a batch; ``block`` is the block's number.
    """

    out: Buffer = buffer(writes=True, reads=False)
    ptr: Buffer = buffer()
    block: Expr = operand()
    blocks: int = attr()
    height: int = attr()
    stride: int = attr()
    which: Expr = operand(default=as_expr(0))


# ------------------------------------------------------------------------------------------------ what they must obey
def _buffers(ctx: Context, op: FetchRows | TakeRows | ClearRest) -> None:
    item = op.buffers.dtype.nbytes
    ctx.one_of(op.width, (32, 64, 128), "bytes of a slice's row")
    ctx.need(1 <= op.nbytes <= op.slices * op.width, f"{op.nbytes} bytes are not in {op.slices} x {op.width}")
    shared(ctx, op.buffers, ctx.warps() * GROUP * op.slices * op.width // item, "the warps' rows of a")


@check(FirstTask)
def _first_task(op: FirstTask, ctx: Context) -> None:
    each = op.length * ctx.warps() * RECORD
    ctx.need(op.tasks.dtype is s32, f"records are s32, not {op.tasks.dtype}")
    ctx.need(op.tasks.size % each == 0, f"@{op.tasks.name} has no whole lists of {op.length} tasks")


@check(FetchRows)
def _fetch_rows(op: FetchRows, ctx: Context) -> None:
    _buffers(ctx, op)
    same_type(ctx, op.buffers, op.src)
    item = op.src.dtype.nbytes
    ctx.need(op.n * item % 16 == 0 and op.column * item % 16 == 0, f"rows of {op.n} are no whole pieces of 16 bytes")
    batched(ctx, op.src, op.which, op.m, op.n)
    ctx.need(0 <= op.column < op.n, f"column {op.column} of {op.n}")


@check(TakeRows)
def _take_rows(op: TakeRows, ctx: Context) -> None:
    _buffers(ctx, op)
    ctx.one_of(op.dtype, DTYPES, "type of a and b")
    registers(ctx, op.own, own(op.slices * op.width, op.dtype.bits), exactly=True)
    ctx.need(op.own.dtype is u32, f"@{op.own.name} has words, not {op.own.dtype}")


@check(ClearRest)
def _clear_rest(op: ClearRest, ctx: Context) -> None:
    _buffers(ctx, op)
    ctx.need(0 < op.copied and op.copied % 16 == 0, f"{op.copied} bytes are no whole pieces")


@check(EachTile)
def _each_tile(op: EachTile, ctx: Context) -> None:
    registers(ctx, op.entry, 2, exactly=True)
    registers(ctx, op.place, 2, exactly=True)
    ctx.one_of(op.height, HEIGHTS, "rows of a vector")
    wide = entry_type(op.rows, op.height)
    ctx.need((op.entries.dtype, op.starts.dtype) == (wide, s32), f"entries are {wide} here, starts s32")
    ctx.need((op.entry.dtype, op.place.dtype) == (u32, s32), "an entry is a word, a place s32")
    ctx.need(op.entries.size % TILE == 0, f"@{op.entries.name} has no whole tiles of {TILE}")
    ctx.need(op.starts.size % (GROUP // op.height * op.strips) == 0, f"@{op.starts.name} has no whole groups")


def of_sums(ctx: Context, op: OfSums) -> None:
    """The registers of products are those of the type."""
    ctx.one_of(op.dtype, DTYPES, "type of a and b")
    registers(ctx, op.acc, sums(op.dtype.bits), exactly=True)
    registers(ctx, op.own, own(op.slices * op.width, op.dtype.bits), exactly=True)
    ctx.need(op.acc.dtype is s32, f"sums are s32, not {op.acc.dtype}")
    ctx.need(chunks(op.nbytes, op.dtype.bits) * CHUNK <= op.slices * op.width, f"{op.nbytes} bytes do not fit")


@check(MultiplyTile)
def _multiply_tile(op: MultiplyTile, ctx: Context) -> None:
    of_sums(ctx, op)
    registers(ctx, op.entry, 2, exactly=True)
    ctx.need(op.rows == 1 << bits_of(op.rows), f"{op.rows} rows of a strip are no power of two")
    shared(ctx, op.strip, op.rows * op.slices * op.width // op.strip.dtype.nbytes, "the rows of a strip")


@check(LoadSampled, StoreSampled)
def _of_places(op: LoadSampled | StoreSampled, ctx: Context) -> None:
    ctx.one_of(op.height, HEIGHTS, "rows of a vector")
    registers(ctx, op.place, 2, exactly=True)
    ctx.need(op.out.dtype is s32, f"sums are s32, not {op.out.dtype}")
    ctx.need(op.out.size % (op.height * max(1, op.stride)) == 0, f"@{op.out.name} has no whole vectors")
    if op.old is not None:
        registers(ctx, op.old, 4, exactly=True)
        same_type(ctx, op.out, op.old)


@check(StoreSampled)
def _store_sampled(op: StoreSampled, ctx: Context) -> None:
    ctx.one_of(op.dtype, DTYPES, "type of a and b")
    registers(ctx, op.acc, sums(op.dtype.bits), exactly=True)
    same_type(ctx, op.out, op.acc)


@check(FillUp)
def _fill_up(op: FillUp, ctx: Context) -> None:
    ctx.one_of(op.height, HEIGHTS, "rows of a vector")
    ctx.need(op.out.dtype is s32 and op.ptr.dtype is s32, "sums and pointers are s32")
    ctx.need(op.stride >= 1 and op.out.size % (op.height * op.stride) == 0, f"@{op.out.name} has no whole blocks")
    ctx.need(op.ptr.size % 2 == 0, f"@{op.ptr.name} has no pairs")
