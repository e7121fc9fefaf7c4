"""What runs in a walk of ``column``: its border, and the way of its planes out of registers."""

from __future__ import annotations

from itertools import product

from .. import tile_planes as p
from ..expr import Value, all_of, any_of, as_expr, binary, select
from ..node import Op
from .context import Context, rule
from .fetch import block_slot, lane_pieces
from .plane_levels import plane_levels
from .store import in_box, row_of


@rule(p.IfBorder)
def if_border(cx: Context, op: p.IfBorder) -> None:
    reach = []
    for at, before, size, n, side in zip(op.at, op.before, op.size, op.extent, op.sides, strict=True):
        if side[0][0] != "periodic":
            first = cx.resolve(at) - before
            reach += [first.lt(0), (first + size).gt(n)]

    def lower(ops: tuple[Op, ...]) -> None:
        for inner in ops:
            cx.lower(inner)

    cx.branch(cx.b.let("near", any_of(*reach)), lambda: lower(op.near), lambda: lower(op.inside))


@rule(p.Mask)
def mask(cx: Context, op: p.Mask) -> None:
    (_, ny, nx), (_, y, x) = op.extent, map(cx.resolve, op.at)
    rows = [y - op.lead[0] + cx.warp * op.lines + line for line in range(op.lines)]
    columns = [x - op.lead[1] + cx.lane * op.per_lane + c for c in range(op.per_lane)]
    bits, reach = as_expr(0), op.keep if op.kind == "frozen" else (0, 0)
    for i, (row, column) in enumerate(product(rows, columns)):
        hit = []
        for at, n, (low, high), far in zip((row, column), (ny, nx), op.sides[1:], reach, strict=True):
            hit += [at.lt(far)] if low[0] == op.kind else []
            hit += [at.ge(n - far)] if high[0] == op.kind else []
        bits = bits + select(any_of(*hit), 1 << i, 0)
    assert isinstance(op.cells, Value)
    cx.env[op.cells] = cx.b.let(op.cells.name, bits)


rule(p.PlaneLevels)(plane_levels)


@rule(p.StorePlane)
def store_plane(cx: Context, op: p.StorePlane) -> None:
    b, per_lane, wide = cx.b, op.values.size // op.lines, 16 // op.dst.dtype.nbytes
    turn, (z, y, x) = cx.resolve(op.turn), tuple(map(cx.resolve, op.at))

    pieces = lane_pieces(cx, per_lane // op.vector, op.vector)

    def own(line: int, first: int, count: int) -> list[Value]:
        return [b.ld(op.values, line * per_lane + first + e, hint="o") for e in range(count)]

    def store() -> None:
        if len(pieces) > 1:  # cells cross the lanes, through the warp's rows of a plane that has been read
            for line in range(op.lines):
                at = block_slot(cx, op.lines, 32 * per_lane, op.stages, turn, line) + cx.lane * per_lane
                for c in range(0, per_lane, wide):
                    b.st(op.ring, at + c, *own(line, c, wide))
            b.sync()
        plane = b.let("oz", z + turn - op.delay, lo=0)
        for line in range(op.lines):
            local_y = cx.warp * op.lines + line
            row = b.let("oy", y + local_y - op.lead[0])
            for local_x in pieces:
                col = b.let("ox", x + local_x - op.lead[1])
                mine = [i.ge(low) for i, low in zip((local_y, local_x), op.lead, strict=True)]
                mine += [i.lt(low + n) for i, low, n in zip((local_y, local_x), op.lead, op.step, strict=True)]
                index = row_of((plane, row), op.extent) * op.pitch + col
                vals = own(line, 0, per_lane) if len(pieces) == 1 else list(
                    b.ldv(
                        op.ring, block_slot(cx, op.lines, 32 * per_lane, op.stages, turn, line) + local_x, op.vector,
                        hint="o",
                    )
                )  # fmt: skip
                inside = [b.let("in", all_of(*mine, in_box(row, col + e, op.box, (plane,)))) for e in range(op.vector)]
                if not any(edge % op.vector for edge in op.box[2]):
                    b.st(op.dst, index, *vals, where=inside[0])
                    continue
                b.st(op.dst, index, *vals, where=all_of(*inside))
                for e in range(op.vector if op.vector > 1 else 0):
                    b.st(op.dst, index + e, vals[e], where=all_of(inside[e], binary("==", all_of(*inside), 0)))

    cx.guard(turn.ge(op.delay), store)
