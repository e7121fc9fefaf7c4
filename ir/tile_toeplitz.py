"""The tile op of ``toeplitz``: products with a banded matrix whose operand slides past the accumulators."""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr, Value
from .fragments import SHAPES
from .layout import Layout
from .node import Op, attr, bind, buffer, declare, define, operand, region
from .tile_rules import extents, mma, registers, shared
from .types import Buffer


@define("tile.slide", kw_only=True)
class Slide(Op):
    """Products of runs of columns with a band of weights; every element of a run is read once.

    Fragment row m of warp w is run w * M + m, and its column c is element ``layout(run, c)`` of ``src``'s ``slot``.
    Product i is ``sum over q < 8 * bands: run[8 i + q] * weights[q, n]`` for the 8 columns n: a Toeplitz product, so
    the 8 columns that the next product needs anew are added to the unfinished sums of the ``bands`` products that they
    touch, and then forgotten.  ``acc`` holds those sums, the finished product first, when the body runs for ``product``
    = i, in order.  ``shape`` is the mma instruction; slice s of the weights (4 of their rows) is register s.
    Only toeplitz: slices are outside, targets inside, so that A slides past; see ``tile.levels``.
    """

    acc: Buffer = declare()
    product: Value = bind()
    src: Buffer = buffer()
    weights: Buffer = buffer()
    slot: Expr = operand()
    layout: Layout = attr()
    shape: str = attr()
    products: int = attr()
    bands: int = attr()
    body: tuple[Op, ...] = region()


@check(Slide)
def _slide(op: Slide, ctx: Context) -> None:
    mma(ctx, op.shape, op.acc)
    regs, warps = len(SHAPES[op.shape].c.elements), ctx.threads // 32
    registers(ctx, op.acc, (op.bands + 1) * regs, exactly=True)
    registers(ctx, op.weights, 2 * op.bands)
    extents(ctx, op.layout, (warps * SHAPES[op.shape].m, 8 * (op.products + op.bands - 1)), "the runs")
    shared(ctx, op.src, op.layout.size(), "the runs")
    ctx.need(op.product.hi == op.products - 1, f"%{op.product.name} must count {op.products} products")
