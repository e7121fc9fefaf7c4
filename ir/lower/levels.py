"""What runs in a walk of ``stream`` or ``column``: time levels in registers, and on three axes their border."""

from __future__ import annotations

from itertools import product

from .. import tile_levels as t
from ..expr import Value, any_of, as_expr, select
from .context import Context, rule
from .plane_levels import plane_levels


@rule(t.Levels)
def levels(cx: Context, op: t.Levels) -> None:
    b, (ry, rx), per_lane = cx.b, op.radius, op.values.size
    w = {offset: b.ld(op.weights, i, hint="w") for i, (offset, _) in enumerate(op.taps)}
    with b.for_("level", 0, op.count, unroll=0) as level:
        own = [b.ld(op.values, c, hint="u") for c in range(per_lane)]
        left = [b.shfl("up", own[per_lane - 1 - k], 1, hint="l") for k in range(rx)]
        right = [b.shfl("down", own[k], 1, hint="r") for k in range(rx)]
        row = [*reversed(left), *own, *right]
        for k in range(2 * ry + 1):  # the unfinished row that is k away from being complete
            dy = ry - k
            taps = sorted(offset for offset in w if offset[0] == dy)
            for c in range(per_lane):
                at = (level * (2 * ry) + k) * per_lane + c
                value = b.ld(op.sums, at, hint="s") if k < 2 * ry else None
                for offset in taps:
                    value = cx.plus(value, w[offset], row[rx + c + offset[1]])
                if value is None:
                    value = b.const(op.values.dtype, 0.0, hint="zero")
                if k == 0:
                    b.st(op.values, c, value)
                else:
                    b.st(op.sums, at - per_lane, value)


@rule(t.IfBorder)
def if_border(cx: Context, op: t.IfBorder) -> None:
    reach = []
    for at, before, size, n, side in zip(op.at, op.before, op.size, op.grid.extent, op.grid.sides, strict=True):
        if side[0][0] != "periodic":
            first = cx.resolve(at) - before
            reach += [first.lt(0), (first + size).gt(n)]

    cx.branch(cx.b.let("near", any_of(*reach)), lambda: cx.all(op.near), lambda: cx.all(op.inside))


@rule(t.Mask)
def mask(cx: Context, op: t.Mask) -> None:
    (_, ny, nx), (_, y, x) = op.grid.extent, map(cx.resolve, op.at)
    rows = [y - op.lead[0] + cx.warp * op.lines + line for line in range(op.lines)]
    columns = [x - op.lead[1] + cx.lane * op.per_lane + c for c in range(op.per_lane)]
    bits, reach = as_expr(0), op.keep if op.kind == "frozen" else (0, 0)
    for i, (row, column) in enumerate(product(rows, columns)):
        hit = []
        for at, n, (low, high), far in zip((row, column), (ny, nx), op.grid.sides[1:], reach, strict=True):
            hit += [at.lt(far)] if low[0] == op.kind else []
            hit += [at.ge(n - far)] if high[0] == op.kind else []
        bits = bits + select(any_of(*hit), 1 << i, 0)
    assert isinstance(op.cells, Value)
    cx.env[op.cells] = cx.b.let(op.cells.name, bits)


rule(t.PlaneLevels)(plane_levels)
