"""The tile op of updates on three axes that threads make plane by plane, out of registers and the caches."""

from __future__ import annotations

from math import prod

from .checks import Context, check
from .expr import Expr
from .formula import Code, problem
from .grid import Grid
from .node import Op, attr, buffer, define, operand
from .numbers.march import March as Numbers
from .tile_layers import layer_reads
from .tile_rules import axes, field, registers, same_type, scalars
from .types import Buffer


@define("tile.march", kw_only=True)
class March(Op):
    """Works ``code`` out for a tile of ``planes`` planes that starts at ``at``, one after the other, and stores it.

    ``threads`` (down, and across by whole warps) have ``lines`` adjacent rows of 16 bytes each.  ``kept`` holds for
    each array of ``reads`` (parameter and time level; those of ``srcs``) what a thread reads again in later planes and
    what it has asked for ahead (:class:`sparsegen.ir.numbers.march.March` says which); nothing is shared but by
    shuffles and the caches.  ``grids``: the fields that ``srcs``, then ``outs``, are; cells outside follow their sides.
    ``vectors``: how many cells of each move at once, a piece or one; where all of ``srcs`` say a piece, tiles that lie
    inside along the rows load whole pieces, others cell by cell.
    Result i goes to ``outs[i]``, except where ``keep[i]`` (cells from the low and the high border of each axis) says
    that the cell keeps its value.  ``scalars``: those of the step, in the constant bank.  Only march.
    """

    outs: tuple[Buffer, ...] = buffer(writes=True, reads=False)
    srcs: tuple[Buffer, ...] = buffer()
    kept: tuple[Buffer, ...] = buffer(writes=True)
    at: tuple[Expr, ...] = operand()
    planes: int = attr()
    reads: tuple[tuple[str, int], ...] = attr()
    fields: tuple[tuple[str, int], ...] = attr()
    code: Code = attr()
    results: tuple[int, ...] = attr()
    threads: tuple[int, int] = attr()
    lines: int = attr()
    grids: tuple[Grid, ...] = attr()
    vectors: tuple[int, ...] = attr()
    keep: tuple[tuple[tuple[int, int], ...], ...] = attr()
    unroll: int = attr(default=1)
    scalars: Buffer | None = buffer(default=None)

    @property
    def numbers(self) -> Numbers:
        """What a thread keeps."""
        return march_of(self.code, self.fields, self.outs[0].dtype.nbytes, self.lines)


def march_of(code: Code, fields: tuple[tuple[str, int], ...], nbytes: int, lines: int) -> Numbers:
    """The numbers of a formula on three axes."""
    return Numbers(reads=layer_reads(code, fields), nbytes=nbytes, lines=lines)


@check(March)
def _march(op: March, ctx: Context) -> None:
    count = len(op.fields)
    ctx.need(len(op.outs) == len(op.keep) == len(op.results) == count >= 1,
             f"results, kept cells and arrays of {count} fields")  # fmt: skip
    ctx.need(len(op.grids) == len(op.vectors) == len(op.srcs) + count,
             f"{len(op.grids)} fields of {len(op.srcs) + count} arrays")  # fmt: skip
    extent = op.grids[0].extent
    axes(ctx, extent, at=len(op.at))
    ctx.need(len(extent) == 3, f"planes of a field of {len(extent)} axes")
    for buf, grid in zip((*op.srcs, *op.outs), op.grids, strict=True):
        field(ctx, grid, buf, at=len(op.at))
        ctx.need(not grid.ghosts, "rows with ghosts are those of layers")
    wrong = problem(op.code, op.results, dict(op.fields), 3, others=1)
    ctx.need(wrong is None, str(wrong))
    scalars(ctx, op.code, op.scalars, op.outs[0].dtype, 1)
    ctx.need(prod(op.threads) == ctx.threads, f"{prod(op.threads)} threads work, the block has {ctx.threads}")
    ctx.need(op.threads[1] % 32 == 0, f"{op.threads[1]} threads of a row are no whole warps")
    n = op.numbers
    for wide, grid in zip(op.vectors, op.grids, strict=True):
        ok = wide == 1 or (wide == n.piece and grid.pitch % n.piece == 0)
        ctx.need(ok, f"{wide} cells at once of rows {grid.pitch} apart are neither one nor a piece")
    ctx.need(op.reads == tuple(n.held), f"{len(op.reads)} reads of {len(n.held)} arrays")
    ctx.need(len(op.srcs) == len(op.kept) == len(op.reads), f"arrays and registers of {len(op.reads)} reads")
    for regs, held in zip(op.kept, n.held.values(), strict=True):
        registers(ctx, regs, held.size, exactly=True)
        ctx.need(held.reach <= n.piece, f"{held.reach} columns beside a cell, where a lane has {n.piece}",
                 "take a family that reaches further")  # fmt: skip
    same_type(ctx, *op.outs, *op.srcs, *op.kept)
