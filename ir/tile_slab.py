"""Tile ops of blocks that walk down whole rows of a field on three axes (``slab``)."""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr
from .grid import Grid
from .node import Op, attr, buffer, define, operand
from .op import Tap
from .tile_rules import field, registers, same_type, shared, taps
from .tile_walk import FILLS
from .types import Buffer


@define("tile.fetch_slab", kw_only=True)
class FetchSlab(Op):
    """Starts a block's copies of a turn of a walk: ``rows`` whole rows of a plane of ``src``, into the turn's slot.

    The plane is that of turn ``turn``, ``above`` planes before ``at``, the tile's first cell; the first row lies
    ``before`` rows before it.  In the slot rows are ``width`` elements apart.  Rows and planes outside follow the
    field's sides; of those that hold a constant any cells are copied.  With ``bars`` each row is one bulk copy, whose
    bytes the turn's mbarrier ``bars[slot]`` counts; else all threads copy ``vector`` cells at once.  Only slab.
    """

    ring: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    bars: Buffer | None = buffer(default=None)
    at: tuple[Expr, ...] = operand()
    turn: Expr = operand()
    above: int = attr()
    before: int = attr()
    rows: int = attr()
    width: int = attr()
    stages: int = attr()
    vector: int = attr()
    grid: Grid = attr()


@define("tile.sum_plane", kw_only=True)
class SumPlane(Op):
    """Adds the plane of turn ``turn`` to the planes of outputs that it touches, and stores the one that is complete.

    ``threads`` (down, and across by whole warps) have ``lines`` adjacent rows of a piece of 16 bytes each.  A slot's
    rows are ``width`` elements apart; its first one lies the radius above the tile.  ``sums`` holds 2 rz unfinished
    planes of a thread's cells, ``own`` its cells of the last rz planes where a frozen side keeps some (``keep``: cells
    from the low and the high border of each axis).  Cells outside follow the sides of ``grid``, the field that is read;
    ``out_grid`` is that of ``dst``, of which ``vector`` cells are stored at once.  Only slab.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    ring: Buffer = buffer()
    sums: Buffer | None = buffer(writes=True, default=None)
    own: Buffer | None = buffer(writes=True, default=None)
    weights: Buffer = buffer()
    turn: Expr = operand()
    at: tuple[Expr, ...] = operand()
    taps: tuple[Tap, ...] = attr()
    radius: tuple[int, int, int] = attr()
    threads: tuple[int, int] = attr()
    lines: int = attr()
    stages: int = attr()
    width: int = attr()
    keep: tuple[tuple[int, int], ...] = attr()
    grid: Grid = attr()
    out_grid: Grid = attr()
    vector: int = attr()


FILLS.add(FetchSlab)


@check(FetchSlab)
def _fetch_slab(op: FetchSlab, ctx: Context) -> None:
    field(ctx, op.grid, op.src, at=len(op.at), sides=len(op.grid.sides))
    same_type(ctx, op.ring, op.src)
    ctx.need(len(op.at) == 3, f"planes of a field of {len(op.at)} axes")
    nx, piece = op.grid.extent[-1], 16 // op.src.dtype.nbytes
    ctx.need(not op.grid.ghosts, "rows with ghosts are those of layers")
    ctx.need(nx <= op.width, f"rows of {nx} cells, where a slot's are {op.width} apart")
    ctx.need(op.vector in (1, piece), f"{op.vector} cells at once are neither one nor a piece")
    pieces = all(n % op.vector == 0 for n in (nx, op.grid.pitch, op.width))
    ctx.need(pieces, f"rows of {nx} cells, {op.grid.pitch} apart, are no whole pieces of {op.vector}")
    if op.bars is not None:
        shared(ctx, op.bars, op.stages, "an mbarrier a slot")
        ctx.need(op.vector == piece, "bulk copies are of whole pieces", "let threads copy other rows")
        ctx.need(op.rows <= 32, f"{op.rows} rows, where a warp's lanes copy one each")
    shared(ctx, op.ring, op.stages * op.rows * op.width, f"{op.stages} slots")


@check(SumPlane)
def _sum_plane(op: SumPlane, ctx: Context) -> None:
    (rz, ry, _), (down, across), piece = op.radius, op.threads, 16 // op.dst.dtype.nbytes
    ctx.need(down * across == ctx.threads, f"{down} x {across} threads work, the block has {ctx.threads}")
    ctx.need(across % 32 == 0, f"{across} threads of a row are no whole warps")
    ctx.need(across * piece == op.width, f"{across} threads of {piece} columns, where rows are {op.width} apart")
    field(ctx, op.grid, at=len(op.at), sides=len(op.grid.sides))
    field(ctx, op.out_grid, op.dst, at=len(op.at), keep=len(op.keep))
    ctx.need(op.grid.extent[-1] <= op.width, f"rows of {op.grid.extent[-1]} cells of {op.width}")
    shared(ctx, op.ring, op.stages * (down * op.lines + 2 * ry) * op.width, f"{op.stages} slots")
    cells = op.lines * piece
    for regs, planes, what in ((op.sums, 2 * rz, "sums"), (op.own, rz * any(map(any, op.keep)), "own cells")):
        ctx.need(
            (regs is not None) == (planes > 0), f"{planes} planes of {what}: {'no' if planes else 'some'} registers"
        )
        if regs is not None:
            registers(ctx, regs, planes * cells)
            same_type(ctx, op.dst, regs)
    same_type(ctx, op.dst, op.ring, op.weights)
    taps(ctx, op.weights, op.taps, 3)
    ctx.need(op.vector in (1, piece), f"{op.vector} cells at once are neither one nor a piece")
