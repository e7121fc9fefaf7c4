"""Tile ops of the low-rank schedules: products with constant banded matrices from both sides, and their store."""

from __future__ import annotations

from .expr import Expr
from .layout import Layout
from .node import Op, attr, buffer, declare, define, operand
from .op import Box
from .types import Buffer


def slices(reach: int) -> int:
    """Slices of four in 8 + ``reach`` elements: registers of a factor, for a band that is ``reach`` + 1 long."""
    return -(-(8 + reach) // 4)


@define("tile.sandwich")
class Sandwich(Op):
    """``Y = sum over terms t of U_t X V_t``: U_t and V_t are banded, X is a window of the shared tile ``src``.

    A tile is ``strips`` strips of M rows (the rows of ``base``'s accumulator), each in ``warps / strips`` parts of
    ``blocks`` column blocks of 8; warp i makes part i // strips of strip i % strips.  Row i of U_t is a_t, shifted by
    i; column j of V_t is b_t, shifted by j.  Output (r, c) of a tile needs the elements (r ... r + 2 ``radius[0]``,
    c ... c + 2 ``radius[1]``) of ``layout``.

    ``factors`` holds a lane's registers, for each term those of U and then those of V: register s of lane
    4 g + t is a[4 s + t - g], and b[column - g] with column the (4 s + t)-th of ``columns``, zero outside.  ``columns``
    is the window's column that column n of the first product stands for, a permutation of 8: the accumulator of that
    product is operand A of the second as it is, its elements (2 t) one slice of K and (2 t + 1) the next.
    ``shape`` is the mma for most of a sum, ``acc`` block by block.
    """

    acc: Buffer = declare()
    src: Buffer = buffer()
    factors: Buffer = buffer()
    layout: Layout = attr()
    columns: Layout = attr()
    shape: str = attr()
    base: str = attr()
    terms: int = attr()
    radius: tuple[int, int] = attr()
    strips: int = attr()
    blocks: int = attr()
    warps: int = attr()
    slot: Expr = operand()


@define("tile.store_blocks")
class StoreBlocks(Op):
    """Stores the accumulators of a ``tile.sandwich``, where the cell lies in ``box``.

    ``keep`` as for ``tile.store_points``.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    acc: Buffer = buffer()
    src: Buffer = buffer()
    y: Expr = operand()
    x: Expr = operand()
    base: str = attr()
    strips: int = attr()
    blocks: int = attr()
    warps: int = attr()
    pitch: int = attr()
    box: Box = attr()
    extent: tuple[int, int] = attr()
    keep: tuple[tuple[int, int], ...] = attr()
    src_pitch: int = attr()
    vector: int = attr()
