"""``tile.points``: weighted sums on the CUDA cores, from a register window over shared memory or cell by cell."""

from __future__ import annotations

from .. import tile as t
from ..expr import Expr, Value, all_of, as_expr
from ..spread import Products, Threads
from .add_points import add_points
from .context import Context, rule
from .copy import read_mapped


@rule(t.Points)
def points(cx: Context, op: t.Points) -> None:
    cx.alloc(op.new)
    if isinstance(op.spread, Products):
        add_points(cx, op, op.spread)
    else:
        (_from_global if op.layout is None else _from_shared)(cx, op, op.spread)


def _weights(cx: Context, op: t.Points) -> list[Value]:
    return [cx.b.ld(op.weights, i, hint="w") for i in range(len(op.taps))]


def _from_shared(cx: Context, op: t.Points, spread: Threads) -> None:
    """A thread slides down its window: each row segment is read once and added to every output that it touches."""
    b = cx.b
    assert op.layout is not None
    ty, tx = cx.place(spread.shape)
    base = cx.slot_base(op.src, op.slot)
    w = _weights(cx, op)
    dy = [o[0] for (o, _) in op.taps]
    dx = [o[1] for (o, _) in op.taps]
    (per_y, per_x), first = (spread.per_y, spread.per_x), op.before[1] + min(dx)
    lead = first % per_x  # the segment starts at an aligned element
    span = -(-(lead + per_x + max(dx) - min(dx)) // per_x) * per_x
    top, left = b.let("top", ty * per_y), b.let("left", tx * per_x)
    sums: dict[tuple[int, int], Value] = {}
    for r in range(min(dy), per_y + max(dy)):
        row = top + (r + op.before[0])
        at = base + op.layout(row, left + (first - lead))
        seg: list[Value] = []
        for p in range(0, span, per_x):
            seg += [cx.convert(u, op.acc.dtype) for u in b.ldv(op.src, at + p, per_x, hint="u")]
        for j in range(per_y):
            for i, (ty_off, tx_off) in enumerate(zip(dy, dx, strict=True)):
                if j + ty_off == r:
                    for c in range(per_x):
                        sums[j, c] = cx.plus(sums.get((j, c)), w[i], seg[lead + c + tx_off - min(dx)])
    for j in range(per_y):
        for c in range(per_x):
            b.st(op.acc, j * per_x + c, sums[j, c])


def _from_global(cx: Context, op: t.Points, spread: Threads) -> None:
    """One output a thread, neighbours through the cache; threads near a border map their reads."""
    b, grid = cx.b, op.grid
    ty, tx = cx.place(spread.shape)
    w = _weights(cx, op)
    *lead, y, x = map(cx.resolve, op.at)
    row, col = b.let("row", y + ty), b.let("col", x + tx)
    at = (*lead, row, col)
    line = b.let("line", grid.row(at[:-1])) if lead else row

    def total(mapped: bool) -> None:
        s = None
        for i, (offset, _) in enumerate(op.taps):
            if mapped:
                u = read_mapped(cx, op.src, *grid.mapped([c + o for c, o in zip(at, offset, strict=True)]))
            else:
                far = grid.element([as_expr(o) for o in offset])
                u = b.ld(op.src, line * grid.pitch + col + far, hint="u")
            s = cx.plus(s, w[i], cx.convert(u, op.acc.dtype))
        assert s is not None
        b.st(op.acc, 0, s)

    inside: list[Expr] = []
    for axis, (i, n) in enumerate(zip(at, grid.extent, strict=True)):
        reach = [offset[axis] for offset, _ in op.taps]
        inside += [i.ge(-min(reach)), i.lt(n - max(reach))]
    cx.branch(b.let("inner", all_of(*inside)), lambda: total(False), lambda: total(True))
