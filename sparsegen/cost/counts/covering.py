"""How tiles cover an axis: tiles that are alike count once, times how many of them there are.

Two tiles in the middle of an axis ask for the same sectors if they begin at the same element of a sector; those that
touch a border, or the edge of a box, are few and are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np

from sparsegen.cost.counts.access import Ints, both
from sparsegen.cost.counts.border import Ends, mapped
from sparsegen.cost.counts.requests import Mask


@dataclass(frozen=True)
class Kind:
    """Tiles of an axis that are alike: the first cell of one, and how many start at each element of a sector."""

    at: int
    starts: Ints

    @property
    def many(self) -> int:
        """How many tiles there are."""
        return int(self.starts.sum())


def kinds(n: int, size: int, alike: tuple[int, int], apart: int, period: int) -> list[Kind]:
    """The tiles of ``size`` that cover ``n`` cells which lie ``apart`` elements from each other.

    Those that begin in ``alike`` (both ends included) are one kind, each of the others is one of its own.
    """
    count = -(-n // size)
    first, last = max(0, -(-alike[0] // size)), min(count - 1, alike[1] // size)
    out = [_kind([j], size, apart, period) for j in range(count) if not first <= j <= last]
    if first <= last:
        out.append(_kind(range(first, last + 1), size, apart, period))
    return out


def _kind(tiles: Sequence[int], size: int, apart: int, period: int) -> Kind:
    starts = np.zeros(period, dtype=np.int64)
    for j in range(min(period, len(tiles))):  # after ``period`` tiles they start at the same elements again
        starts[tiles[j] * size * apart % period] += len(range(j, len(tiles), period))
    return Kind(tiles[0] * size, starts)


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


def reaches(n: int, size: int, before: int, wide: int, ends: Ends, apart: int, period: int) -> list[Reach]:
    """The kinds of tiles of an axis by what a window of ``wide`` cells reads that begins ``before`` the tile."""
    if size == wide == 1:
        return _planes(n, before, ends, apart, period)
    out: list[Reach] = []
    for kind in kinds(n, size, (before, n - wide + before), apart, period):
        i = kind.at - before + np.arange(wide)
        index, inside = mapped(i, n, ends)
        out.append(Reach((index - kind.at) * apart, inside, bool(i[0] < 0 or i[-1] >= n), kind.starts))
    return out


def _planes(n: int, before: int, ends: Ends, apart: int, period: int) -> list[Reach]:
    """The same for single cells: those read across the border differ from others in where they are only."""
    i = np.arange(n) - before
    index, inside = mapped(i, n, ends)
    edge = (i < 0) | (i >= n)
    out: list[Reach] = []
    for of in (~edge, edge & inside, edge & ~inside):
        if of.any():
            starts = np.bincount(index[of] * apart % period, minlength=period)
            out.append(Reach(np.zeros(1, np.int64), inside[of][:1], bool(edge[of][0]), starts))
    return out
