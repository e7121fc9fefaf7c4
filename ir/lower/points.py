"""``tile.points``: weighted sums on the CUDA cores, from a register window over shared memory or cell by cell."""

from __future__ import annotations

from .. import tile as t
from ..boundary_map import map_index
from ..expr import Value, all_of, as_expr
from ..warp import Alloc
from .context import Context, rule
from .copy import read_mapped
from .lanes import thread_place
from .store import row_of


@rule(t.Points)
def points(cx: Context, op: t.Points) -> None:
    cx.b.emit(Alloc(op.acc))
    if op.layout is None:
        _from_global(cx, op)
    else:
        _from_shared(cx, op)


class _Sum:
    """A weighted sum being built: the first product starts it, the others are fused into it."""

    def __init__(self, cx: Context) -> None:
        self.cx = cx
        self.value: Value | None = None

    def add(self, w: Value, u: Value) -> None:
        b = self.cx.b
        self.value = b.binary("mul", w, u, hint="s") if self.value is None else b.fma(w, u, self.value, hint="s")


def _weights(cx: Context, op: t.Points) -> list[Value]:
    return [cx.b.ld(op.weights, i, hint="w") for i in range(len(op.taps))]


def _from_shared(cx: Context, op: t.Points) -> None:
    """A thread slides down its window: each row segment is read once and added to every output that it touches."""
    b = cx.b
    assert op.layout is not None
    ty, tx = thread_place(cx, op.spread.shape)
    base = cx.slot_base(op.src, op.slot)
    w = _weights(cx, op)
    dy = [o[0] for (o, _) in op.taps]
    dx = [o[1] for (o, _) in op.taps]
    (per_y, per_x), first = (op.spread.per_y, op.spread.per_x), op.before[1] + min(dx)
    lead = first % per_x  # the segment starts at an aligned element
    span = -(-(lead + per_x + max(dx) - min(dx)) // per_x) * per_x
    top, left = b.let("top", ty * per_y), b.let("left", tx * per_x)
    sums = [[_Sum(cx) for _ in range(per_x)] for _ in range(per_y)]
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
                        sums[j][c].add(w[i], seg[lead + c + tx_off - min(dx)])
    for j in range(per_y):
        for c in range(per_x):
            value = sums[j][c].value
            assert value is not None
            b.st(op.acc, j * per_x + c, value)


def _from_global(cx: Context, op: t.Points) -> None:
    """One output a thread, neighbours through the cache; threads near a border map their reads."""
    b = cx.b
    ty, tx = thread_place(cx, op.spread.shape)
    w = _weights(cx, op)
    row, col = b.let("row", cx.resolve(op.y) + ty), b.let("col", cx.resolve(op.x) + tx)
    at = (*map(cx.resolve, op.lead), row, col)
    line = b.let("line", row_of(at[:-1], op.extent)) if op.lead else row
    offsets = [offset for offset, _ in op.taps]

    def total(mapped: bool) -> None:
        s = _Sum(cx)
        for i, offset in enumerate(offsets):
            if mapped:
                m = tuple(
                    map_index(c + o, n, pair) for c, o, n, pair in zip(at, offset, op.extent, op.sides, strict=True)
                )
                index = row_of([x.index for x in m[:-1]], op.extent) * op.pitch + m[-1].index
                u = read_mapped(cx, op.src, index, m)
            else:
                far = row_of([as_expr(o) for o in offset[:-1]], op.extent) * op.pitch + offset[-1]
                u = b.ld(op.src, line * op.pitch + col + far, hint="u")
            s.add(w[i], cx.convert(u, op.acc.dtype))
        assert s.value is not None
        b.st(op.acc, 0, s.value)

    inner = []
    for axis, (c, n) in enumerate(zip(at, op.extent, strict=True)):
        reach = [offset[axis] for offset in offsets]
        inner += [c.ge(-min(reach)), c.lt(n - max(reach))]
    cx.branch(b.let("inner", all_of(*inner)), lambda: total(False), lambda: total(True))
