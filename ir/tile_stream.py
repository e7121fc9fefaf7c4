"""Tile ops of ``stream``: rows through a warp's own ring in shared memory, time levels by partial sums in registers."""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr
from .layout import Layout
from .node import Op, attr, buffer, define, operand
from .op import Box, Tap
from .tile_rules import extents, registers, same_type, shared, taps
from .types import Buffer


@define("tile.levels", kw_only=True)
class Levels(Op):
    """``count`` time steps of the row in ``values``: level by level, by partial sums.

    A row is added to the 2 r + 1 rows of the next level that it touches, then forgotten: ``sums`` holds for each level
    2 r unfinished rows.  Afterwards ``values`` is the row that has become complete at the last level, ``count`` * r
    rows further up.  Neighbouring columns come from neighbouring lanes (each level spoils r columns at both ends).
    Only stream: its sums lie oldest first, row by row; those of patches and toeplitz are accumulators that an mma reads
    and makes, in the order of the matrices that they come from, and renumbering either changes its code.
    """

    values: Buffer = buffer(writes=True)
    sums: Buffer = buffer(writes=True)
    weights: Buffer = buffer()
    taps: tuple[Tap, ...] = attr()
    radius: tuple[int, int] = attr()
    count: int = attr()


@define("tile.emit", kw_only=True)
class Emit(Op):
    """Stores the row in ``values`` as output row y + ``turn`` - ``delay``, once there is one, inside ``box``.

    It goes through the warp's slot of the ring, so that lanes store adjacent columns (unless a lane's columns are one
    store), and takes the columns ``lead`` ... ``lead + step - 1`` of the window.
    Only stream: pieces at the end of a box are stored by a predicate of the whole piece, those of ``tile.store_plane``
    by one of each cell.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    values: Buffer = buffer()
    ring: Buffer = buffer(writes=True)
    y: Expr = operand()
    x: Expr = operand()
    turn: Expr = operand()
    delay: int = attr()
    rows: int = attr()
    step: int = attr()
    lead: int = attr()
    width: int = attr()
    stages: int = attr()
    layout: Layout = attr()
    pitch: int = attr()
    box: Box = attr()
    vector: int = attr()


@check(Levels)
def _levels(op: Levels, ctx: Context) -> None:
    registers(ctx, op.values, 1)
    registers(ctx, op.sums, op.count * 2 * op.radius[0] * op.values.size)
    same_type(ctx, op.values, op.sums, op.weights)
    taps(ctx, op.weights, op.taps)
    ctx.need(op.radius[1] <= op.values.size, f"a radius of {op.radius[1]} columns reaches beyond the neighbouring "
             f"lane, which has {op.values.size}")  # fmt: skip


@check(Emit)
def _emit(op: Emit, ctx: Context) -> None:
    registers(ctx, op.values, op.width // 32, exactly=True)
    extents(ctx, op.layout, (op.width,), "a row of the ring")
    shared(ctx, op.ring, ctx.threads // 32 * op.stages * op.layout.size(), "the slots of all warps")
    ctx.need(op.lead + op.step <= op.width, f"{op.step} columns from {op.lead} on are not in a window of {op.width}")
    ctx.need(op.width // 32 % op.vector == 0, f"a lane's columns are no whole pieces of {op.vector}")
