"""Tile ops of ``patches``: row groups streamed through a warp, levels of partial sums on tensor cores.

A *group* is some adjacent rows of a warp's strip of columns; a *patch* is one row of an mma: as many adjacent outputs
as the mma has columns, as high as a group.  All maps here are layouts of a warp's own share of a shared buffer.
"""

from __future__ import annotations

from .expr import Expr, Value
from .layout import Layout
from .node import Op, attr, bind, buffer, declare, define, operand, region
from .op import Box, Sides
from .types import Buffer


@define("tile.groups")
class Groups(Op):
    """A shared tile with as many groups for each warp, all zero (a strip's ends are read before they are written)."""

    buf: Buffer = declare()


@define("tile.row_groups")
class RowGroups(Op):
    """Each warp walks down a strip, group by group; groups arrive through its own ring in shared memory.

    Warp w of the tile at (``y``, ``x``) takes the window of columns from x + w * ``step`` - ``lead`` on and the rows
    from y - ``above`` on; ``layout`` places element (row, column) of a group.  For each of ``turns`` groups the body
    runs with ``turn`` its number and ``here`` its first element in the warp's share of ``ring``.  Cells outside the
    ``extent`` follow ``sides``; ``stages`` groups of the ring are under way; no block barrier.
    """

    turn: Value = bind()
    here: Value = bind()
    ring: Buffer = buffer(writes=True)
    src: Buffer = buffer()
    y: Expr = operand()
    x: Expr = operand()
    turns: int = attr()
    above: int = attr()
    step: int = attr()
    lead: int = attr()
    stages: int = attr()
    layout: Layout = attr()
    extent: tuple[int, int] = attr()
    pitch: int = attr()
    sides: Sides = attr()
    vector: int = attr()
    body: tuple[Op, ...] = region()


@define("tile.meet")
class Meet(Op):
    """The lanes of each warp meet: they see what the others have put into shared memory before."""


@define("tile.read_group")
class ReadGroup(Op):
    """Reads a group as operands: patch m of sub-strip s is row m of an mma, its element k is ``a(s, m, k)`` from ``at``
    on in the warp's share of ``src``.  Register (s * slices + i) * rows + j holds a lane's j-th row of slice i.
    """

    held: Buffer = declare()
    src: Buffer = buffer()
    at: Expr = operand()
    a: Layout = attr()
    shape: str = attr()


@define("tile.add_group")
class AddGroup(Op):
    """Adds a group of rows to the sums of the ``touched`` groups of outputs that need it; the oldest is then complete.

    ``held`` are the operands of its ``slices`` slices for each of ``strips`` sub-strips.  ``weights`` are a lane's
    fragments: slice i of the matrix for the q-th youngest of the touched groups is register q * slices + i.  ``sums``
    has, for each level, the accumulators of the ``touched - 1`` unfinished groups, the youngest first; ``done`` gets
    those of the complete one.  ``shape`` is the mma for most of a sum (the rest takes narrower ones).
    """

    done: Buffer = declare()
    sums: Buffer = buffer(writes=True)
    held: Buffer = buffer()
    weights: Buffer = buffer()
    shape: str = attr()
    strips: int = attr()
    slices: int = attr()
    level: int = attr()
    touched: int = attr()


@define("tile.pass_group")
class PassGroup(Op):
    """Puts a complete group into shared memory: row m, column n of the accumulator at ``c(s, m, n)`` from ``at`` on."""

    dst: Buffer = buffer(writes=True, reads=False)
    done: Buffer = buffer()
    at: Expr = operand()
    c: Layout = attr()
    shape: str = attr()


@define("tile.store_group")
class StoreGroup(Op):
    """Stores a complete group as output rows y + (turn - ``delay``) * rows ..., once there are any, inside ``box``.

    Row m, column n of sub-strip s is cell ``c(s, m, n)`` (row, column) of the strip, whose first ``step`` columns are
    the warp's.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    done: Buffer = buffer()
    y: Expr = operand()
    x: Expr = operand()
    turn: Expr = operand()
    delay: int = attr()
    step: int = attr()
    c: Layout = attr()
    shape: str = attr()
    pitch: int = attr()
    box: Box = attr()
