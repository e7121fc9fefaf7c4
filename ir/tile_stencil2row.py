"""The tile op of ``stencil2row`` on three axes: points of small planes, added to a product's accumulators."""

from __future__ import annotations

from .expr import Expr
from .node import Op, attr, buffer, define, operand
from .op import Sides, Tap
from .types import Buffer


@define("tile.add_points")
class AddPoints(Op):
    """Adds ``weights[i] * src[cell + offset]`` over the taps to each cell of ``acc``, on the CUDA cores.

    ``acc`` holds the accumulators of a ``tile.mma``, whose lanes have the cells that ``tile.store_fragments`` says; the
    tile starts at cell ``at`` of ``src`` in global memory, read through L1, across borders as ``sides`` say.
    ``offsets`` is a table of the taps' offsets, axis by axis; ``vector``: elements that one access may read.
    """

    acc: Buffer = buffer(writes=True)
    src: Buffer = buffer()
    weights: Buffer = buffer()
    offsets: Buffer = buffer()
    at: tuple[Expr, ...] = operand()
    taps: tuple[Tap, ...] = attr()
    base: str = attr()
    products: int = attr()
    rows: int = attr()
    blocks: int = attr()
    group: int = attr()
    warps: int = attr()
    extent: tuple[int, ...] = attr()
    pitch: int = attr()
    sides: Sides = attr()
    vector: int = attr()
