"""Windows of tiles fetched from global memory: through registers, or by cp.async into a shared tile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod

from sparsegen.cost.counts.access import Counts, Ints, both, by_warps, in_global, in_shared, period, times
from sparsegen.cost.counts.border import Span, constants, selects
from sparsegen.cost.counts.requests import Mask
from sparsegen.cost.counts.tiles import Reach, reaches
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

    def spans(self) -> list[Span]:
        """What all windows together read on each axis."""
        return [
            Span(-before, (-(-n // size) - 1) * size - before + wide - 1, n, ends)
            for n, size, before, wide, ends in zip(
                self.shape, self.size, self.before, self.wide, self.sides, strict=True
            )
        ]

    def loaded(self) -> Counts:
        """Every cell loaded into a register; a select where a constant may stand in for it."""
        out: Counts = Counter()
        choose = selects(self.spans())
        for cells, _, edge, starts in self.tiles():
            at, on = by_warps(cells)
            out.update(in_global("ld.global", at, self.item, starts, on))
            if edge:
                out[f"select.{self.dtype}"] += choose * len(at) * int(starts.sum())
        return out

    def copied(self, to: Ints, vector: int) -> Counts:
        """Every cell copied to element ``to`` of a shared tile: ``vector`` at a time inside, one by one at a border."""
        out: Counts = Counter()
        choose = constants(self.spans())
        inner = in_shared("cp_async.shared", *_vectors(to, self.item, vector))
        for cells, inside, edge, starts in self.tiles():
            if not edge:
                at, _, on, _ = _vectors(cells, self.item, vector)
                out.update(in_global("cp_async", at, self.item, starts, on, vector))
                out.update(times(inner, int(starts.sum())))
                continue
            (at, on), (place, _) = by_warps(cells), by_warps(to)
            real = on & by_warps(inside)[0].astype(bool)
            out.update(in_global("cp_async", at, self.item, starts, real))
            stored = in_shared("cp_async.shared", place, self.item, real)
            stored += in_shared("st.shared", place, self.item, on & ~real)
            stored[f"select.{self.dtype}"] += choose * len(at)
            out.update(times(stored, int(starts.sum())))
        return out


def _crossed(a: tuple[Ints, Mask], b: tuple[Ints, Mask]) -> tuple[Ints, Mask]:
    """The elements of two axes' cells, and which are inside on both."""
    return (a[0][:, None] + b[0]).ravel(), (a[1][:, None] & b[1]).ravel()


def _vectors(elements: Ints, item: int, vector: int) -> tuple[Ints, int, Mask, int]:
    at, on = by_warps(elements[::vector])
    return at, item, on, vector
