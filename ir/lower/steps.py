"""``tile.steps``: exact time steps of a small window, for the rim that time fusion gets wrong.

The steps are a loop: written one after the other, 56 of them are 180 KB of instructions, each fetched from DRAM once.
"""

from __future__ import annotations

from .. import tile as t
from ..boundary_map import map_index
from ..expr import FALSE, TRUE, Expr, Value, all_of
from ..grid import keep, kept
from ..layout import layout
from .context import Context, rule
from .copy import read_mapped


@rule(t.Steps)
def steps(cx: Context, op: t.Steps) -> None:
    b, (ny, nx), (ry, rx), sides = cx.b, op.grid.extent, op.radius, op.grid.sides
    y, x = map(cx.resolve, op.at)
    frozen = keep(op.radius, sides)
    w = [b.ld(op.weights, i, hint="w") for i in range(len(op.taps))]
    across = op.cols - 2 * rx  # of all steps, so that rows are found by dividing by a constant
    inner = layout({"r": op.rows - 2 * ry, "c": across}, lambda r, c: op.layout(r + ry, c + rx))
    straight = inner.walk_degree(op.levels.dtype.nbytes)
    # a mirrored or clamped read joins two runs of cells in one request
    degree = straight if all(s[0][0] == "periodic" for s in sides) else 2 * straight
    with b.for_("s", 1, op.steps + 1, unroll=1) as s:
        b.barrier()
        old = b.let("old", (s + 1) % 2 * op.layout.size())
        new = b.let("new", s % 2 * op.layout.size())
        with b.for_("e", cx.tid, (op.rows - 2 * ry * s) * across, cx.func.threads) as e:
            r, c = b.let("r", e // across + ry * s, hi=op.rows - 1), b.let("c", e % across + rx)
            row, col = b.let("row", y + r), b.let("col", x + c)
            # along a periodic axis the window goes on past the border; along the others cells outside do not exist
            real = (_within(i, n, s) for i, n, s in ((row, ny, sides[0]), (col, nx, sides[1])))

            def cell() -> None:
                total = None
                for i, ((oy, ox), _) in enumerate(op.taps):
                    u = _neighbour(cx, op, old, (row + oy, r + oy), (col + ox, c + ox), (y, x), degree)
                    total = cx.plus(total, w[i], u)
                assert total is not None
                stays = kept((row, col), op.grid.extent, frozen)
                if stays != FALSE:
                    before = b.ld(op.levels, old + op.layout(r, c), hint="before", degree=straight)
                    total = b.select(b.let("kept", stays), before, total)
                b.st(op.levels, new + op.layout(r, c), total, degree=straight)

            cx.guard(all_of(c.ge(rx * s), c.lt(op.cols - rx * s), *real), cell)


def _within(i: Expr, n: int, side: tuple[tuple[str, float], tuple[str, float]]) -> Expr:
    return TRUE if side[0][0] == "periodic" else all_of(i.ge(0), i.lt(n))


def _neighbour(
    cx: Context, op: t.Steps, slot: Expr, row: tuple[Expr, Expr], col: tuple[Expr, Expr], corner: tuple[Expr, Expr],
    degree: int,
) -> Value:  # fmt: skip
    """The value at a neighbour: straight from the window, or mapped where a border that is not periodic is crossed."""
    index, mapped = [], []
    for (cell, local), n, side, first in zip((row, col), op.grid.extent, op.grid.sides, corner, strict=True):
        if side[0][0] == "periodic":
            index.append(local)
        else:
            m = map_index(cell, n, side)
            index.append(m.index - first)
            mapped.append(m)
    return read_mapped(cx, op.levels, slot + op.layout(*index), tuple(mapped), degree)
