"""The tile ops of products whose rows of x are gathered for warpgroups (Hopper), as lists name them.

Rows of a tile of W share a list of columns; 64 of them are a turn.  Their rows of x come by asynchronous copies, each
to its place in a swizzled tile, so the gather costs only addresses.

No other family uses them: elsewhere lanes or ``ldmatrix`` read rows of x where they lie.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr
from .node import Op, attr, buffer, define, operand
from .numbers.groups import COPIERS, PIECE, STEP, list_words
from .tile_groups import Fill, in_block, in_ring
from .tile_rules import registers, same_type, shared
from .types import Buffer


@define("tile.copy_list", kw_only=True)
class CopyList(Op):
    """Copies the numbers of the rows of x that a tile of W names, ``steps`` x 64 of 16 bits, to list ``list`` of two.

    Words of two; one bulk copy, whose bytes the list's mbarrier waits for.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    bars: Buffer = buffer(writes=True)
    tile: Expr = operand()
    list: Expr = operand()
    steps: int = attr(least=1)


@define("tile.list_rows", kw_only=True)
class ListRows(Op):
    """Loads the numbers of those rows of x that a copying thread takes a piece of in a step, as words of two."""

    rows: Buffer = buffer(writes=True, reads=False)
    lists: Buffer = buffer()
    list: Expr = operand()
    step: Expr = operand()
    steps: int = attr()
    cols: int = attr()


@define("tile.gather_rows", kw_only=True)
class GatherRows(Fill):
    """Copies ``cols`` columns from ``column`` on of the rows of x that ``rows`` names into a slot, asynchronously.

    A slot has blocks of 64 columns (or of ``cols``, if fewer), each 64 rows, swizzled.  ``src`` is [k, n], n a multiple
    of 8; columns from ``n`` on are the first ones again.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    rows: Buffer = buffer()
    bars: Buffer = buffer(writes=True)
    slot: Expr = operand()
    column: Expr = operand()
    cols: int = attr()
    k: int = attr()
    n: int = attr()

    @property
    def arrivals(self) -> int:
        """Of each thread that copies."""
        return COPIERS


# ------------------------------------------------------------------------------------------------ what they must obey
@check(CopyList)
def _copy_list(op: CopyList, ctx: Context) -> None:
    words = op.steps * STEP // 2
    shared(ctx, op.dst, 2 * words, "two lists")
    same_type(ctx, op.dst, op.src)
    ctx.need(op.src.size % words == 0, f"@{op.src.name} has no whole lists of {op.steps} x {STEP} numbers")


@check(ListRows)
def _list_rows(op: ListRows, ctx: Context) -> None:
    in_block(ctx, op.cols)
    registers(ctx, op.rows, list_words(op.cols), exactly=True)
    same_type(ctx, op.rows, op.lists)
    shared(ctx, op.lists, op.steps * STEP, "two lists")


@check(GatherRows)
def _gather_rows(op: GatherRows, ctx: Context) -> None:
    in_block(ctx, op.cols)
    registers(ctx, op.rows, list_words(op.cols), exactly=True)
    in_ring(ctx, op.dst, STEP * op.cols, "the rows of x of a turn")
    same_type(ctx, op.dst, op.src)
    ctx.need(op.n % PIECE == 0, f"{op.n} columns are no whole pieces of {PIECE}")
    ctx.need(op.src.size == op.k * op.n, f"{op.k} x {op.n} elements are not the {op.src.size} of @{op.src.name}")
