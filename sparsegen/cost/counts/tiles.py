"""How tiles cover an axis: tiles that behave alike are one kind, counted with how many there are of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

import numpy as np
import numpy.typing as npt

from sparsegen.cost.counts.requests import SECTOR
from sparsegen.ir.op import Box, Sides, SideSpec, tile_counts

Ints = npt.NDArray[np.int64]
Range = tuple[int, int]  #: lowest and highest value


@dataclass(frozen=True)
class Kinds:
    """The first cell of one tile of each kind, and how many tiles are like it."""

    first: Ints
    times: Ints

    def cells(self, offset: Ints) -> tuple[Ints, Ints]:
        """The cells ``offset`` [warps, lanes] into a tile of each kind, as [kinds x warps, lanes], and how often each
        occurs."""
        cells = (self.first[:, None, None] + offset).reshape(-1, offset.shape[1])
        return cells, np.repeat(self.times, len(offset))


#: The offset of a tile of a single cell.
ONE_CELL: Ints = np.zeros((1, 1), dtype=np.int64)


def kinds(cells: Range, size: int, plain: Range, unit: int) -> Kinds:
    """The tiles of ``size`` cells that cover the half-open range ``cells`` of an axis.

    Those inside the half-open range ``plain`` differ only in their place modulo ``unit``; each other is its own kind.
    """
    count, offset = -(-(cells[1] - cells[0]) // size), plain[0] - cells[0]
    low = min(count, max(0, -(-offset // size)))
    high = max(low, min(count, (plain[1] - cells[0]) // size))
    cycle = min(high - low, unit // gcd(size, unit))
    alike = low + np.arange(cycle, dtype=np.int64)
    others = np.concatenate([np.arange(low), np.arange(high, count)])
    many = -(-(high - alike) // max(1, cycle))
    times = np.concatenate([np.ones(len(others), np.int64), many])
    return Kinds(np.concatenate([others, alike]) * size + cells[0], times)


def unit(stride: int, itemsize: int) -> int:
    """After how many steps of ``stride`` elements an address is at the same place in a sector again."""
    whole = SECTOR // itemsize
    return whole // gcd(stride, whole)


def starts(boxes: tuple[Box, ...], size: tuple[int, ...], numbers: Range | None = None) -> tuple[Range, ...]:
    """Bounds of a tile's first cell on each axis, as range analysis of its number finds them.

    The boxes are covered one after the other, in each the last axis is the fastest.  Compiled code tests for a border
    exactly where these bounds do not exclude one, so they may not be tighter.  ``numbers``: not of all tiles (of a
    single box) but of these.
    """
    counts = [tile_counts(box, size) for box in boxes]
    low, high = numbers or (0, sum(map(prod, counts)) - 1)
    every: list[list[Range]] = [[] for _ in size]
    for box, count in zip(boxes, counts, strict=True):
        a, b = max(low, 0), max(high, 0)
        for axis in reversed(range(len(size))):
            n = count[axis]
            here = (a, b) if axis == 0 else (a % n, b % n) if a // n == b // n else (0, min(b, n - 1))
            every[axis].append((here[0] * size[axis] + box[axis][0], here[1] * size[axis] + box[axis][0]))
            a, b = a // n, b // n
        low, high = low - prod(count), high - prod(count)
    return tuple((min(a for a, _ in axis), max(b for _, b in axis)) for axis in every)


def mapped(i: Ints, n: int, sides: tuple[SideSpec, SideSpec]) -> Ints:
    """The cell of an axis of ``n`` cells that is read for index ``i`` (anywhere; always one of the axis)."""
    below = {"periodic": i + n, "neumann": -1 - i}.get(sides[0][0], np.zeros_like(i))
    above = {"periodic": i - n, "neumann": 2 * n - 1 - i}.get(sides[1][0], np.full_like(i, n - 1))
    return np.clip(np.where(i < 0, below, np.where(i >= n, above, i)), 0, n - 1)


def held(i: Ints, n: int, sides: tuple[SideSpec, SideSpec]) -> npt.NDArray[np.bool_]:
    """Whether index ``i`` is read from the field, and is not a cell that holds a dirichlet side's number."""
    outside = ((i < 0) & (sides[0][0] == "dirichlet")) | ((i >= n) & (sides[1][0] == "dirichlet"))
    return ~outside


def frozen(radius: tuple[int, ...], sides: Sides) -> tuple[tuple[int, int], ...]:
    """How many cells at both ends of each axis keep their values."""
    return tuple(
        (r * (low[0] == "frozen"), r * (high[0] == "frozen")) for r, (low, high) in zip(radius, sides, strict=True)
    )


@dataclass(frozen=True)
class Choices:
    """How many ``select`` a read takes that may fall outside: of a loaded value, and of the constant by itself."""

    read: int
    constant: int

    @classmethod
    def of(cls, axes: tuple[tuple[Range, int, tuple[SideSpec, SideSpec]], ...]) -> Choices:
        """For an index within bounds, cells and sides of each axis: what the bounds exclude is not tested for.

        Sides of one number need no choice between their numbers.
        """
        outside = [
            (low[1], high[1])
            for (least, most), n, (low, high) in axes
            if (low[0] == "dirichlet" and least < 0) or (high[0] == "dirichlet" and most >= n)
        ]
        if not outside:
            return cls(0, 0)
        if len({value for pair in outside for value in pair}) == 1:
            return cls(1, 0)
        constant = sum(low != high for low, high in outside) + len(outside) - 1
        return cls(1 + constant, constant)
