"""Windows of tiles fetched from global memory: through registers, or by cp.async into a shared tile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod

from sparsegen.cost.counts.access import Counts, Ints, both, by_warps, in_global, in_shared, period, times
from sparsegen.cost.counts.border import Range, Span, constants, selects, starts
from sparsegen.cost.counts.requests import Mask
from sparsegen.cost.counts.covering import Reach, reaches
from sparsegen.ir.op import Sides


@dataclass(frozen=True)
class Window:
    """The windows of ``wide`` cells of all tiles of ``size``, each beginning ``before`` its tile, on every axis.

    They are walked row by row, 32 cells (or, of whole vectors, 32 of those) a warp.
    """

    shape: tuple[int, ...]
    size: tuple[int, ...]
    before: tuple[int, ...]
    wide: tuple[int, ...]
    sides: Sides
    dtype: str
    item: int

    def tiles(self) -> Iterator[tuple[Ints, Mask, bool, Ints]]:
        """For each kind of tile: elements of its window from its first one, which are inside, edge, and ``starts``."""
        axes = [
            reaches(n, size, before, wide, ends, prod(self.shape[axis + 1 :]), period(self.item))
            for axis, (n, size, before, wide, ends) in enumerate(
                zip(self.shape, self.size, self.before, self.wide, self.sides, strict=True)
            )
        ]
        for one in product(*axes):
            cells, inside = reduce(_crossed, ((r.cells, r.inside) for r in one))
            yield cells, inside, any(r.edge for r in one), reduce(both, (r.starts for r in one))

    def spans(self, numbers: Range) -> list[Span]:
        """What the windows of the tiles of these numbers read on each axis, as range analysis has it."""
        first = starts((tuple((0, n) for n in self.shape),), self.size, numbers)
        return [
            Span(low - before, high - before + wide - 1, n, ends)
            for (low, high), n, before, wide, ends in zip(
                first, self.shape, self.before, self.wide, self.sides, strict=True
            )
        ]

    def crossing(self, numbers: Range) -> int:
        """How many of the tiles of these numbers have a window that reaches across a border."""
        counts = [-(-n // size) for n, size in zip(self.shape, self.size, strict=True)]
        inner = [
            (max(0, -(-before // size)), min(count - 1, (n - wide + before) // size))
            for count, n, size, before, wide in zip(
                counts, self.shape, self.size, self.before, self.wide, strict=True
            )
        ]
        low, high = numbers
        return high + 1 - low - (_inner(high + 1, counts, inner) - _inner(low, counts, inner))

    def loaded(self) -> Counts:
        """Every cell loaded into a register; a select where a constant may stand in for it."""
        out: Counts = Counter()
        every = (0, prod(-(-n // size) for n, size in zip(self.shape, self.size, strict=True)) - 1)
        if choose := selects(self.spans(every)):
            out[f"select.{self.dtype}"] += choose * -(-prod(self.wide) // 32) * self.crossing(every)
        for cells, _, _, begin in self.tiles():
            at, on = by_warps(cells)
            out.update(in_global("ld.global", at, self.item, begin, on))
        return out

    def copied(self, to: Ints, vector: int, fetches: Sequence[Range]) -> Counts:
        """Every cell copied to element ``to`` of a shared tile: ``vector`` at a time inside, one by one at a border.

        ``fetches``: the numbers of the tiles that each place of the program fetches.
        """
        out: Counts = Counter()
        for numbers in fetches:
            choose = constants(self.spans(numbers)) * -(-prod(self.wide) // 32)
            out[f"select.{self.dtype}"] += choose * self.crossing(numbers)
        inner = in_shared("cp_async.shared", *_vectors(to, self.item, vector))
        for cells, inside, edge, begin in self.tiles():
            if not edge:
                at, _, on, _ = _vectors(cells, self.item, vector)
                out.update(in_global("cp_async", at, self.item, begin, on, vector))
                out.update(times(inner, int(begin.sum())))
                continue
            (at, on), (place, _) = by_warps(cells), by_warps(to)
            real = on & by_warps(inside)[0].astype(bool)
            out.update(in_global("cp_async", at, self.item, begin, real))
            stored = in_shared("cp_async.shared", place, self.item, real)
            stored += in_shared("st.shared", place, self.item, on & ~real)
            out.update(times(stored, int(begin.sum())))
        return out


def _inner(end: int, counts: Sequence[int], inner: Sequence[Range]) -> int:
    """How many of the first ``end`` tiles lie in the range ``inner`` of every axis."""
    if not counts:
        return end
    row, rest = divmod(end, prod(counts[1:]))
    low, high = inner[0]
    whole = max(0, min(row, high + 1) - low) * prod(max(0, b + 1 - a) for a, b in inner[1:])
    return whole + (_inner(rest, counts[1:], inner[1:]) if low <= row <= high else 0)


def fetches(tiles: int, blocks: int, ahead: int) -> list[Range]:
    """Numbers of the tiles that a program fetches: ``ahead`` places before the loop, then the one in the loop."""
    before = [(d * blocks, min((d + 1) * blocks, tiles) - 1) for d in range(ahead)]
    return [numbers for numbers in (*before, (ahead * blocks, tiles - 1)) if numbers[0] <= numbers[1]]


def _crossed(a: tuple[Ints, Mask], b: tuple[Ints, Mask]) -> tuple[Ints, Mask]:
    """The elements of two axes' cells, and which are inside on both."""
    return (a[0][:, None] + b[0]).ravel(), (a[1][:, None] & b[1]).ravel()


def _vectors(elements: Ints, item: int, vector: int) -> tuple[Ints, int, Mask, int]:
    at, on = by_warps(elements[::vector])
    return at, item, on, vector
