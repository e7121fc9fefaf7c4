"""The tile ops of quantising: the largest element of an array, and its elements as integers times a scale.

The arrays of one launch are told apart by their ``number``: each has ``of`` blocks of it, one array's after another's.
The largest elements of blocks lie in ``tops``, ``of`` for each array.  An array that has an infinity or NaN gets no
scale but one of them.  Only attention is given floats yet.
"""

from __future__ import annotations

from typing import Final

from .checks import Context, check
from .node import Op, attr, base, buffer, define
from .tile_rules import same_type, shared, whole
from .types import Buffer, f32, s32, u32

#: Elements that a thread takes at once: 16 bytes of f16.
PIECE: Final = 8
#: Blocks of an array, at most: their largest elements are two of each lane of a warp.
MOST_BLOCKS: Final = 64


@base
class OfArray(Op):
    """Base of ops of the blocks of an array ``src``, f16 in words of two."""

    src: Buffer = buffer()
    number: int = attr()
    of: int = attr()


@define("tile.find_largest", kw_only=True)
class FindLargest(OfArray):
    """The largest absolute element of each block's share to ``tops``; its warps meet through ``over``."""

    tops: Buffer = buffer(writes=True, reads=False)
    over: Buffer = buffer(writes=True)


@define("tile.fetch_pieces", kw_only=True)
class FetchPieces(OfArray):
    """Loads each thread's first pieces, as many as ``held`` has place for: while the launch before still runs, which
    does not write them."""

    held: Buffer = buffer(writes=True, reads=False)


@define("tile.quantise", kw_only=True)
class Quantise(OfArray):
    """``dst`` (words of four bytes) gets ``src`` times ``most`` over its largest absolute element.

    The quotient is rounded to f32, the product once: to the nearest integer, of two the even one.  ``scale`` is the
    largest element over ``most``, or 1 where all are 0; it is NaN if the largest element of one of the arrays
    ``watched`` is not finite.  Each thread's first pieces are ``held``, as ``tile.fetch_pieces`` has loaded them.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    held: Buffer = buffer()
    scale: Buffer = buffer(writes=True, reads=False)
    tops: Buffer = buffer()
    most: int = attr()
    watched: tuple[int, ...] = attr(default=())


# ------------------------------------------------------------------------------------------------ what they must obey
def _array(op: OfArray, ctx: Context) -> None:
    ctx.need(op.src.dtype is u32, f"@{op.src.name} holds words, not {op.src.dtype}")
    whole(ctx, 2 * op.src.size, PIECE, f"{2 * op.src.size} elements are no whole pieces of {PIECE}")
    ctx.need(1 <= op.of <= MOST_BLOCKS, f"{op.of} blocks of an array, {MOST_BLOCKS} at most")


def _tops(op: FindLargest | Quantise, ctx: Context) -> None:
    _array(op, ctx)
    ctx.need(op.tops.dtype is f32 and op.tops.size >= (op.number + 1) * op.of > 0,
             f"@{op.tops.name} has no {op.of} elements of array {op.number}")  # fmt: skip


@check(FindLargest)
def _find_largest(op: FindLargest, ctx: Context) -> None:
    _tops(op, ctx)
    shared(ctx, op.over, ctx.warps(), "the warps' largest elements")


def _held(op: FetchPieces | Quantise, ctx: Context) -> None:
    same_type(ctx, op.held, op.src)
    whole(ctx, op.held.size, PIECE // 2, f"@{op.held.name} holds no whole pieces")


@check(FetchPieces)
def _fetch_pieces(op: FetchPieces, ctx: Context) -> None:
    _array(op, ctx)
    _held(op, ctx)


@check(Quantise)
def _quantise(op: Quantise, ctx: Context) -> None:
    _tops(op, ctx)
    _held(op, ctx)
    ctx.need(op.dst.dtype is s32 and 2 * op.dst.size == op.src.size, f"@{op.dst.name} has not a byte an element")
    ctx.need(op.scale.dtype is f32 and op.scale.size == 1, f"@{op.scale.name} is no scale: one f32")
    ctx.need(1 <= op.most <= 127, f"integers up to {op.most} do not fit a byte")
    ctx.need(all(0 <= n * op.of < op.tops.size for n in op.watched), f"there are no such arrays as {op.watched}")
