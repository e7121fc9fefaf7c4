"""Schedules of sparse products: ``bitmap mma=f16.m16n8k16 cols=16 warps=2x8 rows=7 stages=2 splits=1``, or ``dense``.

A line may leave words out: the cost model chooses them for the matrix and the device, so ``bitmap`` alone is the best
schedule that reads W's tiles.  ``dense`` is the dense product of the arrays' own library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sparsegen.ir.errors import ScheduleError
from sparsegen.products.product import MAX_ROWS
from sparsegen.schedule import nearest

#: family -> the words of its line, in the order in which they are printed.
FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    "bitmap": ("mma", "cols", "warps", "rows", "stages", "splits"),
    "dense": (),
}
#: mma shape -> the type of weights that it multiplies; ``none``: multiply-adds on the CUDA cores, one column.
MMA: Final[dict[str, str]] = {"f16.m16n8k16": "f16", "bf16.m16n8k16": "bf16", "none": ""}
#: Columns of x that a block works on with an mma.
COLUMNS: Final = (8, 16, 32, 64)
#: (lowest, highest) of the numbers.
RANGES: Final[dict[str, tuple[int, int]]] = {"rows": (1, MAX_ROWS), "stages": (2, 8), "splits": (1, 64)}
MAX_WARPS: Final = 32
_EXAMPLE: Final = "bitmap mma=f16.m16n8k16 cols=16 warps=2x8 rows=7 stages=2 splits=1"


@dataclass(frozen=True)
class SpmmSchedule:
    """How a product becomes a kernel.  What is 0 (or empty) is left to the cost model.

    ``cols``: columns of x that a block works on; ``warps``: those that share its rows x those that share the slabs of
    64 columns of W; ``rows``: strips of 16 rows of one warp at most; ``stages``: slabs in each warp's own ring;
    ``splits``: blocks that share a row range, each with a part of the slabs.
    """

    family: str = "bitmap"
    mma: str = ""
    cols: int = 0
    warps: tuple[int, int] = (0, 0)
    rows: int = 0
    stages: int = 0
    splits: int = 0

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ScheduleError(
                f"{self.family!r} is no schedule of sparse products",
                hint=f"{nearest(self.family, FAMILIES)}there are: {', '.join(FAMILIES)}",
            )
        if self.family == "dense":
            if self.given:
                raise ScheduleError(f"{min(self.given)} means nothing to a dense schedule", hint="write dense alone")
            return
        if self.mma and self.mma not in MMA:
            raise ScheduleError(
                f"mma={self.mma} is no shape of a product with bitmap tiles",
                hint=f"{nearest(self.mma, MMA)}there are: {', '.join(MMA)}",
            )
        fits = (0, 1) if self.mma == "none" else (0, *COLUMNS) if self.mma else (0, 1, *COLUMNS)
        if self.cols not in fits:
            raise ScheduleError(
                f"cols={self.cols}{f' with mma={self.mma}' * bool(self.mma)}: a block has 1 column on the CUDA cores "
                "(mma=none) or whole fragments of 8",
                hint=f"choose among: {', '.join(map(str, fits[1:]))}",
            )
        if self.warps != (0, 0) and (min(self.warps) < 1 or self.threads > 32 * MAX_WARPS):
            raise ScheduleError(
                f"warps={self.warps[0]}x{self.warps[1]} are {self.threads} threads",
                hint=f"rows x slabs, at least one of each and {MAX_WARPS} in all, as in warps=2x8",
            )
        for name, (low, high) in RANGES.items():
            if (value := getattr(self, name)) and not low <= value <= high:
                raise ScheduleError(f"{name}={value} is out of range", hint=f"{name} goes from {low} to {high}")

    @property
    def given(self) -> Mapping[str, Any]:
        """The words of the line that are not left to the cost model."""
        words = FAMILIES["bitmap"]
        return {name: value for name in words if (value := getattr(self, name)) and value != (0, 0)}

    @property
    def complete(self) -> bool:
        """Whether nothing is left to the cost model."""
        return len(self.given) == len(FAMILIES[self.family])

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps[0] * self.warps[1]

    def __str__(self) -> str:
        def show(value: Any) -> str:
            return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)

        return " ".join([self.family, *(f"{name}={show(value)}" for name, value in self.given.items())])

    @staticmethod
    def parse(text: str) -> SpmmSchedule:
        """The schedule that a line describes; ScheduleError for anything unknown, repeated or out of range."""
        family, *words = text.split() or [""]
        known = FAMILIES[SpmmSchedule(family).family]
        given: dict[str, Any] = {}
        for word in words:
            key, _, value = word.partition("=")
            if key not in known:
                raise ScheduleError(
                    f"{word!r} means nothing to a {family} schedule of a sparse product",
                    hint=f"{nearest(key, known)}there are: {', '.join(known) or 'no words'}",
                )
            if key in given:
                raise ScheduleError(f"{word!r}: {key} is given twice", hint="keep one of them")
            if key == "mma":
                given[key] = value or "nothing"
            elif not re.fullmatch(r"[1-9]\d{0,3}x[1-9]\d{0,3}" if key == "warps" else r"[1-9]\d{0,3}", value):
                raise ScheduleError(f"{word!r} is no size", hint=f"as in {_EXAMPLE}")
            else:
                given[key] = tuple(map(int, value.split("x"))) if key == "warps" else int(value)
        return SpmmSchedule(family, **given)


DENSE: Final = SpmmSchedule("dense")
