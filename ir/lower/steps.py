"""``tile.steps`` and ``tile.put``: exact time steps of a small window, for the rim that time fusion gets wrong.

The steps are a loop: written one after the other, 56 of them are 180 KB of instructions, each fetched from DRAM once.
"""

from __future__ import annotations

from .. import tile as t
from ..boundary_map import map_index
from ..expr import FALSE, TRUE, Expr, Value, all_of, any_of
from ..layout import layout
from .context import Context, rule
from .copy import read_mapped


@rule(t.Steps)
def steps(cx: Context, op: t.Steps) -> None:
    b, (ny, nx), (ry, rx) = cx.b, op.extent, op.radius
    y, x = cx.resolve(op.y), cx.resolve(op.x)
    w = [b.ld(op.weights, i, hint="w") for i in range(len(op.taps))]
    across = op.cols - 2 * rx  # of all steps, so that rows are found by dividing by a constant
    inner = layout({"r": op.rows - 2 * ry, "c": across}, lambda r, c: op.layout(r + ry, c + rx))
    straight = inner.walk_degree(op.levels.dtype.nbytes)
    # a mirrored or clamped read joins two runs of cells in one request
    degree = straight if all(s[0][0] == "periodic" for s in op.sides) else 2 * straight
    with b.for_("s", 1, op.steps + 1, unroll=1) as s:
        b.barrier()
        old = b.let("old", (s + 1) % 2 * op.layout.size())
        new = b.let("new", s % 2 * op.layout.size())
        with b.for_("e", cx.tid, (op.rows - 2 * ry * s) * across, cx.func.threads) as e:
            r, c = b.let("r", e // across + ry * s, hi=op.rows - 1), b.let("c", e % across + rx)
            row, col = b.let("row", y + r), b.let("col", x + c)
            # along a periodic axis the window goes on past the border; along the others cells outside do not exist
            real = (_within(i, n, s) for i, n, s in ((row, ny, op.sides[0]), (col, nx, op.sides[1])))

            def cell() -> None:
                total = None
                for i, ((oy, ox), _) in enumerate(op.taps):
                    u = _neighbour(cx, op, old, (row + oy, r + oy), (col + ox, c + ox), (y, x), degree)
                    total = b.binary("mul", w[i], u, hint="s") if total is None else b.fma(w[i], u, total, hint="s")
                assert total is not None
                keep = any_of(*_kept(op, row, col))
                if keep != FALSE:
                    before = b.ld(op.levels, old + op.layout(r, c), hint="before", degree=straight)
                    total = b.select(b.let("kept", keep), before, total)
                b.st(op.levels, new + op.layout(r, c), total, degree=straight)

            cx.guard(all_of(c.ge(rx * s), c.lt(op.cols - rx * s), *real), cell)


def _within(i: Expr, n: int, side: tuple[tuple[str, float], tuple[str, float]]) -> Expr:
    return TRUE if side[0][0] == "periodic" else all_of(i.ge(0), i.lt(n))


def _kept(op: t.Steps, row: Expr, col: Expr) -> list[Expr]:
    out: list[Expr] = []
    for axis, (i, n) in enumerate(((row, op.extent[0]), (col, op.extent[1]))):
        radius = op.radius[axis]
        low, high = op.sides[axis]
        out += [i.lt(radius)] if low[0] == "frozen" else []
        out += [i.ge(n - radius)] if high[0] == "frozen" else []
    return out


def _neighbour(
    cx: Context, op: t.Steps, slot: Expr, row: tuple[Expr, Expr], col: tuple[Expr, Expr], corner: tuple[Expr, Expr],
    degree: int,
) -> Value:  # fmt: skip
    """The value at a neighbour: straight from the window, or mapped where a border that is not periodic is crossed."""
    index, mapped = [], []
    for (cell, local), n, side, first in (
        (row, op.extent[0], op.sides[0], corner[0]),
        (col, op.extent[1], op.sides[1], corner[1]),
    ):
        if side[0][0] == "periodic":
            index.append(local)
        else:
            m = map_index(cell, n, side)
            index.append(m.index - first)
            mapped.append(m)
    return read_mapped(cx, op.levels, slot + op.layout(*index), tuple(mapped), degree)


@rule(t.Put)
def put(cx: Context, op: t.Put) -> None:
    b, y, x = cx.b, cx.resolve(op.y), cx.resolve(op.x)
    inner = layout({"r": op.rows, "c": op.cols}, lambda r, c: op.layout(r + op.margin[0], c + op.margin[1]))
    degree = inner.walk_degree(op.src.dtype.nbytes)
    with b.for_("e", cx.tid, op.rows * op.cols, cx.func.threads) as e:
        r, c = b.let("r", e // op.cols), b.let("c", e % op.cols)
        row, col = b.let("row", y + r), b.let("col", x + c)

        def cell() -> None:
            value = b.ld(op.src, op.layout(r + op.margin[0], c + op.margin[1]), degree=degree)
            b.st(op.dst, row * op.pitch + col, cx.convert(value, op.dst.dtype))

        cx.guard(b.let("in", all_of(row.lt(cx.resolve(op.y_end)), col.lt(cx.resolve(op.x_end)))), cell)
