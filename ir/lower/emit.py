"""``tile.emit``: what has become complete in a walk, from registers to the field, lanes side by side.

Rows go through the warp's slot of the ring, planes through the warp's rows of a plane of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import tile_walk as t
from ..expr import TRUE, Expr, Value, all_of, any_of, binary
from ..layout import bank_degree
from .context import Context, rule
from .fetch import block_slot, lane_pieces, own_degree, warp_slot
from .store import in_box


@rule(t.Emit)
def emit(cx: Context, op: t.Emit) -> None:
    (_rows if len(op.at) == 2 else _planes)(cx, op)


def _rows(cx: Context, op: t.Emit) -> None:
    b, per_lane, place, (lead,), (step,) = cx.b, op.values.size, op.layout, op.lead, op.step
    assert place is not None
    turn, wide, nbytes = cx.resolve(op.turn), 16 // op.dst.dtype.nbytes, op.ring.dtype.nbytes
    pieces = per_lane // op.vector
    y, x = map(cx.resolve, op.at)
    first = x + cx.warp * step - lead
    degree = max(
        bank_degree([place((lane + 32 * j) * op.vector).lo for lane in range(32)], nbytes, op.vector)
        for j in range(pieces)
    )

    def own(first: int, count: int) -> list[Value]:
        return [cx.convert(b.ld(op.values, first + e, hint="o"), op.dst.dtype) for e in range(count)]

    def store() -> None:  # a lane overwrites only its own columns of a row that it alone has read
        row = b.let("row", y + turn - op.delay, lo=0)
        size = op.ring.size // (cx.func.threads // 32) // op.stages
        base = b.let("out", warp_slot(cx, size, op.stages, turn))
        if pieces > 1:
            for p in range(0, per_lane, wide):
                at = base + place(cx.lane * per_lane + p)
                b.st(op.ring, at, *own(p, wide), degree=own_degree(place, nbytes, wide, per_lane))
            b.sync()
        for local in lane_pieces(cx, pieces, op.vector):
            col = b.let("col", first + local)
            mine = all_of(local.ge(lead), local.lt(lead + step))
            got = own(0, per_lane) if pieces == 1 else list(
                b.ldv(op.ring, base + place(local), op.vector, hint="o", degree=degree)
            )  # fmt: skip
            at = op.grid.element((row, col))
            if op.vector > 1 and not any(x % op.vector for x in op.box[1]):
                b.st(op.dst, at, *got, where=b.let("in", all_of(mine, in_box(row, col, op.box))))
                continue
            inside = [all_of(mine, in_box(row, col + e, op.box)) for e in range(op.vector)]
            if op.vector > 1:
                b.st(op.dst, at, *got, where=b.let("whole", all_of(*inside)))

            def single(at: Expr = at, got: list[Value] = got, inside: list[Expr] = inside) -> None:
                for e, v in enumerate(got):
                    b.st(op.dst, at + e, v, where=b.let("in", inside[e]))

            low, high = op.box[1]
            cx.guard(_cut(inside, high - low), single)  # where the box ends inside a piece

    cx.guard(turn.ge(op.delay), store)


def _cut(inside: Sequence[Expr], columns: int) -> Expr:
    """Whether a box of so many columns has some cells of a piece and not the others.

    One of the piece's ends says so, but for a box that lies between them.
    """
    if len(inside) == 1:
        return TRUE
    asked = inside if columns < len(inside) - 1 else (inside[0], inside[-1])
    return all_of(any_of(*asked), all_of(*asked).eq(0))


def _planes(cx: Context, op: t.Emit) -> None:
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
                index = op.grid.element((plane, row, col))
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
