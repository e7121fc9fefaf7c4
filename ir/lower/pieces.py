"""Rows that are cut: pieces leave their sums in slots, the last one adds them up and goes on."""

from __future__ import annotations

from .. import tile_pieces as t
from .. import warp as w
from ..expr import Expr, as_expr
from ..types import s32, u32
from .context import Context, rule

#: Sums that a lane stores or loads at once.
WIDE = 4


@rule(t.SumPieces)
def sum_pieces(cx: Context, op: t.SumPieces) -> None:
    b, size = cx.b, op.acc.size
    each = op.slots.size // (32 * size * op.tiles)
    reach, cache = ("block", "") if op.counter.space == "shared" else ("gpu", "cg")
    tops = {"first": (0, each - 1), "pieces": (1, each), "start": (0, 1 << 25), "steps": (1, 1 << 25)}
    found = tuple(b.fresh(name, s32, *bounds) for name, bounds in tops.items())
    b.emit(w.Ld(found, op.cuts, cx.resolve(op.row) * t.CUT, None, 0.0, "nc"))
    first, pieces, start, steps = (b.shfl("idx", v, 0, hint="own") for v in found)
    whole = b.alloc("whole", u32, 1)  # whether the warp has the sums of a whole row
    b.st(whole, 0, as_expr(1))
    with b.if_(pieces.gt(1)):
        before = b.let("before", cx.resolve(op.begin) - start, lo=0)
        mine = b.let("mine", (before * pieces + steps - 1) // steps + first, lo=0, hi=each - 1)
        tile = b.let("tile", cx.resolve(op.tile) * each)

        def place(slot: Expr, e: int) -> Expr:
            """Where a lane's sums from the e-th on are: those of the lanes lie side by side."""
            return ((tile + slot) * size + e) * 32 + cx.lane * WIDE

        for e in range(0, size, WIDE):
            b.st(op.slots, place(mine, e), *(b.ld(op.acc, e + i, hint="sum") for i in range(WIDE)), cache=cache)
        b.sync()  # one lane publishes what all have left
        with b.if_(cx.lane.eq(0)):
            b.fence(reach)
            arrived = b.atom("inc", op.counter, tile + first, pieces - 1)
            b.fence(reach)
            b.st(whole, 0, arrived)
        b.sync()
        last = b.name(b.shfl("idx", b.ld(whole, 0), 0, hint="arrived").eq(pieces - 1), "last")
        b.st(whole, 0, b.convert(last, u32))
        with b.if_(last):
            cx.clear(op.acc)
            with b.for_("piece", first, first + pieces, unroll=2) as piece:
                for e in range(0, size, WIDE):
                    for i, v in enumerate(b.ldv(op.slots, place(piece, e), WIDE, cache=cache, hint="part")):
                        b.st(op.acc, e + i, b.binary("add", b.ld(op.acc, e + i, hint="sum"), v))
    with b.if_(b.shfl("idx", b.ld(whole, 0), 0, hint="whole").ne(0)):
        cx.all(op.body)
