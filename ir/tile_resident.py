"""The tile ops of strips that stay: rows of a matrix come to shared memory once, and all of a block's work reads them.

Rows of a strip are 32, 64 or 128 bytes wide and swizzled by their width, so that lanes that read 16 bytes each of eight
rows whose numbers differ modulo 8 meet in no bank; several such *slices* lie one behind the other.  Where lanes read
whole rows, as ``tile.gather_resident`` does, nothing needs to be swizzled.

Only kernels whose warps go ways of their own use them: where all walk in step, a ring holds what a turn needs.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr
from .node import Op, attr, buffer, define, operand
from .numbers.resident import ALIGN, PIECE, ROWS, WIDTHS
from .tile_ragged import of_team
from .tile_rules import registers, same_type, shared, whole
from .types import Buffer


@define("tile.fill_resident", kw_only=True)
class FillResident(Op):
    """Copies ``rows`` rows of ``src`` [m, n] from ``row`` on, ``slices`` x ``cols`` elements from ``column`` on.

    Slice s lies at ``s * rows * cols`` of ``dst``, row after row, swizzled or (without ``swizzle``) as they are.  What
    of a strip lies outside the matrix nobody may read: it is zero, or what else the matrix has.  ``src`` has rows of
    whole pieces of 16 bytes.

    By ``tensor`` copies one thread starts boxes of rows, of which those of the p-th of ``parts`` parts complete the
    phase of the mbarrier ``bars[p]``; by ``cp.async`` all threads copy, and the block waits for all of it here.
    Behind the slices threads write ``zeros`` rows of zeros, which are there when the block has met.  Without ``meets``
    threads learn of the mbarriers, or copies, at another fill's meeting, which must follow.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    bars: Buffer | None = buffer(writes=True)
    row: Expr = operand()
    column: Expr = operand()
    rows: int = attr()
    cols: int = attr()
    slices: int = attr(default=1)
    parts: int = attr(default=1)
    zeros: int = attr(default=0)
    m: int = attr()
    n: int = attr()
    via: str = attr(one_of=("tensor", "cp.async"), default="tensor")
    meets: bool = attr(default=True)
    swizzle: bool = attr(default=True)


@define("tile.await_resident", kw_only=True)
class AwaitResident(Op):
    """The warp goes on when part ``part`` of a strip is there, whose copies complete ``bars[part]``."""

    bars: Buffer = buffer(writes=True)
    part: int = attr()
    parts: int = attr()


@define("tile.settle_resident", kw_only=True)
class SettleResident(Op):
    """The thread that started the copies of a strip waits for all its parts, read or not.

    A block must not end before: the memory that they write may be another block's by then.
    """

    bars: Buffer = buffer(writes=True)
    parts: int = attr()


@define("tile.gather_resident", kw_only=True)
class GatherResident(Op):
    """Loads from a strip that is not swizzled the rows that begin at ``places``, counted in pieces of 16 bytes; their
    ``values`` become ``weights``.

    A row has ``across`` pieces.  Lanes side by side, ``across / pieces`` of them, have the same places, and of each row
    ``pieces`` pieces each: ``dst[i, p]`` of lane c is piece ``c ^ p * across / pieces``, mod ``across``.  So the
    ``across`` lanes that read at once read different pieces, whatever their rows: rows of all banks meet in none,
    narrower ones where rows do.  The more pieces a lane has, the fewer lanes load the same place and value.
    Not ``tile.gather``, which reads rows of global memory, and has to leave out what is not of its segment.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    weights: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    places: Buffer = buffer()
    values: Buffer = buffer()
    across: int = attr()
    pieces: int = attr(default=1)


@define("tile.join_pieces", kw_only=True)
class JoinPieces(Op):
    """Adds up sums of ``across`` lanes, made of rows as ``tile.gather_resident`` hands them out: ``dst`` of lane c is
    the sum of piece c, of all of them.

    Lanes exchange by shuffles what the other one keeps, by halves: of ``pieces`` pieces all but one are sent.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    across: int = attr()
    pieces: int = attr()


# ------------------------------------------------------------------------------------------------ what they must obey
@check(FillResident)
def _fill_resident(op: FillResident, ctx: Context) -> None:
    same_type(ctx, op.dst, op.src)
    item = op.src.dtype.nbytes
    ctx.one_of(op.cols * item, WIDTHS, "bytes of a strip's row")
    whole(ctx, op.rows, ROWS * op.parts, f"{op.rows} rows are no {op.parts} parts of whole boxes of {ROWS} rows")
    shared(ctx, op.dst, (op.rows * op.slices + op.zeros) * op.cols, f"{op.slices} slices of {op.rows} x {op.cols}")
    ctx.need(op.zeros * op.cols * item // PIECE <= ctx.threads, f"{ctx.threads} threads do not write {op.zeros} rows")
    ctx.need(op.meets or not op.zeros, "threads learn of zeros where the block meets")
    ctx.need(op.dst.align % ALIGN == 0, f"@{op.dst.name} does not begin at a multiple of {ALIGN} bytes")
    whole(ctx, op.n * item, PIECE, f"rows of {op.n} elements are no whole pieces of 16 bytes")
    ctx.need(op.src.size == op.m * op.n, f"{op.m} x {op.n} elements are not the {op.src.size} of @{op.src.name}")
    ctx.need((op.bars is not None) == (op.via == "tensor"), "tensor copies end on mbarriers, and no others")
    if op.bars is not None:
        shared(ctx, op.bars, op.parts, "the mbarriers of a strip")


@check(SettleResident)
def _settle_resident(op: SettleResident, ctx: Context) -> None:
    shared(ctx, op.bars, op.parts, "the mbarriers of a strip")


@check(AwaitResident)
def _await_resident(op: AwaitResident, ctx: Context) -> None:
    shared(ctx, op.bars, op.parts, "the mbarriers of a strip")
    ctx.need(0 <= op.part < op.parts, f"there is no part {op.part} of {op.parts}")


@check(GatherResident)
def _gather_resident(op: GatherResident, ctx: Context) -> None:
    item = op.src.dtype.nbytes
    ctx.one_of(op.across * PIECE, WIDTHS, "bytes of a strip's row")
    shared(ctx, op.src, 1, "rows of a strip")
    same_type(ctx, op.src, op.dst)
    registers(ctx, op.places, 1)
    whole(ctx, op.across, op.pieces, f"{op.across} pieces of a row are no {op.pieces} for each lane")
    registers(ctx, op.dst, op.places.size * op.pieces * PIECE // item, exactly=True)
    for regs in (op.values, op.weights):
        registers(ctx, regs, op.places.size, exactly=True)


@check(JoinPieces)
def _join_pieces(op: JoinPieces, ctx: Context) -> None:
    of_team(ctx, op.across)
    whole(ctx, op.across, op.pieces, f"{op.across} pieces of a row are no {op.pieces} for each lane")
    ctx.need(op.pieces & (op.pieces - 1) == 0, f"lanes do not exchange halves of {op.pieces} pieces")
    registers(ctx, op.dst, 1)
    registers(ctx, op.src, op.dst.size * op.pieces, exactly=True)
    same_type(ctx, op.dst, op.src)
