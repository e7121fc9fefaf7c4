"""The numbers of fields that blocks keep in registers: which cells a block has, and which it gets from others.

A block has a window of ``planes``, of ``warps`` x ``rows`` rows and 32 * ``cols`` columns; some of its cells are the
block's own.  Those around them are a halo, which every time step spoils by a radius; after ``every`` steps it comes
anew from the blocks whose own cells it is, as far as own ones depend on it: of a star no corners.  Along an axis that
wraps so do windows; along others they end where the field does, so that what lies outside is met at a window's ends
alone.  Where one window is all of an axis that wraps its ends are neighbours: the axis is closed, and has no halo.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from .arithmetic import up
from .records import Records

Table = npt.NDArray[np.int32]
#: A number of each axis: planes, rows, columns.
Cells = tuple[int, int, int]
#: A plane and a row of a thread.
Line = tuple[int, int]
#: Where a block's own cells begin and end along an axis, in the field, and where its window begins.
Span = tuple[int, int, int]

#: Numbers of a block, each of all axes: the first cell of its window, its first own one, and the places in the window
#: where its own begin and end.
FACTS = 12
#: 32-bit registers of the cells, with their tags, that a thread asks for at the same time.
_AT_ONCE = 48
#: Cells that a thread looks at one by one: measured, an image in shared memory is as good from so many on.
_FEW = 6
_AXES = ("planes", "rows", "columns")


@dataclass(frozen=True)
class Held:
    """A field of ``shape`` in ``tiles`` blocks along each axis; all in cells.

    ``share``: cells of a thread; ``reads``: how far a formula's reads lie, to either side; ``wraps``: of each axis,
    whether it does.  ``only``: numbers of those blocks that there are, where not all are needed.
    """

    shape: Cells
    tiles: Cells
    share: Cells
    warps: int
    every: int
    reads: frozenset[Cells]
    wraps: tuple[bool, bool, bool]
    only: tuple[int, ...] | None = None

    @property
    def window(self) -> Cells:
        """Cells of a window."""
        planes, rows, cols = self.share
        return planes, self.warps * rows, 32 * cols

    @property
    def closed(self) -> tuple[bool, bool, bool]:
        """Of each axis, whether the ends of a window are neighbours."""
        each = zip(self.wraps, self.tiles, self.shape, self.window, strict=True)
        planes, rows, columns = (wraps and count == 1 and n == size for wraps, count, n, size in each)
        return planes, rows, columns

    @property
    def reach(self) -> Cells:
        """Cells that a step spoils at the ends of a window."""
        planes, rows, columns = map(max, zip((0, 0, 0), *self.reads, strict=True))
        return planes, rows, columns

    @cached_property
    def needed(self) -> npt.NDArray[np.bool_]:
        """``[planes, rows, columns]``: whether own cells depend on one so far from them, before the next exchange.

        To either side alike: whom a block waits for waits for it, so that none overtakes another by two rounds.
        """
        size = [self.every * far + 1 for far in self.reach]
        found = np.zeros(size, bool)
        found[0, 0, 0] = True
        for _ in range(self.every):
            before = found.copy()
            for z, y, x in self.reads:
                found[z:, y:, x:] |= before[: size[0] - z, : size[1] - y, : size[2] - x]
        for axis in range(3):  # nearer ones of own cells farther in
            found = np.flip(np.logical_or.accumulate(np.flip(found, axis), axis), axis)
        return found

    @property
    def shared(self) -> tuple[bool, bool, bool]:
        """Of each axis, whether the largest block has neighbours along it."""
        each = zip(self.tiles, self.wraps, self.closed, strict=True)
        planes, rows, columns = (count > 1 or (wraps and not closed) for count, wraps, closed in each)
        return planes, rows, columns

    @property
    def most(self) -> Cells:
        """Own cells along each axis of the largest block."""
        planes, rows, columns = (-(-n // count) for n, count in zip(self.shape, self.tiles, strict=True))
        return planes, rows, columns

    def by(self, arrays: int, nbytes: int) -> str:
        """How blocks exchange cells of so many arrays, of ``nbytes`` each: ``lines`` where those along the last axis
        are one block's, single ``cells`` where a thread has few, else ``images`` in shared memory; empty where no cells
        come from others."""
        if not self.taken_cells:
            return ""
        if self.closed[2]:
            return "lines"
        alone = self.reach[1] == 0 and self.warps > 1  # warps that do not meet in a step might run ahead of others
        few = prod(self.share) * arrays <= _FEW
        return "cells" if few and not alone else "images"

    def at_once(self, nbytes: int) -> int:
        """Cells of ``nbytes`` that a thread asks for at the same time, with their tags."""
        return _AT_ONCE // (2 * max(1, nbytes // 4))

    def records(self, arrays: int, nbytes: int) -> Records:
        """How a line of so many arrays travels where it is one block's."""
        return Records.of(self.share[2] * arrays, 8 * nbytes)

    @property
    def edge_lines(self) -> tuple[int, int]:
        """About how many lines a warp gives, and how many it takes, at most: most often one at the edge of a block."""
        own, rows, above = self.most[0], self.share[1], self.halo[1] * self.shared[1]
        before, least = self.halo[0] * self.shared[0], self.shape[1] // self.tiles[1]
        # a warp may give lines at both ends of a block, and take some beyond both of a smaller one
        near = min(rows, above)
        gives = max(near, *(min(rows, n) - max(0, n - 2 * above) for n in (least, self.most[1])))
        far = max(0, min(rows - least, 2 * above) - near)
        corners = 2 * sum(int(self.needed[1:, 1 : beyond + 1, 0].sum()) for beyond in (near, far)) * self.shared[0]
        given = own * gives + min(own, 2 * before) * (rows - gives)
        return given, max(own * (near + far) + corners + 2 * before * (rows - near), 2 * before * rows)

    @property
    def taken_cells(self) -> int:
        """Cells that the largest block gets from others."""
        sides = [
            np.array([n, *(2 * beside,) * (length - 1)])
            for n, beside, length in zip(self.most, self.shared, self.needed.shape, strict=True)
        ]
        return int((self.needed * np.einsum("i,j,k->ijk", *sides)).sum()) - prod(self.most)

    @property
    def given_cells(self) -> int:
        """Own cells of the largest block that others get."""
        inner = (
            max(0, n - 2 * halo * beside) for n, halo, beside in zip(self.most, self.halo, self.shared, strict=True)
        )
        return prod(self.most) - prod(inner)

    @property
    def runs(self) -> float:
        """About how many runs of adjacent cells those are that the largest block gets and gives: one at each end of a
        line of own cells, and longer ones above, below, before and behind."""
        planes, rows, columns = self.most
        ends, far = 2 * planes * rows * self.shared[2], self.halo[2]
        at_ends = planes * rows * min(columns, 2 * far * self.shared[2])
        taken, given = self.taken_cells - ends * far, self.given_cells - at_ends
        return 2 * ends + max(0.0, taken / (columns + far) + given / columns)

    @property
    def halo(self) -> Cells:
        """Cells around the own ones that are good when they have just come."""
        planes, rows, columns = (
            0 if closed else self.every * reach for closed, reach in zip(self.closed, self.reach, strict=True)
        )
        return planes, rows, columns

    @property
    def made(self) -> tuple[int, int]:
        """From which plane of a window to before which one cells are of use after a step, in any block: those at its
        ends are spoiled, but where the field ends or is closed."""
        size, reach = self.window[0], self.reach[0]
        if self.closed[0] or not self.wraps[0]:
            return 0, size
        return reach, min(size, self.most[0] + 2 * self.halo[0] - reach)

    @property
    def cells(self) -> int:
        """Cells of the field."""
        return prod(self.shape)

    @property
    def blocks(self) -> int:
        """Blocks of the launch."""
        return prod(self.tiles) if self.only is None else len(self.only)

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
        for axis, what in enumerate(_AXES):
            n, size, halo, count = self.shape[axis], self.window[axis], self.halo[axis], self.tiles[axis]
            if count > n:
                return f"{count} blocks share {n} {what}"
            if not self.wraps[axis] and n < size:
                return f"a window of {size} {what} does not fit into a field of {n} that does not wrap"
            most = self.most[axis]
            needed = most + 2 * halo if self.wraps[axis] or count > 2 else min(n, most + halo)
            if needed > size:
                return f"{most} {what} of a block and a halo of {halo} take {needed}, a window has {size}"
        for reach, has, what, whose in zip(
            self.reach, self.share, _AXES, ("window", "next warp", "next lane"), strict=True
        ):
            if reach > has:
                return f"reads {reach} {what} away reach beyond the {whose}, which has {has}"
        return None

    # ---------------------------------------------------------------------------------------------- tables
    def spans(self, axis: int) -> list[Span]:
        """Of each tile along an axis."""
        return [(low, high, self.first(axis, low)) for low, high in self.own(axis)]

    def _spans(self) -> list[tuple[Span, Span, Span]]:
        """Of each block, block by block along the last axis first."""
        planes, rows, columns = map(self.spans, range(3))
        if self.only is None:
            return [(z, y, x) for z in planes for y in rows for x in columns]
        at = zip(*np.unravel_index(self.only, self.tiles), strict=True)
        return [(planes[z], rows[y], columns[x]) for z, y, x in at]

    @cached_property
    def facts(self) -> Table:
        """``FACTS`` numbers of each block, planes before rows before columns each time."""
        out = []
        for spans in self._spans():
            inside = [self.inside(axis, span) for axis, span in enumerate(spans)]
            out.append([
                *(first for _, _, first in spans), *(low for low, _, _ in spans), *(begin for begin, _ in inside),
                *(end for _, end in inside),
            ])  # fmt: skip
        return np.array(out, np.int32)

    def inside(self, axis: int, span: Span) -> tuple[int, int]:
        """Own cells as places in a window."""
        low, high, first = span
        begin = self.halo[axis] if self.wraps[axis] else low - first
        return begin, begin + high - low

    @property
    def turn(self) -> tuple[int, int]:
        """Lanes that a column of threads, and a line, begin further round than the one before: neighbouring cells of a
        line are in different banks then, and so are the few of a halo in each of several lines."""
        cols = self.share[2]
        return -(-32 // cols), -(-self.halo[2] // cols)

    def place(self, plane: Any, row: Any, column: Any) -> Any:
        """Where a cell of a window lies in its image in shared memory: lanes side by side, column by column."""
        _, rows, columns = self.window
        line, lane, c = plane * rows + row, column // self.share[2], column % self.share[2]
        by_column, by_line = self.turn
        return line * columns + c * 32 + (lane + c * by_column + line * by_line) % 32

    def _good(self, axis: int, span: Span) -> tuple[int, int]:
        """Places of the own cells and of the halo around them, as far as there is one."""
        begin, end = self.inside(axis, span)
        return max(0, begin - self.halo[axis]), min(self.window[axis], end + self.halo[axis])

    def _listed(self, spans: Sequence[Span], places: Sequence[Any]) -> npt.NDArray[np.int64]:
        """The cells of a box of a window: number of the cell in the field, place in the image."""
        z, y, x = (
            (first + at) % n for (_, _, first), at, n in zip(spans, places, self.shape, strict=True)
        )  # fmt: skip
        return np.stack([(z * self.shape[1] + y) * self.shape[2] + x, self.place(*places)], -1)

    def _asked(self, spans: tuple[Span, Span, Span]) -> tuple[Sequence[npt.NDArray[Any]], Any]:
        """Places of a window, on each axis, and whether their cells come from other blocks."""
        places = np.meshgrid(*(np.arange(*self._good(axis, span)) for axis, span in enumerate(spans)), indexing="ij")
        inside = (self.inside(axis, span) for axis, span in enumerate(spans))
        far = [
            np.maximum(np.maximum(begin - at, at - end + 1), 0) for at, (begin, end) in zip(places, inside, strict=True)
        ]
        return places, self.needed[tuple(far)] & np.logical_or.reduce([distance > 0 for distance in far])

    @cached_property
    def _halos(self) -> list[npt.NDArray[np.int64]]:
        """Of each block the cells that come from others."""
        found = []
        for spans in self._spans():
            places, asked = self._asked(spans)
            found.append(self._listed(spans, [at[asked] for at in places]))
        return found

    @cached_property
    def _lists(self) -> tuple[Table, Table]:
        wanted = np.zeros(self.cells, bool)
        for halo in self._halos:
            wanted[halo[:, 0]] = True
        given = []
        for spans in self._spans():
            own = [np.arange(*self.inside(axis, span)) for axis, span in enumerate(spans)]
            listed = self._listed(spans, [at.reshape(-1) for at in np.meshgrid(*own, indexing="ij")])
            given.append(listed[wanted[listed[:, 0]]])
        return _padded(given), _padded(self._halos)

    @cached_property
    def _swapped(self) -> npt.NDArray[np.bool_]:
        """``[blocks, 2, planes, rows, columns]``: which cells of its window a block gives, and which it takes."""
        found = np.zeros((self.blocks, 2, *self.window), bool)
        wanted = np.zeros(self.shape, bool)
        for block, spans in enumerate(self._spans()):
            places, asked = self._asked(spans)
            found[block, 1][tuple(places)] = asked
            cells = zip(spans, places, self.shape, strict=True)
            wanted[tuple((first + at[asked]) % n for (_, _, first), at, n in cells)] = True
        for block, spans in enumerate(self._spans()):
            own = np.ix_(*(np.arange(*self.inside(axis, span)) for axis, span in enumerate(spans)))
            found[block, 0][own] = wanted[tuple(slice(low, high) for low, high, _ in spans)]
        return found

    @property
    def line_bits(self) -> npt.NDArray[np.uint32]:
        """``[blocks, warps, 2, words]``: which lines of its threads a warp gives, and which it takes, where whole lines
        are one block's: bits in the order of planes and rows."""
        return _bits(self._swapped_lines.transpose(0, 3, 1, 2, 4).reshape(self.blocks, self.warps, 2, -1))

    @cached_property
    def _swapped_lines(self) -> npt.NDArray[np.bool_]:
        """``[blocks, 2, planes, warps, rows]``: which lines a warp gives, and which it takes."""
        planes, rows, _ = self.share
        return self._swapped.any(-1).reshape(self.blocks, 2, planes, self.warps, rows)

    @property
    def swapped_lines(self) -> tuple[tuple[Line, ...], tuple[Line, ...]]:
        """Lines of a thread that some warp gives, and those that some takes: what most do comes first, so that a warp
        in the middle has gone past the others in few steps."""
        given, taken = (_most_first(count) for count in self._swapped_lines.sum((0, 3)))
        return given, taken

    @property
    def cell_bits(self) -> npt.NDArray[np.uint32]:
        """``[blocks, threads, 2, words]``: which of its cells a thread gives, and which it takes, as bits."""
        planes, rows, cols = self.share
        cells = self._swapped.reshape(self.blocks, 2, planes, self.warps, rows, 32, cols)
        return _bits(cells.transpose(0, 3, 5, 1, 2, 4, 6).reshape(self.blocks, 32 * self.warps, 2, -1))

    @property
    def given(self) -> Table:
        """``[blocks, n, 2]``: cells that a block gives to others, and their places; -1 behind the last."""
        return self._lists[0]

    @property
    def taken(self) -> Table:
        """``[blocks, n, 2]``: cells that a block takes from others, and their places; -1 behind the last."""
        return self._lists[1]


def overlapping(
    shape: Cells, share: Cells, warps: int, levels: int, reads: frozenset[Cells], wraps: tuple[bool, bool, bool]
) -> Held | None:  # fmt: skip
    """Windows that overlap by what ``levels`` steps spoil, as few as there can be; None where they do not fit."""
    alone = Held(shape, (1, 1, 1), share, warps, levels, reads, wraps)
    each_axis = zip(shape, alone.window, alone.reach, wraps, strict=True)
    tiles = [_fewest(n, size, levels * far, wrap) for n, size, far, wrap in each_axis]
    planes, rows, columns = (count or 0 for count in tiles)
    return Held(shape, (planes, rows, columns), share, warps, levels, reads, wraps) if all(tiles) else None


def _fewest(n: int, size: int, halo: int, wraps: bool) -> int | None:
    """How many windows of ``size`` cells an axis of ``n`` takes, each with a halo of ``halo`` on either side but for
    those where the field ends; None if windows do not fit."""
    if n == size or (n < size and not wraps):
        return 1 if n == size else None
    if not wraps and n <= 2 * (size - halo):
        return 2
    return -(-n // (size - 2 * halo)) if size > 2 * halo else None


def spread(offsets: Iterable[Sequence[int]]) -> frozenset[Cells]:
    """How far reads at ``offsets`` on three axes lie, to either side."""
    return frozenset((abs(z), abs(y), abs(x)) for z, y, x in offsets)


def _most_first(counts: npt.NDArray[np.int64]) -> tuple[Line, ...]:
    """The places of what is not 0, the highest first."""
    found = sorted((-int(n), p, k) for (p, k), n in np.ndenumerate(counts) if n)
    return tuple((p, k) for _, p, k in found)


def _bits(found: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """The last axis as words of 32 bits, the first one lowest."""
    *outer, count = found.shape
    padded = np.zeros((*outer, up(count, 32)), np.uint8)
    padded[..., :count] = found
    return np.packbits(padded, -1, bitorder="little").view("<u4")


def _padded(lists: Sequence[npt.NDArray[np.int64]]) -> Table:
    size = max(map(len, lists))
    out = np.full((len(lists), size, 2), -1, np.int32)
    for row, found in zip(out, lists, strict=True):
        row[: len(found)] = found
    return out
