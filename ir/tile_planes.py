"""Tile ops for three axes: a block keeps a column of the field and walks along the slowest axis, plane by plane.

The window of a plane has ``warps * lines`` rows: ``lines`` adjacent ones a warp.  A lane owns 16 bytes of adjacent
columns, so it is 32 times that wide.
"""

from __future__ import annotations

from .expr import Expr, Value
from .node import Op, attr, bind, buffer, declare, define, operand, region
from .op import Box, Sides, Tap
from .types import Buffer


@define("tile.if_border")
class IfBorder(Op):
    """``near`` for tiles whose window reaches across a border that is not periodic, ``inside`` for all others.

    The window begins ``before`` cells before ``at`` and has ``size`` cells, on each axis.
    """

    at: tuple[Expr, ...] = operand()
    before: tuple[int, ...] = attr()
    size: tuple[int, ...] = attr()
    extent: tuple[int, ...] = attr()
    sides: Sides = attr()
    near: tuple[Op, ...] = region()
    inside: tuple[Op, ...] = region()


@define("tile.planes")
class Planes(Op):
    """Walks over ``planes`` planes from at[0] - ``above`` on; the body runs once for each.

    ``values`` holds this thread's ``lines`` x columns of the plane, ``turn`` counts from 0.  The window begins ``lead``
    rows and columns before the tile.  ``stages`` planes of ``ring`` are under way; a warp fetches what itself reads, in
    pieces of ``vector`` cells that lie side by side in its lanes, so there is no barrier.  Cells outside the ``extent``
    wrap where ``sides`` are periodic, else they are any cell.
    ``kept`` and ``outside`` are masks of this thread's cells (bit line * columns + column): those that a frozen side of
    the two fastest axes keeps (``keep`` rows or columns from it), and those beyond a dirichlet one.
    """

    values: Buffer = declare()
    turn: Value = bind()
    kept: Value = bind()
    outside: Value = bind()
    ring: Buffer = buffer(writes=True)
    src: Buffer = buffer()
    at: tuple[Expr, ...] = operand()
    planes: int = attr()
    above: int = attr()
    lead: tuple[int, int] = attr()
    lines: int = attr()
    stages: int = attr()
    extent: tuple[int, ...] = attr()
    pitch: int = attr()
    sides: Sides = attr()
    keep: tuple[int, int] = attr()
    vector: int = attr()
    body: tuple[Op, ...] = region()


@define("tile.plane_levels")
class PlaneLevels(Op):
    """``count`` time steps of the plane in ``values``, level by level, by partial sums.

    A plane is added to the 2 rz + 1 planes of the next level that it touches; ``sums`` holds for each level 2 rz
    unfinished planes, ``planes`` the plane that each level takes in.  A level lags ``lag`` planes behind the one
    before: rz for a star, whose planes are completed from their own place without neighbours, else rz + 1 (it takes
    what was completed a turn ago).  So all planes are known before the one barrier of a turn.  Afterwards
    ``values`` is the plane that has become complete at the last level.  Columns come from neighbouring lanes, rows from
    neighbouring warps through ``edges``.

    ``sides`` not empty: the border holds at every level: outside, dirichlet's cells are set and neumann's are read from
    the edge cell (radius 1 only); cells that a frozen side keeps pass through.
    """

    values: Buffer = buffer(writes=True)
    sums: Buffer = buffer(writes=True)
    planes: Buffer = buffer(writes=True)
    edges: Buffer = buffer(writes=True)
    weights: Buffer = buffer()
    turn: Expr = operand()
    kept: Expr = operand()
    outside: Expr = operand()
    at: tuple[Expr, ...] = operand()
    taps: tuple[Tap, ...] = attr()
    radius: tuple[int, int, int] = attr()
    count: int = attr()
    lag: int = attr()
    lines: int = attr()
    above: int = attr()
    lead: tuple[int, int] = attr()
    extent: tuple[int, ...] = attr()
    sides: Sides = attr(default=())


@define("tile.store_plane")
class StorePlane(Op):
    """Stores the plane in ``values`` as output plane at[0] + ``turn`` - ``delay``, once there is one, inside ``box``.

    Of the window the rows and columns ``lead`` ... ``lead + step - 1`` are the tile's.  If they are stored ``vector``
    at a time, fewer than a lane has, they go through the warp's rows of ``ring``, so that lanes store adjacent cells.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    values: Buffer = buffer()
    ring: Buffer = buffer(writes=True)
    turn: Expr = operand()
    at: tuple[Expr, ...] = operand()
    delay: int = attr()
    lines: int = attr()
    stages: int = attr()
    lead: tuple[int, int] = attr()
    step: tuple[int, int] = attr()
    extent: tuple[int, ...] = attr()
    pitch: int = attr()
    box: Box = attr()
    vector: int = attr()
