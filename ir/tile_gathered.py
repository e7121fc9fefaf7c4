"""The tile ops of sampled products whose columns of b are gathered: each warp copies those of its own tasks.

A ring of a warp has slots for tiles of 16 columns, of which one is multiplied while others come.  Lists name the
columns, and the vectors of the result that they make.

Only patterns that keep few columns are worth it: of others a strip of all columns (``tile_sampled``) is fewer bytes.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr, Value, as_expr
from .node import Op, attr, bind, buffer, declare, define, operand, region
from .numbers.gathered import COLUMN_BITS, LEAST
from .numbers.sampled import TILE
from .op_sddmm import HEIGHTS
from .tile_rules import batched, registers, same_type, shared
from .tile_sampled import OfRows, OfSums, of_sums
from .types import Buffer, s32


@define("tile.each_gathered", kw_only=True)
class EachGathered(OfRows):
    """Runs the body for each 16 vectors of a warp's only task, ``begin`` to before ``end``, when their columns came.

    The columns of b, rows of ``src`` [m, n] from element ``column`` on, come to a ``ring`` of ``stages`` slots of the
    warp; ``slot`` is that of the tile at hand.  ``first`` runs once, when the first tile's copies have come, and with
    them those before that were no group yet.  ``columns`` says which, and in its upper bits which vector row of the
    group; ``places`` the vectors of the result, ``vectors``, one beyond, where a tile is filled up.  ``next``: the
    lane's column of the next tile to be copied; ``place``: the vectors of which the lane has two rows, of the 8 first
    and the 8 last of a tile.  ``which`` matrix and result of a batch they are of, all with the same lists.
    """

    next: Buffer = declare()
    place: Buffer = declare()
    slot: Value = bind()
    ring: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    columns: Buffer = buffer()
    places: Buffer = buffer()
    begin: Expr = operand()
    end: Expr = operand()
    column: int = attr()
    m: int = attr()
    n: int = attr()
    stages: int = attr()
    height: int = attr()
    vectors: int = attr()
    which: Expr = operand(default=as_expr(0))
    first: tuple[Op, ...] = region()
    body: tuple[Op, ...] = region()


@define("tile.multiply_gathered", kw_only=True)
class MultiplyGathered(OfSums):
    """Multiplies the 16 columns in slot ``slot`` of ``stages`` of the warp's ``ring``."""

    ring: Buffer = buffer()
    slot: Expr = operand()
    stages: int = attr()


# ------------------------------------------------------------------------------------------------ what they must obey
def _ring(ctx: Context, op: EachGathered | MultiplyGathered) -> None:
    ctx.need(op.stages >= LEAST, f"a ring of {op.stages} slots has none to fill ahead")
    slot = TILE * op.slices * op.width // op.ring.dtype.nbytes
    shared(ctx, op.ring, ctx.warps() * op.stages * slot, "the rings of all warps")


@check(EachGathered)
def _each_gathered(op: EachGathered, ctx: Context) -> None:
    _ring(ctx, op)
    same_type(ctx, op.ring, op.src)
    registers(ctx, op.next, 1, exactly=True)
    registers(ctx, op.place, 2, exactly=True)
    ctx.one_of(op.height, HEIGHTS, "rows of a vector")
    item = op.src.dtype.nbytes
    ctx.need(op.n * item % 16 == 0 and op.column * item % 16 == 0, f"rows of {op.n} are no whole pieces of 16 bytes")
    batched(ctx, op.src, op.which, op.m, op.n)
    ctx.need(op.m <= 1 << COLUMN_BITS, f"{op.m} columns have more than {COLUMN_BITS} bits")
    for lists in (op.columns, op.places):
        ctx.need(lists.dtype is s32 and lists.size % TILE == 0, f"@{lists.name} has no whole tiles of {TILE} s32")
    ctx.need((op.next.dtype, op.place.dtype) == (s32, s32), "columns and places are s32")


@check(MultiplyGathered)
def _multiply_gathered(op: MultiplyGathered, ctx: Context) -> None:
    _ring(ctx, op)
    of_sums(ctx, op)
