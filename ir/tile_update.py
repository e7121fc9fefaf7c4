"""The tile level of general updates: a formula worked out for a tile of cells, or level by level for a row of them."""

from __future__ import annotations

from math import prod

from .checks import Context, check
from .expr import Expr
from .formula import Code, problem, reads
from .grid import Grid
from .layout import Layout
from .node import Op, attr, buffer, define, operand
from .numbers.rows import Rows
from .op import Sides, check_sides
from .tile_rules import axes, field, registers, same_type, scalars, shared
from .types import Buffer


@define("tile.update", kw_only=True)
class Update(Op):
    """Works ``code`` out for the cells of the tile that starts at ``at`` and stores the results.

    ``threads`` stand on each axis as given, each with ``rows`` adjacent cells of a column (the last axis but one; 1 on
    one axis).  ``grids``: the fields that ``srcs``, then ``outs``, are.  ``reads`` names the parameter and time level
    of each of ``srcs``; cells outside follow its sides (``frozen``: the edge cell).  Result i goes to ``outs[i]``,
    except where ``keep[i]`` (cells from the low and the high border of each axis) says that the cell keeps the value it
    has in ``srcs[old[i]]``.  ``scalars``: those of the step, in the constant bank.
    Only pointwise: any formula of many fields, which no sum of weighted taps (``tile.points``) is.
    """

    outs: tuple[Buffer, ...] = buffer(writes=True, reads=False)
    srcs: tuple[Buffer, ...] = buffer()
    at: tuple[Expr, ...] = operand()
    reads: tuple[tuple[str, int], ...] = attr()
    code: Code = attr()
    results: tuple[int, ...] = attr()
    threads: tuple[int, ...] = attr()
    rows: int = attr()
    grids: tuple[Grid, ...] = attr()
    old: tuple[int, ...] = attr()
    keep: tuple[tuple[tuple[int, int], ...], ...] = attr()
    scalars: Buffer | None = buffer(default=None)


@define("tile.copy_field", kw_only=True)
class CopyField(Op):
    """Copies the field ``grids[0]`` to ``grids[1]``, whose rows lie otherwise and may have ghosts.

    A thread takes a place of ``lines`` rows one below the other, ghosts among them; places lie side by side in a warp,
    so that no address needs to be aligned.  Only copies between passes over a grid.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    grids: tuple[Grid, Grid] = attr()
    lines: int = attr()

    @property
    def items(self) -> int:
        """Threads that there are places for."""
        (*rows, n), ghosts = self.grids[1].extent, self.grids[1].ghosts
        return -(-prod(rows) // self.lines) * (n + 2 * ghosts)


@define("tile.update_levels", kw_only=True)
class UpdateLevels(Op):
    """``count`` time steps of the rows in ``news``, level by level: ``code`` is worked out from rows that are kept.

    ``news`` has the newest row of each of ``fields`` (name, time levels); afterwards the one that the last level has
    made.  ``kept`` holds the rows of all levels that later turns need (:class:`sparsegen.ir.numbers.rows.Rows` says
    which), ``olds`` gets the rows of the levels before the last that are results too.  Older levels of the input and
    coefficients wait in ``rings``, ``stages`` rows of each under way; ``layout`` places a column of a slot.
    Neighbouring columns come from neighbouring lanes (each level spoils a radius of columns at both ends).

    ``sides`` are those of each field, then of the coefficients (``frozen``: the edge cell).  They hold at every level:
    cells outside are set before others read them, frozen ones keep their value.  Without them nothing is near a border;
    with ``rows`` false no row is, of the turns in which this is done.
    ``scalars``: those of each level, in the constant bank.

    Only stream: any formula of many fields, which partial sums (``tile.levels``) are not.
    """

    news: tuple[Buffer, ...] = buffer(writes=True)
    olds: tuple[Buffer, ...] = buffer(writes=True, reads=False)
    kept: tuple[Buffer, ...] = buffer(writes=True)
    rings: tuple[Buffer, ...] = buffer()
    turn: Expr = operand()
    at: tuple[Expr, ...] = operand()
    fields: tuple[tuple[str, int], ...] = attr()
    code: Code = attr()
    results: tuple[int, ...] = attr()
    count: int = attr()
    stages: int = attr()
    layout: Layout = attr()
    grid: Grid = attr()
    sides: tuple[Sides, ...] = attr(default=())
    rows: bool = attr(default=True)
    scalars: Buffer | None = buffer(default=None)

    @property
    def numbers(self) -> Rows:
        """What is kept and what waits; how many rows a tile has does not matter here."""
        row = self.news[0]
        return rows_of(self.code, self.fields, row.dtype.nbytes, self.count, per_lane=row.size, stages=self.stages)


def rows_of(
    code: Code, fields: tuple[tuple[str, int], ...], nbytes: int, levels: int, *, per_lane: int, stages: int,
    rows: int = 1, warps: int = 1,
) -> Rows:  # fmt: skip
    """The numbers of a formula on two axes."""
    found = [(name, level, (offset[0], offset[1])) for name, level, offset in reads(code)]
    return Rows(
        reads=found, fields=dict(fields), levels=levels, nbytes=nbytes, per_lane=per_lane, rows=rows, warps=warps,
        stages=stages,
    )  # fmt: skip


@check(UpdateLevels)
def _update_levels(op: UpdateLevels, ctx: Context) -> None:
    count = len(op.fields)
    ctx.need(len(op.news) == len(op.kept) == len(op.results) == count >= 1, f"rows and results of {count} fields")
    ctx.need(op.count >= 1 and op.stages >= 2, f"{op.count} levels, {op.stages} rows under way")
    wrong = problem(op.code, op.results, dict(op.fields), 2, others=1)
    ctx.need(wrong is None, str(wrong))
    scalars(ctx, op.code, op.scalars, op.news[0].dtype, op.count)
    field(ctx, op.grid, at=len(op.at))
    n, per_lane = op.numbers, op.news[0].size
    ctx.need((why := n.legal(per_lane, op.grid.extent)) is None, str(why))
    same_type(ctx, *op.news, *op.olds, *op.kept, *op.rings)
    for new, kept, (name, _) in zip(op.news, op.kept, op.fields, strict=True):
        registers(ctx, new, per_lane, exactly=True)
        registers(ctx, kept, op.count * n.depth(name) * per_lane)
    back = [made for made in n.outputs if made[1]]
    ctx.need(len(op.olds) == len(back), f"{len(op.olds)} rows for {len(back)} older results")
    for old in op.olds:
        registers(ctx, old, per_lane, exactly=True)
    ctx.need(len(op.rings) == len(n.waiting), f"{len(op.rings)} rings for {len(n.waiting)} arrays that wait")
    for ring, waiting in zip(op.rings, n.waiting.values(), strict=True):
        shared(ctx, ring, ctx.warps() * waiting.slots * op.layout.size(), f"{waiting.slots} slots of all warps")
    ctx.need(len(op.sides) in (0, count + 1), f"{len(op.sides)} boundaries of {count} fields and of the coefficients")
    for sides in op.sides:
        axes(ctx, op.grid.extent, sides=len(sides))
        check_sides(ctx, sides)


@check(CopyField)
def _copy_field(op: CopyField, ctx: Context) -> None:
    src, dst = op.grids
    same_type(ctx, op.src, op.dst)
    for buf, grid in zip((op.src, op.dst), op.grids, strict=True):
        field(ctx, grid, buf)
    ctx.need(src.extent == dst.extent, f"a field of {list(src.extent)} cells is copied to one of {list(dst.extent)}")
    ctx.need(not src.ghosts, "ghosts are made of cells, not of other ghosts")
    ctx.need(op.lines >= 1, f"{op.lines} rows of a thread")


@check(Update)
def _update(op: Update, ctx: Context) -> None:
    ctx.need(len(op.reads) == len(op.srcs), f"{len(op.reads)} reads of {len(op.srcs)} arrays")
    ctx.need(len(op.grids) == len(op.srcs) + len(op.outs), f"{len(op.grids)} fields of "
             f"{len(op.srcs) + len(op.outs)} arrays")  # fmt: skip
    extent = op.grids[0].extent
    axes(ctx, extent, threads=len(op.threads))
    for buf, grid in zip((*op.srcs, *op.outs), op.grids, strict=True):
        field(ctx, grid, buf, at=len(op.at))
    ctx.need(prod(op.threads) == ctx.threads, f"{prod(op.threads)} threads work, the block has {ctx.threads}")
    count = len(op.outs)
    ctx.need(len(op.results) == len(op.old) == len(op.keep) == count, f"results, old values and kept cells of {count} "
             "arrays")  # fmt: skip
    ctx.need(all(0 <= at < len(op.code) for at in op.results), f"a result is none of {len(op.code)} steps")
    scalars(ctx, op.code, op.scalars, op.outs[0].dtype, 1)
    ctx.need(all(0 <= at < len(op.srcs) for at in op.old), f"an old value is none of {len(op.srcs)} arrays")
