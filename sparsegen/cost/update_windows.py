"""What windows of an update's fields in registers need, whether blocks exchange cells or not: numbers on three axes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from sparsegen.dsl.update import Update
from sparsegen.ir import formula
from sparsegen.ir.numbers.held import Cells, Held, spread
from sparsegen.ir.op_update import parameters
from sparsegen.schedule import UpdateSchedule
from sparsegen.sizes import ITEMSIZE

#: 32-bit registers of a thread besides the cells that it holds, and how many it needs for each of these (of 14 kernels
#: that nvcc 13 compiled for sm_90a, those that need more spill).
REGISTERS: Final = 48
HELD: Final = 1.25


#: What binds where windows are worked on, in words, and the symbols of that.
REASONS: Final[dict[str, str]] = {
    "fma": "multiplications and additions of the formula for all cells of a window that still count",
    "alu": "its comparisons and choices",
    "mufu": "its divisions, roots and functions, as first estimated",
    "issue": "warp instructions, one a clock and sub-core",
    "shared": "rows that warps show one another, and columns between lanes",
    "wait": "divisions, roots and functions that a warp waits for, with nothing to overlap with",
}
SYMBOLS: Final[dict[str, str]] = {
    "N": "cells of the grid", "lines": "rows of a thread in all its planes", "planes": "planes of a thread",
    "made": "its rows that a step makes, in all its planes",
    "cols": "its columns", "warps": "warps a block", "counts": "share of the rows of a window that still count",
    "reads": "arrays read", "writes": "arrays written", "FMA": "multiplications and additions a cell",
    "ALU": "comparisons and choices a cell", "MUFU": "divisions, roots and functions a cell",
    "beside": "values from neighbouring lanes a row", "shown": "rows that a warp shows above and below, of a plane",
}  # fmt: skip


@lru_cache(maxsize=1 << 8)
def offsets(update: Update) -> tuple[tuple[str, int, Cells], ...]:
    """The reads of a formula on three axes: those that a field has not come first."""
    return tuple((name, level, (0, 0, *o)[-3:]) for name, level, o in formula.reads(update.code))  # type: ignore[misc]


@lru_cache(maxsize=1 << 8)
def reads_of(update: Update) -> frozenset[Cells]:
    """How far its reads lie, to either side."""
    return spread(offset for *_, offset in offsets(update))


@lru_cache(maxsize=1 << 8)
def reach(update: Update) -> Cells:
    """Planes, rows and columns that the farthest reads lie away."""
    planes, rows, columns = (max([0, *(abs(o[axis]) for *_, o in offsets(update))]) for axis in range(3))
    return planes, rows, columns


def made(held: Held) -> int:
    """Rows of a thread that a step makes, in all planes that are of use afterwards."""
    low, high = held.made
    return (high - low) * held.share[1]


def on_three(of: Iterable[int]) -> Cells:
    """A number of each axis, with 1 for those that a field has not."""
    planes, rows, columns = (1, 1, *of)[-3:]
    return planes, rows, columns


def wraps(update: Update) -> tuple[bool, bool, bool]:
    """Of each axis, whether the first field wraps; axes that it has not do."""
    planes, rows, columns = (True, True, *(pair[0].kind == "periodic" for pair in update.sides[0]))[-3:]
    return planes, rows, columns


def differ(update: Update) -> tuple[str, str] | None:
    """Why an update has no windows: an axis wraps for one field and not for another."""
    if any(len({pair[0].kind == "periodic" for pair in pairs}) > 1 for pairs in zip(*update.sides, strict=True)):
        return "an axis wraps for one field and not for another: a cell outside is then two", "take direct"
    return None


@lru_cache(maxsize=1 << 8)
def arrays(update: Update) -> int:
    """Windows that a block holds: every level of each field, and the coefficients."""
    return len(parameters(update.fields, update.coefs))


def swapped(update: Update) -> int:
    """Those that change: every level of each field."""
    return len(parameters(update.fields, ()))


def passed(update: Update) -> int:
    """Arrays of which warps show one another rows."""
    return len({(name, level) for name, level, (_, dy, _) in offsets(update) if dy})


def beside(update: Update) -> int:
    """Values from neighbouring lanes that a line of cells needs."""
    found = offsets(update)
    return 2 * reach(update)[2] * len({(n, level, dz, dy) for n, level, (dz, dy, dx) in found if dx})


def registers(update: Update, s: UpdateSchedule) -> int:
    """Estimated 32-bit registers of a thread: its cells of every array, rows of other warps, and what is old but still
    read: a plane's rows where there are several planes, a level where levels turn."""
    words, lines = max(1, ITEMSIZE[update.dtype] // 4), s.planes * s.rows
    old = lines if max(levels for _, levels in update.fields) > 1 else s.rows if s.planes > 1 else 0
    shown = reach(update)[1] * max(2, s.planes)
    return int(REGISTERS + words * s.cols * (HELD * arrays(update) * lines + shown + old))


def edges(update: Update, s: UpdateSchedule) -> int:
    """Bytes of the rows that a block's warps show one another, of two steps."""
    line = s.planes * s.cols * 32 * s.warps * ITEMSIZE[update.dtype]
    return int(line * 4 * passed(update) * reach(update)[1])
