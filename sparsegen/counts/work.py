"""What a launch's blocks have to do, in units of which many are alike: tiles of a field, runs of strips of a matrix.

Two units are of one class if they are as far from each border of their box (further than so many units counts as
inside), if their addresses lie alike in the 32-byte sectors of memory, and if what a block fetches ahead meanwhile is
of one class too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from sparsegen.ir import tile as t
from sparsegen.ir.node import walk
from sparsegen.ir.op import Box, tile_counts
from sparsegen.ir.tile_bitmap import ShareStrips
from sparsegen.ir.types import Buffer

#: Bytes of a sector of global memory: what an access costs depends on the address modulo this.
SECTOR = 32
#: Bytes of a bitmap tile's entry in the index, of which warps read several at once.
INDEX = 16


def join(columns: list[Any]) -> Any:
    """A number for each row of some columns of small integers: equal where the rows are."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        column = column - column.min()
        if (code.max() + 1) * (int(column.max()) + 1) >= 1 << 62:
            code = np.unique(code, return_inverse=True)[1]
        code = code * (int(column.max()) + 1) + column
    return code


def _ends(index: Any, count: Any, ends: int) -> Any:
    """Where units are on an axis: a number that is 0 inside, and different for each place next to a border."""
    low, high = np.minimum(index, ends), np.minimum(count - 1 - index, ends)
    return (ends - low) * (ends + 1) + (ends - high)


@dataclass(frozen=True)
class Tiles:
    """Tiles of ``size`` cells that cover ``boxes``; a block takes every ``stride``-th, or one (``stride`` 0).

    ``ahead``: how many turns ahead it fetches.  ``steps``: for each array, bytes from cell to cell on each axis;
    ``slots``: bytes from tile to tile in arrays of tiles.
    """

    boxes: tuple[Box, ...]
    size: tuple[int, ...]
    stride: int
    ahead: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    slots: tuple[int, ...]

    @staticmethod
    def of(func: t.Func, shape: tuple[int, ...], arrays: Iterable[Buffer]) -> Tiles:
        """Those of a kernel; ``arrays``: those of its parameters that are fields of this shape, or arrays of tiles."""
        ops = tuple(walk(func.body))
        (loop,) = (op for op in ops if isinstance(op, t.ForTiles))
        slots = {op.buf.name: op.buf.nbytes // op.count for op in ops if isinstance(op, t.Slots)}
        steps: set[tuple[int, ...]] = set()
        for p in arrays:
            if p.name not in slots:
                extents = (*shape[:-1], p.size // prod(shape[:-1]))
                steps.add(tuple(prod(extents[axis + 1 :]) * p.dtype.nbytes for axis in range(len(shape))))
        ahead = tuple(sorted({op.distance for op in ops if isinstance(op, t.Prefetch) and op.distance}))
        return Tiles(loop.boxes, loop.size, loop.stride, ahead if loop.stride else (), tuple(sorted(steps)),
                     tuple(sorted(slots.values())))  # fmt: skip

    @property
    def axes(self) -> int:
        """On how many axes they lie."""
        return len(self.size)

    @property
    def units(self) -> int:
        """How many there are."""
        return sum(prod(tile_counts(box, self.size)) for box in self.boxes)

    @cached_property
    def _places(self) -> tuple[Any, list[Any], list[Any]]:
        """Of each tile: the number of its box; on each axis its place in the box, and how many tiles that has."""
        boxes: list[Any] = []
        index: list[list[Any]] = [[] for _ in self.size]
        counts: list[list[Any]] = [[] for _ in self.size]
        for number, box in enumerate(self.boxes):
            have = tile_counts(box, self.size)
            boxes.append(np.full(prod(have), number))
            for axis, places in enumerate(np.unravel_index(np.arange(prod(have)), have)):
                index[axis].append(places)
                counts[axis].append(np.full(prod(have), have[axis]))
        return np.concatenate(boxes), [np.concatenate(i) for i in index], [np.concatenate(c) for c in counts]

    @cached_property
    def _phases(self) -> Any:
        """Where each tile lies in the sectors of memory: a number."""
        boxes, index, _ = self._places
        lows = np.array([[low for low, _ in box] for box in self.boxes])
        cells = [lows[boxes, axis] + index[axis] * n for axis, n in enumerate(self.size)]
        columns = [sum(c * (s % SECTOR) for c, s in zip(cells, steps, strict=True)) % SECTOR for steps in self.steps]
        columns += [np.arange(self.units) * nbytes % SECTOR for nbytes in self.slots]
        return join([boxes, *columns])

    def classes(self, ends: Any) -> tuple[Any, Any]:
        """The class of each unit, a number, and on which axes it is inside: [units, axes], of bool.

        ``ends``: how many units next to a border differ from those inside, for each axis.
        """
        _, index, counts = self._places
        places = [_ends(i, c, n) for i, c, n in zip(index, counts, ends, strict=True)]
        own = join([self._phases, *places]) + 1
        later = [np.append(own[turns * self.stride :], np.zeros(min(turns * self.stride, self.units), dtype=np.int64))
                 for turns in self.ahead]  # fmt: skip
        return join([own, *later]), np.stack([p == 0 for p in places], axis=1)


@dataclass(frozen=True)
class Runs:
    """Runs of ``strips`` strips of a matrix, shared by ``units`` groups of ``blocks`` blocks as evenly as they come."""

    strips: int
    units: int
    blocks: int

    @staticmethod
    def of(func: t.Func) -> Runs:
        """Those of a kernel that shares strips."""
        (share,) = (op for op in walk(func.body) if isinstance(op, ShareStrips))
        return Runs(share.strips, share.groups, share.splits * share.tiles)

    def classes(self, ends: Any) -> tuple[Any, Any]:
        """As of tiles, on one axis."""
        index = np.arange(self.units)
        first = index * self.strips // self.units
        place = _ends(index, self.units, int(ends[0]))
        longer = np.append(first[1:], self.strips) - first
        return join([longer, first * INDEX % SECTOR, place]), (place == 0)[:, None]
