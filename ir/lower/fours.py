"""Products of warpgroups that keep 2 of every 4 columns."""

from __future__ import annotations

from collections.abc import Callable

from .. import tile_fours as t
from ..metadata import DENSE, KEPT, SELECTORS
from ..numbers.fours import values_size, words_size
from ..numbers.groups import STEP, row_bytes
from ..swizzle import k_major, mn_major
from .context import Context, phased
from .groups import my_group


@phased(t.MultiplyFours)
def multiply_fours(cx: Context, op: t.MultiplyFours) -> Callable[[], None]:
    b, by_row = cx.b, op.order == "row"
    width = row_bytes(op.cols)
    b_tile, deep = (mn_major(width, STEP), width // 2) if by_row else (k_major(2 * STEP), 1)
    group = my_group(cx)

    def turn() -> None:
        slot = cx.resolve(op.slot)
        a = b.let("a0", slot * values_size(op.groups) + group * values_size(1))
        x = b.let("b0", slot * (STEP * op.cols))
        cx.alloc(op.word)
        b.st(op.word, 0, b.ld(op.words, slot * words_size(op.groups) + cx.tid, hint="code"))
        b.sync()  # one lane frees the slot, for all that have read a word of it
        b.wgmma_fence()
        for half in range(SELECTORS):
            b.wgmma_sp(op.acc, op.a, a + half * KEPT, op.b, x + half * DENSE * deep, op.word, cols=op.cols,
                       a_tile=k_major(STEP), b_tile=b_tile, a_major="k", b_major="mn" if by_row else "k",
                       selector=half)  # fmt: skip

    return turn
