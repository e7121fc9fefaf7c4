"""The tile level of general updates: a formula worked out for a tile of cells."""

from __future__ import annotations

from math import prod

from .checks import Context, check
from .expr import Expr
from .formula import Code
from .node import Op, attr, buffer, define, operand
from .op import Sides
from .tile_rules import axes, rows_of
from .types import Buffer


@define("tile.update", kw_only=True)
class Update(Op):
    """Works ``code`` out for the cells of the tile that starts at ``at`` and stores the results.

    ``threads`` stand on each axis as given, each with ``rows`` adjacent cells of a column (the last axis but one; 1 on
    a 1-D domain of ``extent``).  ``reads`` names the parameter and time
    level that each of ``srcs`` is; cells outside the domain follow its ``sides`` (``frozen``: the edge cell).  Result
    i goes to ``outs[i]``, except where ``keep[i]`` (cells from the low and the high border of each axis) says that the
    cell keeps the value it has in ``srcs[old[i]]``.  ``pitch``: elements from row to row of each of ``srcs``, then of
    each of ``outs``.
    """

    outs: tuple[Buffer, ...] = buffer(writes=True, reads=False)
    srcs: tuple[Buffer, ...] = buffer()
    at: tuple[Expr, ...] = operand()
    reads: tuple[tuple[str, int], ...] = attr()
    code: Code = attr()
    results: tuple[int, ...] = attr()
    threads: tuple[int, ...] = attr()
    rows: int = attr()
    extent: tuple[int, ...] = attr()
    pitch: tuple[int, ...] = attr()
    sides: tuple[Sides, ...] = attr()
    old: tuple[int, ...] = attr()
    keep: tuple[tuple[tuple[int, int], ...], ...] = attr()


@check(Update)
def _update(op: Update, ctx: Context) -> None:
    axes(ctx, op.extent, at=len(op.at), threads=len(op.threads))
    ctx.need(prod(op.threads) == ctx.threads, f"{prod(op.threads)} threads work, the block has {ctx.threads}")
    ctx.need(len(op.reads) == len(op.srcs) == len(op.sides), f"{len(op.reads)} reads of {len(op.srcs)} arrays, with "
             f"sides of {len(op.sides)}")  # fmt: skip
    ctx.need(len(op.pitch) == len(op.srcs) + len(op.outs), f"{len(op.pitch)} pitches of "
             f"{len(op.srcs) + len(op.outs)} arrays")  # fmt: skip
    for buf, pitch in zip((*op.srcs, *op.outs), op.pitch, strict=True):
        rows_of(ctx, buf, op.extent, pitch)
    count = len(op.outs)
    ctx.need(len(op.results) == len(op.old) == len(op.keep) == count, f"results, old values and kept cells of {count} "
             "arrays")  # fmt: skip
    ctx.need(all(0 <= at < len(op.code) for at in op.results), f"a result is none of {len(op.code)} steps")
    ctx.need(all(0 <= at < len(op.srcs) for at in op.old), f"an old value is none of {len(op.srcs)} arrays")
