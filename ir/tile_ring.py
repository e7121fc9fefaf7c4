"""The tile ops of a warp's own ring: of each step of a vector row the 32 rows of x that it names, and W's values.

A slot has these rows, ``wide`` bytes each, swizzled, and the words of W's values, lane by lane.  No other family uses
them: other rings are filled by a block, or for as many turns in all warps.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr, Value
from .node import Op, attr, bind, buffer, define, operand, region
from .numbers.resident import WIDTHS
from .numbers.vectors import PIECE, SPARE, STEP
from .tile_rules import registers, same_type, shared, whole
from .types import Buffer, s32, u32

#: Slots of a ring.
STAGES = (2, 4, 8)


@define("tile.walk_ring", kw_only=True)
class WalkRing(Op):
    """The warp walks steps ``begin`` to ``end`` - 1 by a ring of ``stages`` slots, which ``cp.async`` fills.

    ``fill`` runs ``stages - 1`` steps ahead of ``body``; in both step ``at`` has slot ``slot``.  ``number`` is the row
    of x that the lane's vector of the step names, loaded from ``numbers`` another step ahead.
    """

    numbers: Buffer = buffer()
    at: Value = bind()
    slot: Value = bind()
    number: Value = bind()
    begin: Expr = operand()
    end: Expr = operand()
    stages: int = attr(one_of=STAGES)
    fill: tuple[Op, ...] = region()
    body: tuple[Op, ...] = region()


@define("tile.gather_step", kw_only=True)
class GatherStep(Op):
    """Starts the copies of a step into the warp's slot: of the row of x that each lane's ``number`` names the ``wide``
    bytes from ``column`` on, and the lane's words of W's values.

    ``src`` is [k, n], rows of whole pieces of 16 bytes; columns from ``n`` on are the first ones again.
    """

    x: Buffer = buffer(writes=True, reads=False)
    words: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    values: Buffer = buffer()
    number: Expr = operand()
    at: Expr = operand()
    slot: Expr = operand()
    column: Expr = operand()
    stages: int = attr(least=1)
    wide: int = attr()
    k: int = attr()
    n: int = attr()


@define("tile.take_step", kw_only=True)
class TakeStep(Op):
    """Gives what a lane has of a slot: where the row of x that it names to ``ldmatrix`` begins, and W's values."""

    rows: Buffer = buffer(writes=True, reads=False)
    words: Buffer = buffer(writes=True, reads=False)
    ring: Buffer = buffer()
    slot: Expr = operand()
    stages: int = attr()
    wide: int = attr()


# ------------------------------------------------------------------------------------------------ what they must obey
def slot_bytes(wide: int) -> int:
    """Bytes of the rows of x of a slot."""
    return STEP * wide


@check(WalkRing)
def _walk_ring(op: WalkRing, ctx: Context) -> None:
    whole(ctx, op.numbers.size, STEP, f"@{op.numbers.name} has {op.numbers.size} numbers, no steps of {STEP}")
    ctx.need(op.numbers.size >= (op.stages + 1) * STEP, f"{op.numbers.size} numbers end before the last one looked up",
             f"there are {SPARE} spare steps")  # fmt: skip


@check(GatherStep)
def _gather_step(op: GatherStep, ctx: Context) -> None:
    ctx.one_of(op.wide, WIDTHS, "bytes of a row")
    same_type(ctx, op.x, op.src)
    item, warps = op.src.dtype.nbytes, ctx.warps()
    shared(ctx, op.x, warps * op.stages * slot_bytes(op.wide) // item, "the rows of x of all slots")
    each = op.words.size // (warps * op.stages * 32)
    ctx.need(each in (1, 2, 4), f"@{op.words.name} has {each} words for a lane and slot, which no copy moves")
    shared(ctx, op.words, warps * op.stages * 32 * each, "the values of all slots")
    ctx.need((op.values.dtype, op.words.dtype) == (u32, u32), "values are words")
    whole(ctx, op.n * item, PIECE, f"rows of {op.n} elements are no whole pieces of {PIECE} bytes")
    ctx.need(op.src.size == op.k * op.n, f"{op.k} x {op.n} elements are not the {op.src.size} of @{op.src.name}")


@check(TakeStep)
def _take_step(op: TakeStep, ctx: Context) -> None:
    ctx.one_of(op.wide, WIDTHS, "bytes of a row")
    registers(ctx, op.rows, 1, exactly=True)
    ctx.need((op.rows.dtype, op.words.dtype) == (s32, u32), "registers hold a place as s32, and words")
    shared(ctx, op.ring, ctx.warps() * op.stages * 32 * op.words.size, "the values of all slots")
