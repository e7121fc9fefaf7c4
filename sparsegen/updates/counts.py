"""Exact counts of a general update's launch, from its formula and schedule alone, for fields of any size.

Threads that lie inside with all they read and keep work their column out in one go, and load a number that two of its
cells read once.  The others go cell by cell.  The names of the counts are those of the emulator, and tests hold both to
equality; neither it nor the warp level is imported.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from sparsegen.cost.counts.base import Launch
from sparsegen.cost.counts.cells import Lines, Places, Warps
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.tiles import ONE_CELL, Choices, Ints, Range, frozen, kinds, mapped, starts, unit
from sparsegen.ir import formula
from sparsegen.ir.op import Sides
from sparsegen.ir.types import DTYPES

if TYPE_CHECKING:
    from sparsegen.dsl.update import Update
    from sparsegen.updates.schedule import UpdateSchedule

#: Flags of a thread's rows: the cell is in the field; the whole column reads nothing outside, and is not kept.
VALID, INNER = 1, 2


def launch(update: Update, shape: tuple[int, ...], schedule: UpdateSchedule) -> Launch:
    """One time step on packed arrays of ``shape``."""
    return Launch(update.name, _Step(update, shape, schedule).counts())


class _Step:
    """The launch of a time step."""

    def __init__(self, update: Update, shape: tuple[int, ...], schedule: UpdateSchedule) -> None:
        self.update, self.shape, self.dtype, self.tally = update, shape, DTYPES[update.dtype], Tally()
        self.code, self.results = formula.contract(update.code, update.results)
        cols, rows = schedule.block if len(shape) > 1 else (schedule.threads, 1)
        self.column = schedule.column if len(shape) > 1 else 1
        self.warps = Warps.of(rows, cols)
        self.size = (1, rows * self.column, cols)[-len(shape) :]
        self.keep = [frozen(update.radius, _specs(sides)) for sides in update.sides]
        whole = tuple((0, n) for n in shape)
        self.spans = [
            (low, high + m - 1) for (low, high), m in zip(starts((whole,), self.size), self.size, strict=True)
        ]
        self.inner = [self._inner(axis) for axis in range(len(shape))]
        self.kinds = [
            kinds((0, n), m, inner, unit(prod(shape[axis + 1 :]), self.dtype.nbytes))
            for axis, (n, m, inner) in enumerate(zip(shape, self.size, self.inner, strict=True))
        ]

    def _inner(self, axis: int) -> Range:
        """Cells of an axis that read nothing outside it and that no border keeps."""
        reach = [offset[axis] for _, _, offset in formula.reads(self.code)]
        before = max(0, *(-o for o in reach), *(keep[axis][0] for keep in self.keep))
        after = max(0, *reach, *(keep[axis][1] for keep in self.keep))
        return before, self.shape[axis] - after

    def counts(self) -> dict[str, int]:
        """Those of the launch."""
        for w in self.warps:
            for row in range(self.column):
                self._border(w, row)
            self._inside(w)
        return self.tally.result()

    # ------------------------------------------------------------------------------------------------ both ways
    @cached_property
    def _arithmetic(self) -> Counter[str]:
        """Instructions of a cell that are not memory's."""
        out = Counter[str]()
        for node in self.code:
            op = str(node[0])
            if op in formula.COMPARE:
                out[f"compare.{self.dtype}"] += 1
            elif op == "where":
                out[f"select.{self.dtype}"] += 1
            elif op in formula.SIGNATURES and op not in formula.LOGIC:
                out[f"{op}.{self.dtype}"] += 1
        return out

    def _work(self, warps: int) -> None:
        for name, n in self._arithmetic.items():
            self.tally.issue(name, n * warps)

    def _lines(self, w: Warps, row: int, tap: tuple[int, ...], sides: Sides | None) -> Lines:
        """The rows that a neighbour of cells ``row`` below the first of each thread is read from.

        ``sides``: where cells outside are read; None for cells that are not tested.
        """
        places: list[Places] = []
        for axis, (k, n, (low, high)) in enumerate(zip(self.kinds[:-1], self.shape, self.inner, strict=False)):
            own = axis == len(self.shape) - 2
            first, times = k.cells(w.row * self.column if own else ONE_CELL)
            cell, last = first + (row if own else 0), first + (self.column - 1 if own else 0)
            flags = VALID * (cell < n) + INNER * ((first >= low) & (last < high))
            at = cell + tap[axis]
            places.append(Places(at if sides is None else mapped(at, n, sides[axis]), flags, times))
        return Lines.of(places, self.shape, self.dtype.nbytes)

    def _request(self, kind: str, w: Warps, lines: Lines, cols: Ints, on: Any) -> int:
        """A request of every warp for the cells of ``lines`` in ``cols`` [kinds of x, 32]; how many have a lane."""
        at, times = lines.meet(self.kinds[-1], cols)
        mask, nbytes = (on & w.on).reshape(-1, 32), self.dtype.nbytes
        return self.tally.request(kind, at * nbytes, nbytes, mask, times)

    # ------------------------------------------------------------------------------------------------ inside
    def _inside(self, w: Warps) -> None:
        """The whole columns of threads near no border."""
        col = self.kinds[-1].first[:, None] + w.col
        fits = (col >= self.inner[-1][0]) & (col < self.inner[-1][1])
        zero = (0,) * len(self.shape)

        def request(kind: str, row: int, tap: tuple[int, ...]) -> int:
            lines = self._lines(w, row, tap, None)
            return self._request(kind, w, lines, col + tap[-1], ((lines.flags & INNER) > 0)[:, None] & fits)

        cells = {
            (name, level, tuple(o + (row if axis == len(zero) - 2 else 0) for axis, o in enumerate(tap)))
            for name, level, tap in formula.reads(self.code)
            for row in range(self.column)
        }
        for _, _, tap in cells:
            request("ld.global", 0, tap)
        for row in range(self.column):
            warps = [request("st.global", row, zero) for _ in self.results]
            self._work(warps[0])

    # ------------------------------------------------------------------------------------------------ at a border
    def _border(self, w: Warps, row: int) -> None:
        """One cell of the columns of all other threads."""
        u, zero = self.update, (0,) * len(self.shape)
        edge = any(inner != (0, n) for inner, n in zip(self.inner, self.shape, strict=True))
        if self.column == 1 and not edge:
            return
        col = self.kinds[-1].first[:, None] + w.col
        fits = (col >= self.inner[-1][0]) & (col < self.inner[-1][1])

        def request(kind: str, tap: tuple[int, ...], sides: Sides | None) -> int:
            lines = self._lines(w, row, tap, sides)
            near = ((lines.flags & INNER) > 0)[:, None] & fits
            there = ((lines.flags & VALID) > 0)[:, None] & (col < self.shape[-1])
            cols = col + tap[-1] if sides is None else mapped(col + tap[-1], self.shape[-1], sides[-1])
            return self._request(kind, w, lines, cols, there & ~near)

        of_field = {name: _specs(sides) for (name, _), sides in zip(u.fields, u.sides, strict=True)}
        selects = 0
        for name, _, tap in formula.reads(self.code):
            sides = of_field.get(name, _specs(u.coef_sides))
            request("ld.global", tap, sides if any(tap) else None)
            selects += self._choices(tap, sides)
        for keep in self.keep:
            if any(map(any, keep)):
                selects += 1
                request("ld.global", zero, None)
        warps = [request("st.global", zero, None) for _ in self.results]
        self.tally.issue(f"select.{self.dtype}", selects * warps[0])
        self._work(warps[0])

    def _choices(self, tap: tuple[int, ...], sides: Sides) -> int:
        """``select`` of the read of a neighbour: on the axes along which it is one."""
        axes = tuple(
            ((low + o, high + o), n, side)
            for (low, high), o, n, side in zip(self.spans, tap, self.shape, sides, strict=True)
            if o
        )
        return Choices.of(axes).read


def _specs(sides: Any) -> Sides:
    return tuple(((low.kind, low.value), (high.kind, high.value)) for low, high in sides)
