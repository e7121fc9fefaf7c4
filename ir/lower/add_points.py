"""``tile.points`` on accumulators of an mma: a lane has pairs of adjacent cells; what both need is loaded once.

Tiles at a border go tap by tap, in a loop that is not unrolled: nvcc has no registers for all their mapped addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby

from .. import tile as t
from ..boundary_map import Mapped, map_index
from ..expr import TRUE, Expr, Value, all_of, as_expr
from ..fragments import SHAPES
from ..spread import Products
from .context import Context
from .copy import read_mapped


@dataclass(frozen=True)
class _Pair:
    """Two adjacent outputs of a lane: the first one's cell, its accumulator, and whether the lane has them at all."""

    cell: tuple[Expr, ...]
    acc: Expr
    valid: Expr


def add_points(cx: Context, op: t.Points, spread: Products) -> None:
    """The points of a tile, added to accumulators that lie over the threads as ``spread`` says."""
    b, base = cx.b, SHAPES[spread.base]
    per_warp, regs = spread.products // spread.warps, len(base.c.elements)
    g, lane_t = cx.coordinates()
    *lead, y, x = map(cx.resolve, op.at)

    def pairs(visit: Callable[[_Pair], None]) -> None:
        with b.for_("i", 0, per_warp, unroll=0) as i:
            product = cx.warp * per_warp + i
            row, group = b.let("row", y + product % spread.rows), b.let("group", product // spread.rows * base.m + g)
            for n in range(spread.blocks):
                valid = (lane_t * 2 + 8 * n).lt(spread.group)
                for e in range(0, regs, 2):
                    m = base.c.elements[e](0, 0)[0]
                    col = b.let("col", x + (group + m) * spread.group + lane_t * 2 + 8 * n)
                    visit(_Pair((*lead, row, col), (i * spread.blocks + n) * regs + e, valid))

    size = (1,) * len(lead) + spread.size
    inside: list[Expr] = []
    for axis, (low, n) in enumerate(zip((*lead, y, x), size, strict=True)):
        reach = [offset[axis] for offset, _ in op.taps]
        inside += [low.ge(-min(reach)), (low + n).le(op.grid.extent[axis] - max(reach))]
    cx.branch(b.let("inner", all_of(*inside)), lambda: _inside(cx, op, pairs), lambda: _border(cx, op, lead, pairs))


def _inside(cx: Context, op: t.Points, pairs: Callable[[Callable[[_Pair], None]], None]) -> None:
    """All taps of a pair, row by row; two adjacent cells at once where both are needed."""
    b = cx.b
    weights = [b.ld(op.weights, i, hint="w") for i in range(len(op.taps))]
    rows = [(row, list(taps)) for row, taps in groupby(enumerate(op.taps), key=lambda tap: tap[1][0][:-1])]

    def add(pair: _Pair) -> None:
        where = None if pair.valid == TRUE else pair.valid
        here = b.let("here", op.grid.element(pair.cell))
        sums = [b.ld(op.acc, pair.acc + j, hint="s") for j in (0, 1)]
        for row, taps in rows:
            far = op.grid.row([as_expr(o) for o in row]) * op.grid.pitch
            cols = sorted({offset[-1] + j for _, (offset, _) in taps for j in (0, 1)})
            cells: dict[int, Value] = {}
            for c in cols:
                if c not in cells:
                    wide = 2 if op.vector == 2 and c % 2 == 0 and c + 1 in cols else 1
                    loaded = b.ldv(op.src, here + far + c, wide, where=where, hint="u")
                    cells |= {c + j: v for j, v in enumerate(loaded)}
            for i, (offset, _) in taps:
                sums = [b.fma(weights[i], cells[offset[-1] + j], s, hint="s") for j, s in enumerate(sums)]
        for j, s in enumerate(sums):
            b.st(op.acc, pair.acc + j, s)

    pairs(add)


def _border(cx: Context, op: t.Points, lead: list[Expr], pairs: Callable[[Callable[[_Pair], None]], None]) -> None:
    b, axes, offsets = cx.b, len(op.grid.extent), op.offsets
    assert offsets is not None

    def mapped(axis: int, at: Expr) -> Mapped:
        m = map_index(at, op.grid.extent[axis], op.grid.sides[axis])
        return replace(m, index=b.let("at", m.index))

    with b.for_("tap", 0, len(op.taps), unroll=1) as tap:
        weight = b.ld(op.weights, tap, hint="w")
        reach = [[offset[axis] for offset, _ in op.taps] for axis in range(axes)]
        far = [
            b.ld(offsets, tap * axes + axis, cache="nc", hint="far", lo=min(reach[axis]), hi=max(reach[axis]))
            for axis in range(axes)
        ]
        planes = [mapped(axis, first + far[axis]) for axis, first in enumerate(lead)]

        def add(pair: _Pair) -> None:
            row = mapped(axes - 2, pair.cell[-2] + far[-2])
            for j in (0, 1):
                at = (*planes, row, mapped(axes - 1, pair.cell[-1] + far[-1] + j))
                cell = read_mapped(cx, op.src, op.grid.element([m.index for m in at]), at)
                b.st(op.acc, pair.acc + j, b.fma(weight, cell, b.ld(op.acc, pair.acc + j, hint="s")))

        pairs(add)
