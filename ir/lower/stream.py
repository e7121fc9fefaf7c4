"""What runs in a walk of ``stream``: time levels in registers, and their way out."""

from __future__ import annotations

from .. import tile as t
from .. import tile_stream as ts
from ..expr import Expr, Value, all_of, as_expr
from ..layout import bank_degree
from ..warp import Alloc
from .context import Context, rule
from .fetch import own_degree, warp_slot
from .store import in_box


@rule(t.Registers)
def registers(cx: Context, op: t.Registers) -> None:
    cx.b.emit(Alloc(op.regs))
    dtype = op.regs.dtype
    zero = cx.b.convert(cx.b.name(as_expr(0), "zero"), dtype) if dtype.is_int else cx.b.const(dtype, 0.0, hint="zero")
    with cx.b.for_("z", 0, op.regs.size, unroll=0) as z:
        cx.b.st(op.regs, z, zero)


class _Pieces:
    """A row's window in pieces of 16 bytes (or single elements): piece j of a lane is number lane + 32 j."""

    def __init__(self, op: ts.Emit, width: int) -> None:
        self.op, self.size, self.count = op, width, op.width // 32 // width

    def column(self, lane: Expr, j: int) -> Expr:
        """First column of the lane's piece, counted from the window's first."""
        return (lane + 32 * j) * self.size

    def degree(self) -> int:
        """Conflict degree of accesses to pieces."""
        n = self.op.ring.dtype.nbytes
        at = [[self.op.layout((lane + 32 * j) * self.size).lo for lane in range(32)] for j in range(self.count)]
        return max(bank_degree(a, n, self.size) for a in at)


@rule(ts.Levels)
def levels(cx: Context, op: ts.Levels) -> None:
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
                    u = row[rx + c + offset[1]]
                    value = (
                        b.binary("mul", w[offset], u, hint="s")
                        if value is None
                        else b.fma(w[offset], u, value, hint="s")
                    )
                if value is None:
                    value = b.const(op.values.dtype, 0.0, hint="zero")
                if k == 0:
                    b.st(op.values, c, value)
                else:
                    b.st(op.sums, at - per_lane, value)


@rule(ts.Emit)
def emit(cx: Context, op: ts.Emit) -> None:
    b, per_lane = cx.b, op.width // 32
    turn, wide = cx.resolve(op.turn), 16 // op.dst.dtype.nbytes
    pieces, direct = _Pieces(op, op.vector), op.vector == per_lane  # a lane's columns are one piece
    first = cx.resolve(op.x) + cx.warp * op.step - op.lead

    def own(first: int, count: int) -> list[Value]:
        return [cx.convert(b.ld(op.values, first + e, hint="o"), op.dst.dtype) for e in range(count)]

    def store() -> None:  # a lane overwrites only its own columns of a row that it alone has read
        row = b.let("row", cx.resolve(op.y) + turn - op.delay, lo=0)
        size = op.ring.size // (cx.func.threads // 32) // op.stages
        base = b.let("out", warp_slot(cx, size, op.stages, turn))
        if not direct:
            degree = own_degree(op.layout, op.ring.dtype.nbytes, wide, per_lane)
            for p in range(0, per_lane, wide):
                at = base + op.layout(cx.lane * per_lane + p)
                b.st(op.ring, at, *own(p, wide), degree=degree)
            b.sync()
        for j in range(pieces.count):
            local = pieces.column(cx.lane, j)
            col = b.let("col", first + local)
            mine = all_of(local.ge(op.lead), local.lt(op.lead + op.step))
            got = own(0, per_lane) if direct else list(
                b.ldv(op.ring, base + op.layout(local), op.vector, hint="o", degree=pieces.degree())
            )  # fmt: skip
            at = row * op.pitch + col
            if op.vector > 1 and not any(x % op.vector for x in op.box[1]):
                b.st(op.dst, at, *got, where=b.let("in", all_of(mine, in_box(row, col, op.box))))
                continue
            inside = [b.let("in", all_of(mine, in_box(row, col + e, op.box))) for e in range(op.vector)]
            if op.vector > 1:  # single elements only where the box ends inside a piece
                whole = b.let("whole", all_of(*inside))
                b.st(op.dst, at, *got, where=whole)
                inside = [all_of(i, whole.eq(0)) for i in inside]
            for e, v in enumerate(got):
                b.st(op.dst, at + e, v, where=inside[e])

    cx.guard(turn.ge(op.delay), store)
