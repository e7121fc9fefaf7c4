"""The tile op of products that keep 2 of every 4 columns: sparse products of warpgroups, which take x as it is.

No other family uses it: elsewhere both operands are dense.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr
from .node import Op, attr, buffer, declare, define, operand
from .numbers.fours import values_size, words_size
from .numbers.groups import STEP
from .op_spmm import ORDERS
from .tile_groups import in_block, in_groups, in_ring
from .tile_rules import registers, same_type
from .types import Buffer, f32, u32


@define("tile.multiply_fours", kw_only=True)
class MultiplyFours(Op):
    """``acc += a * b`` by each warpgroup, asynchronously: its 64 rows of a slot of ``a``, the slot's 64 rows of x.

    Of each row and four of the 64 columns ``a`` has two elements: 64 rows of 32, swizzled.  Which, the threads say, by
    their words of the slot of ``words`` (:mod:`sparsegen.ir.metadata`), which wait in ``word``, a register of each,
    until the product has ended.  ``order``: how x lies in its slot, see :class:`sparsegen.ir.tile_groups.CopyRows`.
    """

    acc: Buffer = buffer(writes=True)
    a: Buffer = buffer()
    words: Buffer = buffer()
    word: Buffer = declare()
    b: Buffer = buffer()
    slot: Expr = operand()
    cols: int = attr()
    groups: int = attr()
    order: str = attr(one_of=ORDERS)


@check(MultiplyFours)
def _multiply_fours(op: MultiplyFours, ctx: Context) -> None:
    in_block(ctx, op.cols)
    in_groups(ctx, op.groups)
    registers(ctx, op.acc, op.cols // 2, exactly=True)
    ctx.need(op.acc.dtype is f32, f"sums are made in f32, not {op.acc.dtype}")
    in_ring(ctx, op.a, values_size(op.groups), "W's kept elements of a turn")
    in_ring(ctx, op.words, words_size(op.groups), "the words of a turn")
    registers(ctx, op.word, 1, exactly=True)
    ctx.need(op.words.dtype is u32, f"words are u32, not {op.words.dtype}")
    in_ring(ctx, op.b, STEP * op.cols, "the rows of x of a turn")
    same_type(ctx, op.a, op.b)
