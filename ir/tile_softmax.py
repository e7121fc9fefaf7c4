"""The tile op of a softmax over integer scores: exponentials as small integers, in the order that a product reads.

Scores lie in blocks of 16 vectors, row by row, which is what the smallest integer mma has along k: so exponentials of
one byte are its first operand as they lie.  No other family uses it: fused attention keeps its scores in registers.
"""

from __future__ import annotations

from .checks import Context, check
from .node import Op, attr, buffer, define
from .numbers.attention import HEIGHTS, SOFTMAX_BITS, WIDTHS
from .numbers.strided import stride
from .tile_rules import whole
from .types import Buffer, f32, s32, u32

#: Vectors of a block.
BLOCK = stride(8)


@define("tile.softmax_rows", kw_only=True)
class SoftmaxRows(Op):
    """Each warp has a vector row of one of a ``batch`` of ``scores``, all of one pattern.

    ``ptr`` has the first vector, a multiple of 16, and the end of each vector row of ``height`` rows; the last one may
    have fewer, ``m`` in all.  A score is worth ``q_scale * k_scale / sqrt(d)``.  ``values`` gets the exponentials of
    each block, of ``bits`` bits below the largest of a row: the bytes of the highest plane first, row by row, zeros
    where a block has no vector.  ``scale`` gets ``v_scale`` over the sum of a row's exponentials, 0 where it has none.
    ``fresh``: scores and scales are made by the launch before, which this one may overlap with.
    """

    scores: Buffer = buffer()
    ptr: Buffer = buffer()
    q_scale: Buffer = buffer()
    k_scale: Buffer = buffer()
    v_scale: Buffer = buffer()
    values: Buffer = buffer(writes=True, reads=False)
    scale: Buffer = buffer(writes=True, reads=False)
    batch: int = attr()
    m: int = attr()
    height: int = attr()
    d: int = attr()
    bits: int = attr()
    fresh: bool = attr(default=False)


@check(SoftmaxRows)
def _softmax_rows(op: SoftmaxRows, ctx: Context) -> None:
    ctx.one_of(op.height, HEIGHTS, "rows of a vector")
    ctx.one_of(op.bits, SOFTMAX_BITS, "bits of the exponentials")
    ctx.one_of(op.d, WIDTHS, "elements of a head")
    ctx.need(min(op.batch, op.m) >= 1, f"a batch of {op.batch} matrices of {op.m} rows")
    ctx.need((op.scores.dtype, op.values.dtype) == (s32, u32), "scores are s32, exponentials come in words")
    whole(
        ctx, op.scores.size, op.batch * op.height * BLOCK, f"@{op.scores.name} has no whole blocks of {BLOCK} vectors"
    )
    planes = op.bits // 8
    ctx.need(4 * op.values.size == op.scores.size * planes, f"@{op.values.name} has not {planes} bytes a score")
    ctx.need(op.ptr.dtype is s32 and op.ptr.size == 2 * -(-op.m // op.height),
             f"@{op.ptr.name} has not two numbers for each vector row")  # fmt: skip
    for buf, size in ((op.q_scale, 1), (op.k_scale, 1), (op.v_scale, 1), (op.scale, op.batch * op.m)):
        ctx.need(buf.dtype is f32 and buf.size == size, f"@{buf.name} is not {size} f32")
