"""Schedules of general updates: lines such as ``direct block=32x8 column=4``.

All work on the CUDA cores.  Tensor cores multiply by constant matrices, and fused time steps convolve constant weights:
both need a formula that is linear with coefficients that are the same in every cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import FAMILIES as OF_STENCILS
from sparsegen.schedule import nearest

#: family -> the words of its line.
FAMILIES: Final[dict[str, tuple[str, ...]]] = {"direct": ("block", "column")}
#: Cells of a column that a thread may have.
COLUMNS: Final = (1, 8)
WHY: Final = (
    "tensor cores and fused time steps need a formula that is linear, with the same coefficients in every cell: "
    "general updates take CUDA-core schedules, a time step a pass"
)


@dataclass(frozen=True)
class UpdateSchedule:
    """How a general update becomes a kernel: ``block`` threads along a row x down, ``column`` cells below one another
    for each thread (on one axis a thread has one cell)."""

    family: str = "direct"
    block: tuple[int, int] = (32, 8)
    column: int = 1

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ScheduleError(
                f"{self.family!r} is no schedule of general updates"
                + (f": {WHY}" if self.family in OF_STENCILS else ""),
                hint=f"{nearest(self.family, FAMILIES)}there are: {', '.join(FAMILIES)}",
            )
        low, high = COLUMNS
        if not low <= self.column <= high:
            raise ScheduleError(f"column={self.column} is out of range", hint=f"column goes from {low} to {high}")
        if min(self.block) < 1 or self.threads > 1024 or self.threads % 32:
            raise ScheduleError(
                f"block={self.block[0]}x{self.block[1]} has {self.threads} threads; a GPU takes whole warps",
                hint="choose a multiple of 32, up to 1024, as in block=32x8",
            )

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1]

    def __str__(self) -> str:
        return f"{self.family} block={self.block[0]}x{self.block[1]} column={self.column}"

    @staticmethod
    def parse(text: str) -> UpdateSchedule:
        """The schedule that a line describes; words left out take their defaults."""
        family, *words = text.split() or [""]
        made = UpdateSchedule(family)
        given: dict[str, str] = {}
        for word in words:
            key, _, value = word.partition("=")
            if key not in FAMILIES[family]:
                raise ScheduleError(
                    f"{word!r} means nothing to a {family} schedule of a general update",
                    hint=f"{nearest(key, FAMILIES[family])}there are: {', '.join(FAMILIES[family])}",
                )
            if key in given:
                raise ScheduleError(f"{word!r}: {key} is given twice", hint="keep one of them")
            if not re.fullmatch(r"[1-9]\d{0,3}x[1-9]\d{0,3}" if key == "block" else r"[1-9]\d{0,3}", value):
                raise ScheduleError(f"{word!r} is no size", hint=f"as in {made}")
            given[key] = value
        across, down = map(int, given.get("block", "32x8").split("x"))
        return UpdateSchedule(family, (across, down), int(given.get("column", "1")))


def candidates() -> Iterator[UpdateSchedule]:
    """What the search tries, plainest first."""
    for column in (1, 2, 4):
        for block in ((32, 8), (64, 4), (32, 4)):
            yield UpdateSchedule("direct", block, column)
