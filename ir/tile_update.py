"""The tile level of general updates: a formula worked out for a tile of cells."""

from __future__ import annotations

from math import prod

from .checks import Context, check
from .expr import Expr
from .formula import Code
from .grid import Grid
from .node import Op, attr, buffer, define, operand
from .tile_rules import axes, field
from .types import Buffer


@define("tile.update", kw_only=True)
class Update(Op):
    """Works ``code`` out for the cells of the tile that starts at ``at`` and stores the results.

    ``threads`` stand on each axis as given, each with ``rows`` adjacent cells of a column (the last axis but one; 1 on
    one axis).  ``grids``: the fields that ``srcs``, then ``outs``, are.  ``reads`` names the parameter and time level
    of each of ``srcs``; cells outside follow its sides (``frozen``: the edge cell).  Result i goes to ``outs[i]``,
    except where ``keep[i]`` (cells from the low and the high border of each axis) says that the cell keeps the value it
    has in ``srcs[old[i]]``.
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
    ctx.need(all(0 <= at < len(op.srcs) for at in op.old), f"an old value is none of {len(op.srcs)} arrays")
