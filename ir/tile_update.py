"""The tile level of general updates: a formula worked out for a tile of cells."""

from __future__ import annotations

from .expr import Expr
from .formula import Code
from .node import Op, attr, buffer, define, operand
from .op import Sides
from .types import Buffer


@define("tile.update")
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
