"""Reads across a border: the cells that are read instead, and the selects of a side that is constant outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparsegen.cost.counts.access import Ints
from sparsegen.cost.counts.requests import Mask
from sparsegen.dsl.stencil import Stencil, round_to
from sparsegen.ir.op import Box, Sides, SideSpec, tile_counts

Range = tuple[int, int]  #: lowest and highest value
Ends = tuple[SideSpec, SideSpec]


def sides_of(stencil: Stencil) -> Sides:
    """The sides of each axis, with what a cell outside holds as a number of the field's type."""
    return tuple(
        tuple((side.kind, float(round_to(np.array([side.value]), stencil.dtype)[0])) for side in pair)
        for pair in stencil.sides
    )  # type: ignore[return-value]


def mapped(i: Ints, n: int, ends: Ends) -> tuple[Ints, Mask]:
    """The cells of an axis that indices mean, and where no constant stands in for them."""
    (low, _), (high, _) = ends
    below = {"periodic": i + n, "neumann": -1 - i}.get(low, np.zeros_like(i))
    above = {"periodic": i - n, "neumann": 2 * n - 1 - i}.get(high, np.full_like(i, n - 1))
    inside = ((i >= 0) | (low != "dirichlet")) & ((i < n) | (high != "dirichlet"))
    return np.clip(np.where(i < 0, below, np.where(i >= n, above, i)), 0, n - 1), inside


def starts(boxes: tuple[Box, ...], size: tuple[int, ...], numbers: Range) -> tuple[Range, ...]:
    """Bounds of the first cells of the tiles of these numbers, on each axis, as range analysis finds them."""
    (low, high), out = numbers, list[Range]()
    for n, of in zip(reversed(tile_counts(boxes[0], size)), reversed(size), strict=True):
        here = (low % n, high % n) if low // n == high // n else (0, min(high, n - 1))
        out.append((here[0] * of, here[1] * of))
        low, high = low // n, high // n
    return tuple(reversed(out))


@dataclass(frozen=True)
class Span:
    """The indices ``lo`` to ``hi`` that an access reads, over all tiles, on an axis of ``n`` cells."""

    lo: int
    hi: int
    n: int
    ends: Ends

    @property
    def leaves(self) -> bool:
        """Whether a dirichlet side stands in for any of them."""
        (low, _), (high, _) = self.ends
        return (low == "dirichlet" and self.lo < 0) or (high == "dirichlet" and self.hi >= self.n)


def constants(spans: Sequence[Span]) -> int:
    """Selects that choose what a cell outside holds: none where all sides agree."""
    outside = [s.ends for s in spans if s.leaves]
    if len({value for ends in outside for _, value in ends}) < 2:
        return 0
    return sum(low[1] != high[1] for low, high in outside) + len(outside) - 1


def selects(spans: Sequence[Span]) -> int:
    """Selects of a read through registers: the value outside, and that one or the loaded one."""
    return constants(spans) + 1 if any(s.leaves for s in spans) else 0
