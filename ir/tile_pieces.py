"""The tile op of rows that are cut: several warps, of any blocks or of one, each add up a piece of a row's sums.

They are added in the order of the pieces, whichever comes last, so sums of floats are the same in every run.
No other family uses it: ``tile.sum_segments`` has runs of entries, and no slots of whole fragments.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr
from .node import Op, attr, buffer, define, operand, region
from .tile_rules import same_type, whole
from .types import Buffer, f32, s32, u32

#: Numbers of a row: the slot of its first piece, how many pieces it has, its first step, and its steps.
CUT = 4


@define("tile.sum_pieces", kw_only=True)
class SumPieces(Op):
    """Runs the body where the warp's sums ``acc`` are those of a whole row.

    ``cuts`` has four numbers for each of ``rows`` rows: the slot of its first piece, how many pieces it has, its first
    step, and its steps.  A row of one piece is whole.  Of others piece i begins at step ``steps * i // pieces``, which
    is ``begin``; it leaves its sums in its slot of ``slots``, of which each of ``tiles`` tiles of columns has as many
    as there are pieces of such rows; this is tile ``tile``.  The one that comes last adds up all.  ``counter`` has an
    element for each slot, or more, zero before and after.

    Where all pieces of a row are of one block, ``slots`` and ``counter`` may lie in shared memory: then nobody waits
    for L2, whose three turns (a store, an atomic, a load) take some 2 us on an H200.
    """

    acc: Buffer = buffer(writes=True)
    cuts: Buffer = buffer()
    slots: Buffer = buffer(writes=True)
    counter: Buffer = buffer(writes=True)
    row: Expr = operand()
    begin: Expr = operand()
    tile: Expr = operand()
    rows: int = attr()
    tiles: int = attr()
    body: tuple[Op, ...] = region()


@check(SumPieces)
def _sum_pieces(op: SumPieces, ctx: Context) -> None:
    ctx.need(op.acc.dtype in (s32, f32) and op.acc.space == "reg", f"@{op.acc.name} has no s32 or f32 in registers")
    same_type(ctx, op.acc, op.slots)
    ctx.need(op.cuts.dtype is s32, f"@{op.cuts.name} counts in s32, not in {op.cuts.dtype}")
    ctx.need(op.counter.dtype is u32, f"@{op.counter.name} counts in u32, not in {op.counter.dtype}")
    ctx.need(op.cuts.size == CUT * op.rows, f"{op.rows} rows have {CUT * op.rows} numbers, not {op.cuts.size}")
    each = 32 * op.acc.size
    whole(ctx, op.slots.size, each, f"slots of {each} elements do not fill {op.slots.size}")
    count = op.slots.size // each
    whole(ctx, count, op.tiles, f"{count} slots are not as many for each of {op.tiles} tiles")
    ctx.need(op.counter.size >= count, f"@{op.counter.name} has no element for each of {count} slots")
    ctx.need(op.slots.space == op.counter.space, f"@{op.slots.name} and @{op.counter.name} lie in two kinds of memory")
    whole(ctx, op.acc.size, 4, f"{op.acc.size} sums are not moved four at a time")
