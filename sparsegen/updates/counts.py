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

import numpy as np

from sparsegen.cost.counts.base import Launch
from sparsegen.cost.counts.cells import Lines, Places, Warps
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.tiles import ONE_CELL, Choices, Range, frozen, kinds, mapped, starts, unit
from sparsegen.ir import formula as f
from sparsegen.ir.op import Sides
from sparsegen.ir.symbols import symbol
from sparsegen.ir.types import DTYPES

if TYPE_CHECKING:
    from sparsegen.dsl.update import Update
    from sparsegen.updates.schedule import UpdateSchedule

#: Flags of a thread's rows: the cell is in the field; the whole column reads nothing outside, and is not kept.
VALID, INNER = 1, 2


def launch(update: Update, shape: tuple[int, ...], schedule: UpdateSchedule) -> Launch:
    """One time step on packed arrays of ``shape``."""
    return Launch(symbol(update.name), _Step(update, shape, schedule).counts())


class _Step:
    """The launch of a time step."""

    def __init__(self, update: Update, shape: tuple[int, ...], schedule: UpdateSchedule) -> None:
        self.update, self.shape, self.dtype, self.tally = update, shape, DTYPES[update.dtype], Tally()
        self.code, self.results = f.contract(update.code, update.results)
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
        reach = [offset[axis] for _, _, offset in f.reads(self.code)]
        before = max(0, *(-o for o in reach), *(keep[axis][0] for keep in self.keep))
        after = max(0, *reach, *(keep[axis][1] for keep in self.keep))
        return before, self.shape[axis] - after

    def counts(self) -> dict[str, int]:
        """Those of the launch."""
        for w in self.warps:
            self._inside(w)
            self._border(w)
        return self.tally.result()

    @cached_property
    def _arithmetic(self) -> Counter[str]:
        """Instructions of a cell that are not memory's."""
        out = Counter[str]()
        for node in self.code:
            op = str(node[0])
            if op in f.COMPARE:
                out[f"compare.{self.dtype}"] += 1
            elif op == "where":
                out[f"select.{self.dtype}"] += 1
            elif op in f.SIGNATURES and op not in f.LOGIC:
                out[f"{op}.{self.dtype}"] += 1
        return out

    def _ask(self, kind: str, w: Warps, tap: f.Offset, rows: int, *, inside: bool, sides: Sides | None = None) -> int:
        """Requests for a neighbour of the first ``rows`` cells of the threads inside, or of the others: how many.

        ``sides``: what the neighbour is read by where it lies outside; None if it cannot.
        """
        *upper, x = range(len(self.shape))
        k, n, (low, high) = self.kinds[x], self.shape[x], self.inner[x]
        lines = Lines.of([self._places(w, axis, tap, rows, sides) for axis in upper], self.shape, self.dtype.nbytes)
        col = k.first[:, None] + w.col
        flags = lines.flags[:, None] & (VALID * (col < n) + INNER * ((col >= low) & (col < high)))
        mask = ((flags & INNER > 0) if inside else (flags == VALID)) & w.on
        at, times = lines.meet(k, col + tap[x] if sides is None else mapped(col + tap[x], n, sides[x]))
        return self.tally.request(kind, at * self.dtype.nbytes, self.dtype.nbytes, mask.reshape(-1, 32), times)

    def _places(self, w: Warps, axis: int, tap: f.Offset, rows: int, sides: Sides | None) -> Places:
        """Where the neighbours are on an axis before the last; a thread's cells are one column of its rows."""
        k, n, (low, high) = self.kinds[axis], self.shape[axis], self.inner[axis]
        if axis < len(self.shape) - 2:
            start, rows, deep = ONE_CELL, 1, 1
        else:
            start, deep = w.row * self.column, self.column
        first, times = k.cells(np.repeat(start, rows, axis=0))
        cell = first + np.tile(np.arange(rows), len(first) // rows)[:, None]
        flags = VALID * (cell < n) + INNER * ((first >= low) & (first + deep <= high))
        at = cell + tap[axis]
        return Places(at if sides is None else mapped(at, n, sides[axis]), flags, times)

    def _inside(self, w: Warps) -> None:
        """Threads near no border: whole columns, of whose numbers each is loaded once."""
        column = len(self.shape) - 2
        cells = {
            (name, level, tuple(o + (row if axis == column else 0) for axis, o in enumerate(tap)))
            for name, level, tap in f.reads(self.code)
            for row in range(self.column)
        }
        for _, _, tap in cells:
            self._ask("ld.global", w, tap, 1, inside=True)
        self._store(w, inside=True)

    def _border(self, w: Warps) -> None:
        """All other threads: cell by cell."""
        edge = any(inner != (0, n) for inner, n in zip(self.inner, self.shape, strict=True))
        if self.column == 1 and not edge:
            return  # outside the field
        u, selects = self.update, 0
        of_field = {name: _specs(sides) for (name, _), sides in zip(u.fields, u.sides, strict=True)}
        for name, _, tap in f.reads(self.code):
            sides = of_field.get(name, _specs(u.coef_sides))
            self._ask("ld.global", w, tap, self.column, inside=False, sides=sides)
            selects += self._choices(tap, sides)
        for keep in self.keep:
            if any(map(any, keep)):
                selects += 1
                self._ask("ld.global", w, (0,) * len(self.shape), self.column, inside=False)
        self.tally.issue(f"select.{self.dtype}", selects * self._store(w, inside=False))

    def _store(self, w: Warps, *, inside: bool) -> int:
        """Works all cells out and stores them: how many warps do so for a cell."""
        zero, warps = (0,) * len(self.shape), 0
        for _ in self.results:
            warps = self._ask("st.global", w, zero, self.column, inside=inside)
        for name, n in self._arithmetic.items():
            self.tally.issue(name, n * warps)
        return warps

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
