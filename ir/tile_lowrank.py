"""Tile ops of the low-rank schedules: products with constant banded matrices from both sides, and their store."""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr
from .layout import Layout
from .node import Op, attr, buffer, declare, define, operand
from .numbers.lowrank import slices
from .spread import Strips
from .tile_rules import extents, mma, registers, shared, spread
from .types import Buffer


@define("tile.sandwich", kw_only=True)
class Sandwich(Op):
    """``Y = sum over terms t of U_t X V_t``: U_t and V_t are banded, X is a window of the shared tile ``src``.

    ``spread`` says which strip and column blocks of the tile are a warp's.  Row i of U_t is a_t, shifted by
    i; column j of V_t is b_t, shifted by j.  Output (r, c) of a tile needs the elements (r ... r + 2 ``radius[0]``,
    c ... c + 2 ``radius[1]``) of ``layout``.

    ``factors`` holds a lane's registers, for each term those of U and then those of V: register s of lane
    4 g + t is a[4 s + t - g], and b[column - g] with column the (4 s + t)-th of ``columns``, zero outside.  ``columns``
    is the window's column that column n of the first product stands for, a permutation of 8: the accumulator of that
    product is operand A of the second as it is, its elements (2 t) one slice of K and (2 t + 1) the next.
    ``shape`` is the mma for most of a sum, ``acc`` block by block.
    Only lowrank multiplies what it has just multiplied.
    """

    acc: Buffer = declare()
    src: Buffer = buffer()
    factors: Buffer = buffer()
    layout: Layout = attr()
    columns: Layout = attr()
    shape: str = attr()
    spread: Strips = attr()
    terms: int = attr()
    radius: tuple[int, int] = attr()
    slot: Expr = operand()


@check(Sandwich)
def _sandwich(op: Sandwich, ctx: Context) -> None:
    mma(ctx, op.shape, op.acc)
    spread(ctx, op.spread, op.acc)
    (rows, cols), (ry, rx) = op.spread.size, op.radius
    extents(ctx, op.layout, (rows + 2 * ry, cols + 2 * rx), "the window")
    shared(ctx, op.src, op.layout.size(), "the window's elements")
    registers(ctx, op.factors, op.terms * (slices(2 * ry) + slices(2 * rx)), exactly=True)
    extents(ctx, op.columns, (8,), "the order of columns")
    ctx.need(op.columns.injective() and op.columns.size() == 8, f"{op.columns} is no permutation of 8 columns")
