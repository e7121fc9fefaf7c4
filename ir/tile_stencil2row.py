"""The tile op of ``stencil2row`` on three axes: points of small planes, added to a product's accumulators."""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr
from .node import Op, attr, buffer, define, operand
from .op import Sides, Tap
from .spread import Products
from .tile_rules import axes, same_type, spread, taps
from .types import Buffer


@define("tile.add_points", kw_only=True)
class AddPoints(Op):
    """Adds ``weights[i] * src[cell + offset]`` over the taps to each cell of ``acc``, on the CUDA cores.

    ``acc`` holds accumulators that lie over the threads as ``spread`` says; the tile starts at cell ``at`` of ``src``
    in global memory, read through L1, across borders as ``sides`` say.
    ``offsets`` is a table of the taps' offsets, axis by axis; ``vector``: elements that one access may read.
    Only stencil2row adds points to accumulators of an mma; ``tile.points`` makes sums of its own.
    """

    acc: Buffer = buffer(writes=True)
    src: Buffer = buffer()
    weights: Buffer = buffer()
    offsets: Buffer = buffer()
    at: tuple[Expr, ...] = operand()
    taps: tuple[Tap, ...] = attr()
    spread: Products = attr()
    extent: tuple[int, ...] = attr()
    pitch: int = attr()
    sides: Sides = attr()
    vector: int = attr()


@check(AddPoints)
def _add_points(op: AddPoints, ctx: Context) -> None:
    spread(ctx, op.spread, op.acc)
    axes(ctx, op.extent, at=len(op.at), sides=len(op.sides))
    taps(ctx, op.weights, op.taps)
    count = len(op.taps) * len(op.at)
    ctx.need(op.offsets.size >= count, f"{count} offsets do not fit @{op.offsets.name}")
    same_type(ctx, op.acc, op.weights)
    ctx.one_of(op.vector, (1, 2), "elements at once")
