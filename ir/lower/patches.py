"""``tile.row_groups`` and what runs in it: groups of rows through a warp's ring, levels on tensor cores."""

from __future__ import annotations

from .. import tile_patches as t
from ..boundary_map import map_index
from ..expr import TRUE, Expr, all_of, as_expr, evaluate, minimum
from ..fragments import SHAPES, MmaShape
from ..layout import Layout, bank_degree
from ..types import Buffer
from ..warp import Alloc
from .context import Context, rule
from .mma import lane_coordinates, name_of, narrowing
from .store import in_box


def share(cx: Context, buf: Buffer) -> Expr:
    """First element of the warp's share of a shared buffer."""
    return cx.warp * (buf.size // (cx.func.threads // 32))


@rule(t.Groups)
def groups(cx: Context, op: t.Groups) -> None:
    cx.shared.append(op.buf)
    zero, base = cx.b.const(op.buf.dtype, 0.0, hint="zero"), cx.b.let("own", share(cx, op.buf))
    with cx.b.for_("z", cx.lane, op.buf.size // (cx.func.threads // 32), 32) as z:
        cx.b.st(op.buf, base + z, zero)


@rule(t.RowGroups)
def row_groups(cx: Context, op: t.RowGroups) -> None:
    b, (rows, width), (ny, nx) = cx.b, op.layout.extents, op.extent
    slot = op.ring.size // (cx.func.threads // 32) // op.stages
    pieces = width // op.vector
    y, first = cx.resolve(op.y), b.let("first", cx.resolve(op.x) + cx.warp * op.step - op.lead)
    ring = b.let("own", share(cx, op.ring))
    # pieces of 16 bytes cross a border whole: they start at even columns, and such fields have an even extent
    lanes = [cx.lane + 32 * j for j in range(-(-pieces // 32))]
    columns = [
        b.let("column", minimum(map_index(first + p * op.vector, nx, op.sides[1]).index, nx - op.vector)) for p in lanes
    ]

    def fetch(turn: Expr) -> None:
        def copy() -> None:
            to = b.let("to", ring + turn % op.stages * slot)
            for r in range(rows):
                row = map_index(y - op.above + turn * rows + r, ny, op.sides[0]).index
                start = b.let("start", row * op.pitch)
                for p, column in zip(lanes, columns, strict=True):
                    has = p.lt(pieces)
                    at = to + op.layout(r, p * op.vector)
                    b.cp_async(op.ring, at, op.src, start + column, op.vector, None if has == TRUE else has)

        cx.guard(turn.lt(op.turns), copy)
        b.commit()

    for i in range(op.stages - 1):
        fetch(as_expr(i))
    with b.for_("turn", 0, op.turns, unroll=1) as turn:
        b.wait(op.stages - 2)
        b.sync()
        fetch(turn + (op.stages - 1))
        cx.env |= {op.turn: turn, op.here: b.let("here", turn % op.stages * slot)}
        for inner in op.body:
            cx.lower(inner)


@rule(t.Meet)
def meet(cx: Context, op: t.Meet) -> None:
    cx.b.sync()


def _steps(name: str, slices: int) -> list[tuple[MmaShape, int]]:
    """The mma over ``slices`` slices of four: each shape with its first slice, as wide as they come."""
    out: list[tuple[MmaShape, int]] = []
    done = 0
    for shape in narrowing(name):
        while done + shape.k // 4 <= slices:
            out.append((shape, done))
            done += shape.k // 4
    return out


@rule(t.ReadGroup)
def read_group(cx: Context, op: t.ReadGroup) -> None:
    b, (strips, _, depth) = cx.b, op.a.extents
    rows = range(0, SHAPES[op.shape].m, 8)
    b.emit(Alloc(op.held))
    g, lane_t = lane_coordinates(cx)
    base = b.let("from", share(cx, op.src) + cx.resolve(op.at))
    with b.for_("s", 0, strips, unroll=0) as s:
        for i in range(depth // 4):
            for j, row in enumerate(rows):
                at = [evaluate(op.a(0, lane // 4 + row, 4 * i + lane % 4), {}) for lane in range(32)]
                degree = bank_degree(at, op.src.dtype.nbytes)
                v = b.ld(op.src, base + op.a(s, g + row, 4 * i + lane_t), hint="a", degree=degree)
                b.st(op.held, (s * (depth // 4) + i) * len(rows) + j, v)


@rule(t.AddGroup)
def add_group(cx: Context, op: t.AddGroup) -> None:
    """The sums move on one group as they are added to: mma has C and D apart, so that costs nothing."""
    b, base = cx.b, SHAPES[op.shape]
    regs, rows = len(base.c.elements), base.m // 8
    b.emit(Alloc(op.done))
    zero = b.const(op.done.dtype, 0.0, hint="zero")
    with b.for_("s", 0, op.strips, unroll=0) as s:
        for q in reversed(range(op.touched)):
            c = [zero] * regs
            if q:
                old = ((op.level * (op.touched - 1) + q - 1) * op.strips + s) * regs
                c = [b.ld(op.sums, old + e, hint="c") for e in range(regs)]
            for shape, first in _steps(op.shape, op.slices):
                held = (s * op.slices + first) * rows
                av = [b.ld(op.held, held + i, hint="a") for i in range(shape.k // 4 * rows)]
                bv = [b.ld(op.weights, q * op.slices + first + i, hint="w") for i in range(shape.k // 4)]
                c = list(b.mma(name_of(shape), av, bv, c))
            last = q == op.touched - 1
            to = s * regs if last else ((op.level * (op.touched - 1) + q) * op.strips + s) * regs
            for e, v in enumerate(c):
                b.st(op.done if last else op.sums, to + e, v)


def _cells(shape: str) -> list[tuple[int, int]]:
    """(row - g, column - 2 t) of a lane's elements of an accumulator."""
    return [place(0, 0) for place in SHAPES[shape].c.elements]


@rule(t.PassGroup)
def pass_group(cx: Context, op: t.PassGroup) -> None:
    b, places = cx.b, _cells(op.shape)
    g, lane_t = lane_coordinates(cx)
    base = b.let("to", share(cx, op.dst) + cx.resolve(op.at))
    with b.for_("s", 0, op.c.extents[0], unroll=0) as s:
        for e, (m, n) in enumerate(places):
            at = [evaluate(op.c(0, lane // 4 + m, lane % 4 * 2 + n), {}) for lane in range(32)]
            degree = bank_degree(at, op.dst.dtype.nbytes)
            v = b.ld(op.done, s * len(places) + e, hint="o")
            b.st(op.dst, base + op.c(s, g + m, lane_t * 2 + n), v, degree=degree)


@rule(t.StoreGroup)
def store_group(cx: Context, op: t.StoreGroup) -> None:
    b, places = cx.b, _cells(op.shape)
    turn, rows = cx.resolve(op.turn), _height(op.c)
    g, lane_t = lane_coordinates(cx)
    first = cx.resolve(op.x) + cx.warp * op.step

    def store() -> None:
        top = b.let("top", cx.resolve(op.y) + (turn - op.delay) * rows, lo=0)
        with b.for_("s", 0, op.c.extents[0], unroll=0) as s:
            for e, (m, n) in enumerate(places):
                row, local = op.c.at(s, g + m, lane_t * 2 + n)
                where = b.let("in", all_of(local.lt(op.step), in_box(top + row, first + local, op.box)))
                v = b.ld(op.done, s * len(places) + e, hint="o")
                b.st(op.dst, (top + row) * op.pitch + first + local, v, where=where)

    cx.guard(turn.ge(op.delay), store)


def _height(cells: Layout) -> int:
    """Rows of a group whose cells these are."""
    return cells.shape()[0]
