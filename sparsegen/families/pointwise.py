"""``direct`` for general updates: a thread works a few cells of a column out, one time step a launch.

Tensor cores multiply by constant matrices, and fused time steps convolve constant weights: both need a formula that is
linear with coefficients that are the same in every cell.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparsegen.ir.errors import ScheduleError
from sparsegen.registry import register
from sparsegen.schedule import Schedule, UpdateSchedule, Vocabulary, Word, integer, pair


class Pointwise(Vocabulary):
    """``block`` threads along a row x down, ``column`` cells below one another for each thread (on one axis a thread
    has one cell)."""

    op = "update"
    name = "direct"
    telling = ("block", "column")
    words = (Word("block", pair, (32, 8)), Word("column", integer, 1, 1, 8))

    def consistent(self, s: Schedule) -> None:
        """A block is whole warps, no more than a GPU takes."""
        if s.threads > 1024 or s.threads % 32:
            raise ScheduleError(
                f"block={s.block[0]}x{s.block[1]} has {s.threads} threads; a GPU takes whole warps",
                hint="choose a multiple of 32, up to 1024, as in block=32x8",
            )


FAMILY = register(Pointwise())


def candidates() -> Iterator[UpdateSchedule]:
    """What the search tries, plainest first."""
    for column in (1, 2, 4):
        for block in ((32, 8), (64, 4), (32, 4)):
            yield UpdateSchedule("direct", block=block, column=column)
