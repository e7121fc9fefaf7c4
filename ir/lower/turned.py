"""Bands whose dense tiles warpgroups multiply, columns of x as their rows, and the way of the sums to shared memory."""

from __future__ import annotations

from .. import tile_turned as t
from ..expr import Expr, as_expr
from ..numbers.mixed import SIDE, groups_of, rounds, share_of, sums_pitch
from ..swizzle import DEPTH, k_major, mn_major
from .context import Context, rule
from .groups import my_group

#: Lanes of a warp whose sums lie in one bank: rows two apart, of a pitch that leaves 8 banks over.
DEGREE = 2


def _group(cx: Context, op: t.MultiplyTurned | t.PutTurned) -> tuple[Expr, Expr]:
    """The warpgroup's first column over the 64 of a product, and its slice of k."""
    b, groups = cx.b, groups_of(op.cols, op.warps)
    me = my_group(cx)
    if op.warps[-1] == 1:
        return me * len(op.accs), as_expr(0)
    return b.let("part", me % groups * len(op.accs)), b.let("slice", me // groups)


@rule(t.MultiplyTurned)
def multiply_turned(cx: Context, op: t.MultiplyTurned) -> None:
    b, slices, turn = cx.b, op.warps[-1], cx.resolve(op.turn)
    part, slice_ = _group(cx, op)
    every, own = rounds(op.tile, 2, slices), share_of(op.tile, 2, slices)
    first = slice_ % (slices // every) * own if every > 1 else slice_ * own

    def multiply() -> None:
        slot = b.let("slot", turn % op.stages)
        x = b.let("a0", slot * (op.tile * op.cols) + part * (op.tile * SIDE) + first * (DEPTH * SIDE))
        values = b.let("b0", slot * (op.rows * op.tile) + first * DEPTH)
        b.fence("async")
        b.wgmma_fence()
        for j in range(own):
            for p, acc in enumerate(op.accs):
                b.wgmma(
                    acc, op.x, x + (p * op.tile + j * DEPTH) * SIDE, op.values, values + j * DEPTH, cols=op.rows,
                    a_tile=mn_major(2 * SIDE, op.tile), b_tile=k_major(2 * op.tile), a_major="mn", b_major="k",
                )  # fmt: skip
        b.wgmma_commit()
        b.wgmma_wait(0)

    if every == 1:
        multiply()
        return
    with b.if_((turn % every).eq(slice_ // (slices // every))):
        multiply()


@rule(t.PutTurned)
def put_turned(cx: Context, op: t.PutTurned) -> None:
    b, pitch = cx.b, sums_pitch(op.cols)
    part, slice_ = _group(cx, op)
    g, pair = cx.coordinates()
    column = part * SIDE + cx.warp % 4 * DEPTH + g
    at = b.let("at", (slice_ * op.rows + 2 * pair) * pitch + column)
    for p, acc in enumerate(op.accs):
        for r in range(acc.size):
            to = (r // 4 * 8 + r % 2) * pitch + p * SIDE + r // 2 % 2 * 8
            b.st(op.dst, at + to, b.ld(acc, r, hint="sum"), degree=DEGREE)
