"""The numbers of fields that blocks keep in registers: which cells a block has, and which it gets from others.

A block has a window of ``warps`` x ``rows`` rows and 32 * ``cols`` columns; some of its cells are the block's own.
Those around them are a halo, which every time step spoils by a radius; after ``every`` steps it comes anew from the
blocks whose own cells it is.  Along an axis that wraps so do windows; along others they end where the field does, so
that what lies outside is met at a window's ends alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.int32]

#: Numbers of a block, each for both axes: the first cell of its window, its first own one, and the places in the window
#: where its own begin and end.
FACTS = 8


@dataclass(frozen=True)
class Held:
    """A field of ``shape`` (rows, columns) in ``tiles`` (rows of blocks, columns) blocks; all in cells.

    ``reach``: rows and columns that a step spoils of a window; ``wraps``: of each axis, whether it does.
    """

    shape: tuple[int, int]
    tiles: tuple[int, int]
    rows: int
    cols: int
    warps: int
    every: int
    reach: tuple[int, int]
    wraps: tuple[bool, bool]

    @property
    def window(self) -> tuple[int, int]:
        """Rows and columns of a window."""
        return self.warps * self.rows, 32 * self.cols

    @property
    def halo(self) -> tuple[int, int]:
        """Rows and columns around the own cells that are good when they have just come."""
        return self.every * self.reach[0], self.every * self.reach[1]

    @property
    def cells(self) -> int:
        """Cells of the field."""
        return self.shape[0] * self.shape[1]

    @property
    def blocks(self) -> int:
        """Blocks of the launch."""
        return self.tiles[0] * self.tiles[1]

    def own(self, axis: int) -> list[tuple[int, int]]:
        """Each block's own cells along an axis: the first, and the first past them."""
        n, count = self.shape[axis], self.tiles[axis]
        return [(i * n // count, (i + 1) * n // count) for i in range(count)]

    def first(self, axis: int, low: int) -> int:
        """Where the window begins whose own cells begin at ``low``."""
        n, size = self.shape[axis], self.window[axis]
        begin = low - self.halo[axis]
        return begin % n if self.wraps[axis] else min(max(begin, 0), n - size)

    def legal(self) -> str | None:
        """Why there is no such kernel; None if there is."""
        for axis, what in enumerate(("rows", "columns")):
            n, size, halo, count = self.shape[axis], self.window[axis], self.halo[axis], self.tiles[axis]
            if count > n:
                return f"{count} blocks share {n} {what}"
            if not self.wraps[axis] and n < size:
                return f"a window of {size} {what} does not fit into a field of {n} that does not wrap"
            most = max(high - low for low, high in self.own(axis))
            needed = most + 2 * halo if self.wraps[axis] or count > 2 else min(n, most + halo)
            if needed > size:
                return f"{most} {what} of a block and a halo of {halo} take {needed}, a window has {size}"
        if self.reach[0] > self.rows:
            return f"reads {self.reach[0]} rows away reach beyond the next warp, which has {self.rows}"
        if self.reach[1] > self.cols:
            return f"reads {self.reach[1]} columns away reach beyond the next lane, which has {self.cols}"
        return None

    # ---------------------------------------------------------------------------------------------- tables
    @cached_property
    def facts(self) -> Table:
        """``FACTS`` numbers of each block, rows before columns each time."""
        out = []
        for (top, bottom), (left, right) in self._each():
            spans = ((top, bottom, self.first(0, top)), (left, right, self.first(1, left)))
            (r0, r1), (c0, c1) = (self._inside(axis, *span) for axis, span in enumerate(spans))
            out.append([spans[0][2], spans[1][2], top, left, r0, c0, r1, c1])
        return np.array(out, np.int32)

    def _each(self) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        return [(rows, columns) for rows in self.own(0) for columns in self.own(1)]

    def _inside(self, axis: int, low: int, high: int, first: int) -> tuple[int, int]:
        """Own cells as places in a window."""
        begin = self.halo[axis] if self.wraps[axis] else low - first
        return begin, begin + high - low

    def place(self, row: Any, column: Any) -> Any:
        """Where a cell of a window lies in its image in shared memory: lanes side by side, column by column."""
        return row * self.window[1] + column % self.cols * 32 + column // self.cols

    def _good(self, axis: int, low: int, high: int, first: int) -> tuple[int, int]:
        """Places of the own cells and of the halo around them, as far as there is one."""
        begin, end = self._inside(axis, low, high, first)
        return max(0, begin - self.halo[axis]), min(self.window[axis], end + self.halo[axis])

    @cached_property
    def _halos(self) -> list[npt.NDArray[np.int64]]:
        """Of each block the cells that come from others: number of the cell in the field, place in the image."""
        found = []
        for (top, bottom), (left, right) in self._each():
            spans = ((top, bottom, self.first(0, top)), (left, right, self.first(1, left)))
            good = [np.arange(*self._good(axis, *span)) for axis, span in enumerate(spans)]
            r, c = (a.reshape(-1) for a in np.meshgrid(*good, indexing="ij"))
            (r0, r1), (c0, c1) = (self._inside(axis, *span) for axis, span in enumerate(spans))
            halo = ~((r >= r0) & (r < r1) & (c >= c0) & (c < c1))
            r, c = r[halo], c[halo]
            cells = (spans[0][2] + r) % self.shape[0] * self.shape[1] + (spans[1][2] + c) % self.shape[1]
            found.append(np.stack([cells, self.place(r, c)], 1))
        return found

    @cached_property
    def _lists(self) -> tuple[Table, Table]:
        wanted = np.zeros(self.cells, bool)
        for halo in self._halos:
            wanted[halo[:, 0]] = True
        given = []
        for block, ((top, bottom), (left, right)) in enumerate(self._each()):
            r, c = (a.reshape(-1) for a in np.meshgrid(np.arange(top, bottom), np.arange(left, right), indexing="ij"))
            kept = wanted[r * self.shape[1] + c]
            r, c = r[kept], c[kept]
            row, column = self.facts[block, 4] + r - top, self.facts[block, 5] + c - left
            given.append(np.stack([r * self.shape[1] + c, self.place(row, column)], 1))
        return _padded(given), _padded(self._halos)

    @property
    def given(self) -> Table:
        """``[blocks, n, 2]``: cells that a block gives to others, and their places; -1 behind the last."""
        return self._lists[0]

    @property
    def taken(self) -> Table:
        """``[blocks, n, 2]``: cells that a block takes from others, and their places; -1 behind the last."""
        return self._lists[1]


def _padded(lists: Sequence[npt.NDArray[np.int64]]) -> Table:
    size = max(map(len, lists))
    out = np.full((len(lists), size, 2), -1, np.int32)
    for row, found in zip(out, lists, strict=True):
        row[: len(found)] = found
    return out
