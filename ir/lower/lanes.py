"""Which thread is this: its place among threads, its place in a fragment."""

from __future__ import annotations

from ..expr import Expr
from .context import Context


def lane_coordinates(cx: Context) -> tuple[Expr, Expr]:
    """(g, t): the lane's group of four and its place in it, as the fragment tables name them."""
    return cx.b.let("g", cx.lane // 4), cx.b.let("t", cx.lane % 4)


def thread_place(cx: Context, threads: tuple[int, int]) -> tuple[Expr, Expr]:
    """Row and column of this thread among ``threads[0]`` x ``threads[1]``."""
    b = cx.b
    if threads[1] == 32:
        return cx.warp, cx.lane
    return b.let("ty", cx.tid // threads[1]), b.let("tx", cx.tid % threads[1])
