"""``tile.planes`` and what runs in it: a block's column of the field, plane by plane, time levels in registers."""

from __future__ import annotations

from itertools import product

from .. import tile_planes as p
from ..boundary_map import any_cell, map_index
from ..expr import Expr, Value, all_of, any_of, as_expr, binary, minimum, select
from ..node import Op
from ..warp import Alloc
from .context import Context, rule
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


def _pieces(cx: Context, per_lane: int, vector: int) -> list[Expr]:
    """First columns of the pieces of a row that a lane copies: number lane + 32 j, so that lanes lie side by side."""
    return [(cx.lane + 32 * j) * vector for j in range(per_lane // vector)]


def _place(cx: Context, op: p.Planes | p.StorePlane, turn: Expr, line: int) -> Expr:
    """Element of the ring where a warp's row of the plane of a turn begins."""
    width, warps = 32 * (op.values.size // op.lines), cx.func.threads // 32
    return turn % op.stages * (op.lines * warps * width) + (line * warps + cx.warp) * width


@rule(p.Planes)
def planes(cx: Context, op: p.Planes) -> None:
    b = cx.b
    b.emit(Alloc(op.values))
    per_lane = op.values.size // op.lines
    wide = 16 // op.src.dtype.nbytes
    z, y, x = map(cx.resolve, op.at)
    nz, ny, nx = op.extent
    # what lies outside a border that is not periodic is set or read otherwise at every level
    sides = any_cell(op.sides)
    # which columns of a row this thread fetches: a piece of ``vector`` cells crosses a periodic border whole (even
    # start) unless the extent is odd; then pieces at the border go cell by cell
    straddles = nx % op.vector != 0
    first, pieces = b.let("first", x - op.lead[1]), _pieces(cx, per_lane, op.vector)
    step = 1 if straddles else op.vector
    rows = [
        b.let("row", map_index(y - op.lead[0] + cx.warp * op.lines + line, ny, sides[1]).index * op.pitch)
        for line in range(op.lines)
    ]
    columns = [
        [
            b.let("column", minimum(map_index(first + piece + e, nx, sides[2]).index, nx - step))
            for e in range(0, op.vector, step)
        ]
        for piece in pieces
    ]
    # a lane that copies just what it reads, and gives nothing to others afterwards, has its part of the ring to itself
    private = all(e.vector == per_lane for e in (op, *op.body) if isinstance(e, (p.Planes, p.StorePlane)))
    whole = [b.let("whole", all_of((first + c).ge(0), (first + c).le(nx - op.vector))) for c in pieces]

    def fetch(turn: Expr) -> None:
        def copy() -> None:
            plane = b.let("plane", map_index(z - op.above + turn, nz, sides[0]).index * (ny * op.pitch))
            for line in range(op.lines):
                to, start = b.let("to", _place(cx, op, turn, line)), b.let("start", plane + rows[line])
                for piece, column, inside in zip(pieces, columns, whole, strict=True):
                    if not straddles:
                        b.cp_async(op.ring, to + piece, op.src, start + column[0], op.vector)
                        continue
                    b.cp_async(op.ring, to + piece, op.src, start + column[0], op.vector, where=inside)
                    for e, one in enumerate(column):
                        b.cp_async(op.ring, to + piece + e, op.src, start + one, 1, where=binary("==", inside, 0))

        cx.guard(turn.lt(op.planes), copy)
        b.commit()

    for i in range(op.stages - 1):
        fetch(as_expr(i))
    for value, kind in ((op.kept, "frozen"), (op.outside, "dirichlet")):
        cx.env[value] = b.let(value.name, _mask(cx, op, kind))
    with b.for_("turn", 0, op.planes, unroll=1) as turn:
        b.wait(op.stages - 2)
        if not private:
            b.sync()
        for line in range(op.lines):
            own = _place(cx, op, turn, line) + cx.lane * per_lane
            for c in range(0, per_lane, wide):
                for e, v in enumerate(b.ldv(op.ring, own + c, wide, hint="v")):
                    b.st(op.values, line * per_lane + c + e, v)
        fetch(turn + (op.stages - 1))
        cx.env[op.turn] = turn
        for inner in op.body:
            cx.lower(inner)


def _mask(cx: Context, op: p.Planes, kind: str) -> Expr:
    """The thread's cells that a frozen side of the two fastest axes keeps, or those beyond a dirichlet one."""
    per_lane = op.values.size // op.lines
    (_, ny, nx), (_, y, x) = op.extent, map(cx.resolve, op.at)
    rows = [y - op.lead[0] + cx.warp * op.lines + line for line in range(op.lines)]
    columns = [x - op.lead[1] + cx.lane * per_lane + c for c in range(per_lane)]
    mask = as_expr(0)
    for i, (row, column) in enumerate(product(rows, columns)):
        hit = []
        for at, n, (low, high), keep in zip((row, column), (ny, nx), op.sides[1:], op.keep, strict=True):
            reach = keep if kind == "frozen" else 0
            hit += [at.lt(reach)] if low[0] == kind else []
            hit += [at.ge(n - reach)] if high[0] == kind else []
        mask = mask + select(any_of(*hit), 1 << i, 0)
    return mask


rule(p.PlaneLevels)(plane_levels)


@rule(p.StorePlane)
def store_plane(cx: Context, op: p.StorePlane) -> None:
    b, per_lane, wide = cx.b, op.values.size // op.lines, 16 // op.dst.dtype.nbytes
    turn, (z, y, x) = cx.resolve(op.turn), tuple(map(cx.resolve, op.at))

    pieces = _pieces(cx, per_lane, op.vector)

    def own(line: int, first: int, count: int) -> list[Value]:
        return [b.ld(op.values, line * per_lane + first + e, hint="o") for e in range(count)]

    def store() -> None:
        if len(pieces) > 1:  # cells cross the lanes, through the warp's rows of a plane that has been read
            for line in range(op.lines):
                at = _place(cx, op, turn, line) + cx.lane * per_lane
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
                    b.ldv(op.ring, _place(cx, op, turn, line) + local_x, op.vector, hint="o")
                )  # fmt: skip
                inside = [b.let("in", all_of(*mine, in_box(row, col + e, op.box, (plane,)))) for e in range(op.vector)]
                if not any(edge % op.vector for edge in op.box[2]):
                    b.st(op.dst, index, *vals, where=inside[0])
                    continue
                b.st(op.dst, index, *vals, where=all_of(*inside))
                for e in range(op.vector if op.vector > 1 else 0):
                    b.st(op.dst, index + e, vals[e], where=all_of(inside[e], binary("==", all_of(*inside), 0)))

    cx.guard(turn.ge(op.delay), store)
