"""The op level of sums over the GPUs of a host that reach each other's memory."""

from __future__ import annotations

from typing import Final

from .checks import Context, check
from .node import Op, attr, define
from .types import DType, bf16, f16, f32

#: What can be summed, and how many GPUs at most.
SUMMED: Final = (f16, bf16, f32)
MOST_RANKS: Final = 8
#: Bytes that travel with one tag.
PIECE: Final = 8


@define("op.all_reduce")
class AllReduce(Op):
    """The sum over ``ranks`` GPUs of an array that each of them has: in the order of ranks, in f32, rounded once.

    This is the program of GPU ``rank``.  A launch has ``words`` pieces of 8 bytes, ``most`` at most, the same on all of
    them.  Each GPU has a buffer that all others write, u64: two halves for launches in turn, of each half a place for
    every rank, of ``most`` values with their tags.  ``patience``: how long it waits for the others before it ends
    as failed, in units of 2^20 clock cycles, half a millisecond; 0: for ever.
    """

    symbol: str = attr()
    dtype: DType = attr()
    ranks: int = attr()
    rank: int = attr()
    most: int = attr()
    patience: int = attr(default=0)

    @property
    def room(self) -> int:
        """Elements of each GPU's buffer, u64."""
        return 2 * self.ranks * self.most * 2


@check(AllReduce)
def _all_reduce(op: AllReduce, ctx: Context) -> None:
    ctx.one_of(op.dtype, SUMMED, "type of what is summed")
    ctx.need(2 <= op.ranks <= MOST_RANKS, f"{op.ranks} GPUs, 2 to {MOST_RANKS} are possible")
    ctx.need(0 <= op.rank < op.ranks, f"there is no rank {op.rank} of {op.ranks}")
    ctx.need(1 <= op.most <= 1 << 24, f"{op.most} pieces of 8 bytes are not in 1..{1 << 24}")
    ctx.need(op.patience >= 0, f"patience {op.patience} is negative")
