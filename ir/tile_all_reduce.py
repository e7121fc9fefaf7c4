"""The tile op of a sum over GPUs, each of which writes its part straight into the memory of all others.

Only split layers sum over GPUs, so no family of schedules has it.
"""

from __future__ import annotations

from .checks import Context, check
from .node import Op, attr, buffer, define
from .op_all_reduce import MOST_RANKS, SUMMED
from .types import Buffer, DType, s32, u32, u64


@define("tile.all_reduce", kw_only=True)
class AllReduce(Op):
    """``dst`` gets the sum over ranks of their ``src``, both in words of 8 bytes of ``dtype``.

    ``theirs`` are the buffers of all ranks in order, whose own one is number ``rank``: two halves, of each a place for
    every rank, of values and tags in turn.  The tag is the launch's number, by which it also takes a half: one more
    than what ``epoch`` has for each block, which is left there.  ``words``: how many there are.  ``patience``: how
    long a wait may last, in units of 2^20 clock cycles, before it ends the launch as failed; 0: for ever.
    """

    src: Buffer = buffer()
    dst: Buffer = buffer(writes=True, reads=False)
    theirs: tuple[Buffer, ...] = buffer(writes=True)
    epoch: Buffer = buffer(writes=True)
    words: Buffer = buffer()
    dtype: DType = attr()
    rank: int = attr()
    patience: int = attr()


@check(AllReduce)
def _all_reduce(op: AllReduce, ctx: Context) -> None:
    ctx.one_of(op.dtype, SUMMED, "type of what is summed")
    ranks = len(op.theirs)
    ctx.need(2 <= ranks <= MOST_RANKS, f"{ranks} buffers, of 2 to {MOST_RANKS} ranks")
    ctx.need(0 <= op.rank < ranks, f"there is no rank {op.rank} of {ranks}")
    ctx.need(op.patience >= 0, f"patience {op.patience} is negative")
    for buf in (op.src, op.dst, *op.theirs):
        ctx.need(buf.dtype is u64, f"@{buf.name} is {buf.dtype}, not u64")
    ctx.need(op.dst.size == op.src.size, f"@{op.dst.name} has not the size of @{op.src.name}")
    for buf in op.theirs:
        ctx.need(buf.size == 4 * ranks * op.src.size, f"@{buf.name} has no place for every rank in each half")
    ctx.need(op.epoch.dtype is u32 and op.epoch.size == getattr(ctx.func, "blocks", 0),
             f"@{op.epoch.name} has not a number for each block, u32")  # fmt: skip
    ctx.need(op.words.dtype is s32 and op.words.size == 1, f"@{op.words.name} is not one s32")
    ctx.need(bool(getattr(ctx.func, "together", False)), "blocks of which not all run at the same time wait for others")
