"""Windows of tiles fetched from global memory, on any number of axes: to registers, or by cp.async to shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod

import numpy as np

from sparsegen.cost.counts.covering import reaches
from sparsegen.cost.counts.elements import both, by_warps, request
from sparsegen.cost.counts.fused import Fused
from sparsegen.cost.counts.requests import Mask
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.tiles import Choices, Ints, Range, starts


def fetches(tiles: int, blocks: int, ahead: int) -> list[Range]:
    """Numbers of the tiles that a program fetches: ``ahead`` places before the loop, then the one in the loop."""
    before = [(d * blocks, min((d + 1) * blocks, tiles) - 1) for d in range(ahead)]
    return [numbers for numbers in (*before, (ahead * blocks, tiles - 1)) if numbers[0] <= numbers[1]]


@dataclass(frozen=True)
class Fetched:
    """The windows of ``wide`` cells of all tiles of ``size``, each beginning ``before`` its tile, on every axis.

    They are walked row by row, 32 cells (or, of whole vectors, 32 of those) a warp.
    """

    f: Fused
    size: tuple[int, ...]
    before: tuple[int, ...]
    wide: tuple[int, ...]

    def load(self, tally: Tally) -> None:
        """Every cell loaded into a register; a select where a constant may stand in for it."""
        for cells, _, _, begin in self._tiles():
            at, on = by_warps(cells)
            request(tally, "ld.global", at, self.f.dtype.nbytes, begin, on)
        every = (0, prod(self._counts) - 1)
        self._choose(tally, every, self._choices(every).read)

    def copy(self, tally: Tally, to: Ints, vector: int, fetches: Sequence[Range]) -> None:
        """Every cell copied to element ``to`` of a shared tile: ``vector`` at a time inside, one by one at a border.

        ``fetches``: the numbers of the tiles that each place of the program fetches.
        """
        item = self.f.dtype.nbytes
        place, on = by_warps(to)
        for cells, inside, edge, begin in self._tiles():
            many = int(begin.sum())
            if edge:
                real = on & by_warps(inside)[0].astype(bool)
                request(tally, "cp_async", by_warps(cells)[0], item, begin, real)
                tally.request("cp_async.shared", place * item, item, real, many)
                tally.request("st.shared", place * item, item, on & ~real, many)
                continue
            (at, pieces), (piece, _) = by_warps(cells[::vector]), by_warps(to[::vector])
            request(tally, "cp_async", at, item, begin, pieces, vector)
            tally.request("cp_async.shared", piece * item, vector * item, pieces, many)
        for numbers in fetches:
            self._choose(tally, numbers, self._choices(numbers).constant)

    @property
    def _counts(self) -> list[int]:
        return [-(-n // size) for n, size in zip(self.f.shape, self.size, strict=True)]

    def _tiles(self) -> Iterator[tuple[Ints, Mask, bool, Ints]]:
        """For each kind of tile: elements of its window from its first one, which are inside, edge, and ``starts``."""
        axes = [
            reaches(n, size, before, wide, ends, prod(self.f.shape[axis + 1 :]), self.f.dtype.nbytes)
            for axis, (n, size, before, wide, ends) in enumerate(
                zip(self.f.shape, self.size, self.before, self.wide, self.f.sides, strict=True)
            )
        ]
        for one in product(*axes):
            cells, inside = reduce(_crossed, ((r.cells, r.inside) for r in one))
            yield cells, inside, any(r.edge for r in one), reduce(both, (r.starts for r in one))

    def _choose(self, tally: Tally, numbers: Range, selects: int) -> None:
        """So many selects of each request of those tiles of these numbers that reach across a border."""
        if selects:
            tally.issue(f"select.{self.f.dtype}", selects * -(-prod(self.wide) // 32) * self._crossing(numbers))

    def _choices(self, numbers: Range) -> Choices:
        """Selects of a read, for the tiles of these numbers: a side that none of them reaches is not tested for."""
        first = starts((tuple((0, n) for n in self.f.shape),), self.size, numbers)
        return Choices.of(tuple(
            ((low - before, high - before + wide - 1), n, ends)
            for (low, high), before, wide, n, ends in zip(
                first, self.before, self.wide, self.f.shape, self.f.sides, strict=True
            )
        ))  # fmt: skip

    def _crossing(self, numbers: Range) -> int:
        """How many of the tiles of these numbers have a window that reaches across a border."""
        inner = [
            (max(0, -(-before // size)), min(count - 1, (n - wide + before) // size))
            for count, n, size, before, wide in zip(
                self._counts, self.f.shape, self.size, self.before, self.wide, strict=True
            )
        ]
        low, high = numbers
        return high + 1 - low - (_inner(high + 1, self._counts, inner) - _inner(low, self._counts, inner))


def _inner(end: int, counts: Sequence[int], inner: Sequence[Range]) -> int:
    """How many of the first ``end`` tiles lie in the range ``inner`` of every axis."""
    if not counts:
        return end
    row, rest = divmod(end, prod(counts[1:]))
    low, high = inner[0]
    whole = max(0, min(row, high + 1) - low) * prod(max(0, b + 1 - a) for a, b in inner[1:])
    return whole + (_inner(rest, counts[1:], inner[1:]) if low <= row <= high else 0)


def _crossed(a: tuple[Ints, Mask], b: tuple[Ints, Mask]) -> tuple[Ints, Mask]:
    """The elements of two axes' cells, and which are inside on both."""
    return np.add.outer(a[0], b[0]).ravel(), np.logical_and.outer(a[1], b[1]).ravel()
