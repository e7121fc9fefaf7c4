"""Tile ops of ``stream``: rows through a warp's own ring in shared memory, time levels by partial sums in registers."""

from __future__ import annotations

from .expr import Expr, Value
from .layout import Layout
from .node import Op, attr, bind, buffer, declare, define, operand, region
from .op import Box, Sides, Tap
from .types import Buffer


@define("tile.stream")
class Stream(Op):
    """Each warp walks down a strip of columns, row by row; rows arrive through its own ring in shared memory.

    Warp w of the tile at (``y``, ``x``) takes the window of ``width`` columns from x + w * ``step`` - ``lead`` on and
    the rows y - ``above`` ... y + ``rows`` + ``above`` - 1.  For each row the body runs with ``values`` holding the
    row (``width`` / 32 adjacent columns a lane) and ``turn`` its number from 0.  Cells outside the ``extent`` follow
    ``sides``; ``stages`` rows of ``ring`` are under way; ``layout`` places a row's columns in a slot; no block barrier.
    """

    values: Buffer = declare()
    turn: Value = bind()
    ring: Buffer = buffer(writes=True)
    src: Buffer = buffer()
    y: Expr = operand()
    x: Expr = operand()
    rows: int = attr()
    above: int = attr()
    step: int = attr()
    lead: int = attr()
    width: int = attr()
    stages: int = attr()
    layout: Layout = attr()
    extent: tuple[int, int] = attr()
    pitch: int = attr()
    sides: Sides = attr()
    vector: int = attr()
    unroll: int = attr()
    body: tuple[Op, ...] = region()


@define("tile.levels")
class Levels(Op):
    """``count`` time steps of the row in ``values``: level by level, by partial sums.

    A row is added to the 2 r + 1 rows of the next level that it touches, then forgotten: ``sums`` holds for each level
    2 r unfinished rows.  Afterwards ``values`` is the row that has become complete at the last level, ``count`` * r
    rows further up.  Neighbouring columns come from neighbouring lanes (each level spoils r columns at both ends).
    """

    values: Buffer = buffer(writes=True)
    sums: Buffer = buffer(writes=True)
    weights: Buffer = buffer()
    taps: tuple[Tap, ...] = attr()
    radius: tuple[int, int] = attr()
    count: int = attr()


@define("tile.emit")
class Emit(Op):
    """Stores the row in ``values`` as output row y + ``turn`` - ``delay``, once there is one, inside ``box``.

    It goes through the warp's slot of the ring, so that lanes store adjacent columns (unless a lane's columns are one
    store), and takes the columns ``lead`` ... ``lead + step - 1`` of the window.
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
