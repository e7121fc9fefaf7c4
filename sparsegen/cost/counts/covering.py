"""Tiles of several axes together: how many of each kind begin at each element of a sector.

Two tiles in the middle of a field ask for the same sectors if they begin at the same element of one; those that touch a
border, or the edge of a box, are few and are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np

from sparsegen.cost.counts.elements import both, period
from sparsegen.cost.counts.requests import Mask
from sparsegen.cost.counts.tiles import Ints, Range, held, kinds, mapped, unit
from sparsegen.ir.op import SideSpec

Ends = tuple[SideSpec, SideSpec]


@dataclass(frozen=True)
class Kind:
    """Tiles of an axis that are alike: the first cell of one, and how many start at each element of a sector."""

    at: int
    starts: Ints

    @property
    def many(self) -> int:
        """How many tiles there are."""
        return int(self.starts.sum())


def covering(n: int, size: int, plain: Range, apart: int, item: int) -> list[Kind]:
    """The tiles of ``size`` that cover ``n`` cells which lie ``apart`` elements from each other.

    Those inside the half-open range ``plain`` are one kind, each other is its own.
    """
    every, of = period(item), kinds((0, n), size, plain, unit(apart, item))
    inside = (of.first >= plain[0]) & (of.first + size <= plain[1])

    def kind(which: Mask | int) -> Kind:
        first, times = np.atleast_1d(of.first[which]), np.atleast_1d(of.times[which])
        starts = np.zeros(every, dtype=np.int64)
        np.add.at(starts, first * apart % every, times)
        return Kind(int(first[0]), starts)

    single = [kind(int(i)) for i in np.flatnonzero(~inside)]
    return [*single, kind(inside)] if inside.any() else single


def together(axes: Sequence[Sequence[Kind]]) -> Iterator[tuple[tuple[int, ...], Ints]]:
    """Every combination of kinds: where its tile begins, and how many start at each element of a sector."""
    for one in product(*axes):
        yield tuple(k.at for k in one), reduce(both, (k.starts for k in one))


@dataclass(frozen=True)
class Reach:
    """What a window of some tiles reads along an axis.

    ``cells``: the elements of its cells, from the tile's first; ``inside``: those that no constant stands in for;
    ``edge``: whether it reaches across a border; ``starts``: as in :class:`Kind`.
    """

    cells: Ints
    inside: Mask
    edge: bool
    starts: Ints


def reaches(n: int, size: int, before: int, wide: int, ends: Ends, apart: int, item: int) -> list[Reach]:
    """The kinds of tiles of an axis by what a window of ``wide`` cells reads that begins ``before`` the tile."""
    if size == wide == 1:
        return _planes(n, before, ends, apart, period(item))
    out: list[Reach] = []
    for kind in covering(n, size, (before, n - wide + before + size), apart, item):
        i = kind.at - before + np.arange(wide)
        cells = (mapped(i, n, ends) - kind.at) * apart
        out.append(Reach(cells, held(i, n, ends), bool(i[0] < 0 or i[-1] >= n), kind.starts))
    return out


def _planes(n: int, before: int, ends: Ends, apart: int, every: int) -> list[Reach]:
    """The same for single cells: those read across the border differ from others in where they are only."""
    i = np.arange(n) - before
    index, inside = mapped(i, n, ends), held(i, n, ends)
    edge = (i < 0) | (i >= n)
    out: list[Reach] = []
    for of in (~edge, edge & inside, edge & ~inside):
        if of.any():
            starts = np.bincount(index[of] * apart % every, minlength=every)
            out.append(Reach(np.zeros(1, np.int64), inside[of][:1], bool(edge[of][0]), starts))
    return out
