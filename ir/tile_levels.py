"""Tile ops of time levels in registers by partial sums: of rows (``stream``), and of planes (``column``).

On three axes a block keeps a column of the field and walks along the slowest axis, plane by plane.  The window of a
plane has ``warps * lines`` rows: ``lines`` adjacent ones a warp.  A lane owns 16 bytes of adjacent columns, so it is 32
times that wide.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr, Value
from .grid import Grid
from .node import Op, attr, buffer, define, operand, region
from .op import Tap
from .tile_rules import field, registers, same_type, shared, taps
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


@define("tile.if_border", kw_only=True)
class IfBorder(Op):
    """``near`` for tiles whose window reaches across a border that is not periodic, ``inside`` for all others.

    The window begins ``before`` cells before ``at`` and has ``size`` cells, on each axis.
    Only column lets a border hold at every level; a fetch or a copy asks for itself.
    """

    at: tuple[Expr, ...] = operand()
    before: tuple[int, ...] = attr()
    size: tuple[int, ...] = attr()
    grid: Grid = attr()
    near: tuple[Op, ...] = region()
    inside: tuple[Op, ...] = region()


@define("tile.mask", kw_only=True)
class Mask(Op):
    """Works out a value that its walk knows: which of a thread's cells of a plane are special, whatever the plane is.

    ``cells`` has them as bits line * columns + column.
    ``kind`` frozen: those that a frozen side of the two fastest axes keeps (``keep`` rows or columns from it);
    dirichlet: those beyond such a side.  The window begins ``lead`` before the tile ``at``; a thread has ``lines`` rows
    of ``per_lane`` columns.  Only column has cells that no turn changes.
    """

    cells: Expr = operand()
    kind: str = attr(one_of=("frozen", "dirichlet"))
    at: tuple[Expr, ...] = operand()
    lead: tuple[int, int] = attr()
    lines: int = attr()
    per_lane: int = attr()
    keep: tuple[int, int] = attr()
    grid: Grid = attr()


@define("tile.plane_levels", kw_only=True)
class PlaneLevels(Op):
    """``count`` time steps of the plane in ``values``, level by level, by partial sums.

    A plane is added to the 2 rz + 1 planes of the next level that it touches; ``sums`` holds for each level 2 rz
    unfinished planes, ``planes`` the plane that each level takes in.  A level lags ``lag`` planes behind the one
    before: rz for a star, whose planes are completed from their own place without neighbours, else rz + 1 (it takes
    what was completed a turn ago).  So all planes are known before the one barrier of a turn.  Afterwards
    ``values`` is the plane that has become complete at the last level.  Columns come from neighbouring lanes, rows from
    neighbouring warps through ``edges``.

    The field has sides: the border holds at every level: outside, dirichlet's cells are set and neumann's are read from
    the edge cell (radius 1 only); cells that a frozen side keeps pass through.
    Only column: two orders of levels, and a border's images between adds.
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
    lines: int = attr(least=1)
    above: int = attr()
    lead: tuple[int, int] = attr()
    grid: Grid = attr()


@check(Levels)
def _levels(op: Levels, ctx: Context) -> None:
    registers(ctx, op.values, 1)
    registers(ctx, op.sums, op.count * 2 * op.radius[0] * op.values.size)
    same_type(ctx, op.values, op.sums, op.weights)
    taps(ctx, op.weights, op.taps, len(op.radius))
    ctx.need(op.radius[1] <= op.values.size, f"a radius of {op.radius[1]} columns reaches beyond the neighbouring "
             f"lane, which has {op.values.size}")  # fmt: skip


@check(IfBorder)
def _if_border(op: IfBorder, ctx: Context) -> None:
    field(ctx, op.grid, at=len(op.at), before=len(op.before), size=len(op.size), sides=len(op.grid.sides))


@check(Mask)
def _mask(op: Mask, ctx: Context) -> None:
    ctx.need(isinstance(op.cells, Value), f"{op.cells} is no value that the walk knows")
    ctx.need(op.lines * op.per_lane <= 31, f"{op.lines * op.per_lane} cells a thread; a mask has 31 bits")
    field(ctx, op.grid, at=len(op.at), sides=len(op.grid.sides))


@check(PlaneLevels)
def _plane_levels(op: PlaneLevels, ctx: Context) -> None:
    n, (rz, ry, rx), per_lane = op.values.size, op.radius, op.values.size // op.lines
    registers(ctx, op.values, op.lines * per_lane, exactly=True)
    registers(ctx, op.sums, op.count * 2 * rz * n)
    registers(ctx, op.planes, (op.count if op.lag == rz else op.count + 1) * n)
    ctx.need(op.lag in (rz, rz + 1), f"a level lags {rz} or {rz + 1} planes behind the one before, not {op.lag}")
    warps = ctx.warps()
    shared(ctx, op.edges, 2 * op.count * warps * 2 * ry * 32 * per_lane, "the edges of two turns")
    same_type(ctx, op.values, op.sums, op.planes, op.edges, op.weights)
    ctx.need(ry <= op.lines and rx <= per_lane, f"a radius of {ry} rows and {rx} columns reaches beyond the "
             f"neighbouring thread, which has {op.lines} and {per_lane}")  # fmt: skip
    taps(ctx, op.weights, op.taps, len(op.radius))
    field(ctx, op.grid, at=len(op.at))
