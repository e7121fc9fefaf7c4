"""The tile ops of bands of rows whose dense tiles warpgroups multiply, the other way round: y^T = x^T W^T.

A warpgroup's product has 64 rows, and bands may have 16.  So the columns of x are its rows here, and the rows of a band
its columns, of which there may be as many as a band has: no row is added to fill it up, and both operands lie in shared
memory as copies leave them, x by rows and W's tiles row by row.

No other family uses them: elsewhere W has rows enough to be the first operand.
"""

from __future__ import annotations

from math import prod

from .checks import Context, check
from .node import buffer, define
from .numbers.mixed import ROWS, SIDE, TILES, fits, groups_of, sums_pitch
from .numbers.strips import COLS, LEAST
from .swizzle import DEPTH
from .tile_mixed import OfBand, OfTurn
from .tile_rules import registers, same_type, shared
from .types import Buffer, f32


@define("tile.multiply_turned", kw_only=True)
class MultiplyTurned(OfTurn):
    """``acc += (a * b)^T`` of a turn, by warpgroups: the dense tiles in its slot of ``values``, and its slot of ``x``.

    ``values`` has the ``rows`` x ``tile`` elements row by row, ``x`` blocks of 64 columns one behind the other, both
    swizzled.  Of ``warps`` = (1, across, slices) every four make a warpgroup: number g has part g mod (across / 4) of
    the ``cols`` columns, and a slice of k as in ``tile.multiply_band``.  ``accs`` are the sums of each 64 columns of
    its part: element r of lane l of warp w is column 16 (w mod 4) + l / 4 + 8 (r / 2 mod 2), row 8 (r / 4) + 2 (l mod
    4) + r mod 2.  The product has ended when the op ends.
    """

    accs: tuple[Buffer, ...] = buffer(writes=True)


@define("tile.put_turned", kw_only=True)
class PutTurned(OfBand):
    """Puts the sums of a band, as ``tile.multiply_turned`` has them, into shared memory as ``tile.put_sums`` does."""

    dst: Buffer = buffer(writes=True, reads=False)
    accs: tuple[Buffer, ...] = buffer()


# ------------------------------------------------------------------------------------------------ what they must obey
def _share(ctx: Context, op: MultiplyTurned | PutTurned) -> None:
    """The warpgroups are the block's, and each has its part of the sums."""
    ctx.one_of(op.rows, ROWS, "rows of a band")
    ctx.one_of(op.cols, COLS, "columns of a block")
    groups, share = groups_of(op.cols, op.warps), " x ".join(map(str, op.warps))
    ctx.need(groups > 0 and fits(op.rows, op.cols, op.warps), f"{share} warps are no warpgroups for {op.cols} columns")
    ctx.need(32 * prod(op.warps) == ctx.threads, f"{share} warps, the block has {ctx.threads} threads")
    parts = op.cols // (SIDE * max(1, groups))
    ctx.need(len(op.accs) == parts, f"{len(op.accs)} arrays of sums, {parts} times {SIDE} columns of a warpgroup")
    for acc in op.accs:
        registers(ctx, acc, op.rows // 2, exactly=True)
        ctx.need(acc.dtype is f32, f"sums are made in f32, not {acc.dtype}")


@check(MultiplyTurned)
def _multiply_turned(op: MultiplyTurned, ctx: Context) -> None:
    _share(ctx, op)
    ctx.one_of(op.tile, TILES, "columns of a dense tile")
    ctx.need(op.stages >= LEAST, f"a ring of {op.stages} slots has none to fill ahead")
    ctx.need(op.x.dtype.nbytes == 2, f"warpgroups multiply 16-bit numbers, {DEPTH} k at a time, not {op.x.dtype}")
    same_type(ctx, op.values, op.x)
    shared(ctx, op.x, op.stages * op.tile * op.cols, "the rows of x of all turns")
    shared(ctx, op.values, op.stages * op.rows * op.tile, "the dense tiles of all turns")


@check(PutTurned)
def _put_turned(op: PutTurned, ctx: Context) -> None:
    _share(ctx, op)
    shared(ctx, op.dst, op.warps[-1] * op.rows * sums_pitch(op.cols), "the sums of a band")
    same_type(ctx, op.dst, *op.accs)
