"""Strips that stay in shared memory: their copies, and the waits for a part of them and for all."""

from __future__ import annotations

from .. import tile_resident as t
from .. import warp as w
from ..expr import TRUE, as_expr
from ..numbers.resident import PIECE, box
from ..swizzle import swizzled
from ..tensor_copy import TensorCopy, TensorMap
from ..types import Buffer
from .context import Context, rule

#: Lanes that read 16 bytes each at once.
PIECES = 8


@rule(t.FillResident)
def fill_resident(cx: Context, op: t.FillResident) -> None:
    if op.zeros:
        _zeros(cx, op)
    if op.bars is None:
        _by_threads(cx, op)
    else:
        _by_boxes(cx, op, op.bars)


def _zeros(cx: Context, op: t.FillResident) -> None:
    b, piece = cx.b, PIECE // op.dst.dtype.nbytes
    zero = b.const(op.dst.dtype, 0.0, hint="zero")
    with b.if_(cx.tid.lt(op.zeros * op.cols // piece)):
        b.st(op.dst, op.slices * op.rows * op.cols + cx.tid * piece, *[zero] * piece)


def _by_boxes(cx: Context, op: t.FillResident, bars: Buffer) -> None:
    b, item = cx.b, op.src.dtype.nbytes
    each = op.rows // op.parts
    high = box(each)
    boxes = TensorMap(op.m, op.n, op.n, (high, op.cols), op.cols * item * op.swizzle)
    with b.if_(cx.tid.eq(0)):
        for number in range(op.parts):
            b.emit(w.MbarInit(bars, as_expr(number), 1))
        b.fence("mbar_init")
    if op.meets:
        b.barrier()
    with b.if_(cx.tid.eq(0)):
        row, column = b.let("row", cx.resolve(op.row)), b.let("column", cx.resolve(op.column))
        with b.for_("part", 0, op.parts, unroll=1) as part:
            b.emit(w.MbarArrive(bars, part, as_expr(each * op.slices * op.cols * item)))
            with b.for_("at", part * each, (part + 1) * each, high, unroll=1) as at:
                for s in range(op.slices):
                    place = at * op.cols + s * op.rows * op.cols
                    b.emit(TensorCopy(op.dst, place, op.src, row + at, column + s * op.cols, bars, part, boxes))


def _by_threads(cx: Context, op: t.FillResident) -> None:
    """Columns beyond the last are the first ones again."""
    b, item = cx.b, op.src.dtype.nbytes
    piece = PIECE // item
    wide = op.slices * op.cols // piece  # pieces of a row
    place = swizzled(op.rows, op.cols * item, op.cols * item * op.swizzle, item)
    first, column = b.let("row", cx.resolve(op.row)), b.let("column", cx.resolve(op.column))
    with b.for_("p", cx.tid, op.rows * wide, cx.func.threads, unroll=4) as p:
        row, across = b.let("at", p // wide), b.let("across", p % wide * piece)
        to = place(row, across % op.cols) + across // op.cols * (op.rows * op.cols)
        there = (first + row).lt(op.m)
        source = (first + row) * op.n + (column + across) % op.n
        b.cp_async(op.dst, b.let("to", to), op.src, source, piece, where=None if there == TRUE else there)
    if op.meets:
        b.commit()
        b.wait(0)
        b.barrier()


@rule(t.AwaitResident)
def await_resident(cx: Context, op: t.AwaitResident) -> None:
    cx.b.mbar_wait(op.bars, op.part, 0)


@rule(t.SettleResident)
def settle_resident(cx: Context, op: t.SettleResident) -> None:
    b = cx.b
    with b.if_(cx.tid.eq(0)), b.for_("part", 0, op.parts, unroll=1) as part:
        b.mbar_wait(op.bars, part, 0)


@rule(t.GatherResident)
def gather_resident(cx: Context, op: t.GatherResident) -> None:
    b, piece = cx.b, PIECE // op.src.dtype.nbytes
    mine, top = cx.lane % op.across, op.src.size // piece - op.across
    own = [b.let("mine", (mine ^ p * (op.across // op.pieces)) * piece) for p in range(op.pieces)]
    for i in range(op.places.size):
        first = b.let("first", b.ld(op.places, i, hint="place", lo=0, hi=top) * piece)
        for p, lane in enumerate(own):
            found = b.ldv(op.src, b.let("at", first + lane), piece, hint="x", degree=PIECES // op.across)
            for e, v in enumerate(found):
                b.st(op.dst, (i * op.pieces + p) * piece + e, v)
        b.st(op.weights, i, cx.convert(b.ld(op.values, i, hint="w"), op.weights.dtype))


@rule(t.JoinPieces)
def join_pieces(cx: Context, op: t.JoinPieces) -> None:
    b, each, half = cx.b, op.dst.size, op.pieces // 2
    sums = [b.ld(op.src, e, hint="c") for e in range(op.src.size)]
    while half:
        far = half * op.across // op.pieces
        sums = [b.binary("add", sums[e], b.shfl("xor", sums[e + half * each], far)) for e in range(half * each)]
        half //= 2
    for e, v in enumerate(sums):
        b.st(op.dst, e, v)
