"""Results to global memory: pairs of adjacent cells that lie in a box, and those that a frozen border keeps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod

import numpy as np

from sparsegen.cost.counts.access import Counts, Ints, in_global, period
from sparsegen.cost.counts.base import Pass
from sparsegen.cost.counts.border import sides_of
from sparsegen.cost.counts.requests import Mask
from sparsegen.cost.counts.covering import kinds, together
from sparsegen.ir.fuse import inner_box, rim_width
from sparsegen.ir.op import Box


def stored_box(p: Pass) -> Box | None:
    """The cells that the kernel stores, all but the rims that time fusion leaves; None if nothing is left to it."""
    box = inner_box(p.shape, rim_width(p.stencil.weights, sides_of(p.stencil), p.schedule.fuse))
    return box if all(low < high for low, high in box) else None


def kept_cells(p: Pass) -> tuple[tuple[int, int], ...]:
    """How many cells from each border keep their values (frozen sides of a single step)."""
    return tuple(
        (r if low.kind == "frozen" else 0, r if high.kind == "frozen" else 0) if p.schedule.fuse == 1 else (0, 0)
        for r, (low, high) in zip(p.stencil.radius, p.stencil.sides, strict=True)
    )


@dataclass(frozen=True)
class Pairs:
    """What a tile's lanes store: the first cell of each lane's pair, and whether it has one; all [requests, 32].

    ``ops``: [requests], which of the program's stores makes each.
    """

    rows: Ints
    cols: Ints
    valid: Mask
    ops: Ints

    def live(self, j: int, shape: tuple[int, ...]) -> int:
        """Requests for cell ``j`` of a pair; a store whose cells are all beyond the field leaves no code."""
        beyond = [
            op
            for op in np.unique(self.ops)
            if self.rows[self.ops == op].min() >= shape[-2] or self.cols[self.ops == op].min() + j >= shape[-1]
        ]
        return int((~np.isin(self.ops, beyond)).sum())


def stored(p: Pass, box: Box, size: tuple[int, ...], pairs: Pairs, vector: int) -> Counts:
    """The stores of all tiles of ``size``; ``vector``: 2 if a pair may be stored at once."""
    item, dtype, keep = p.footprint.itemsize, p.stencil.dtype, kept_cells(p)
    axes = [
        kinds(n, tile, (max(low, k), min(high, n - j) - tile), prod(p.shape[axis + 1 :]), period(item))
        for axis, (n, tile, (low, high), (k, j)) in enumerate(zip(p.shape, size, box, keep, strict=True))
    ]
    cells = pairs.rows * p.shape[-1] + pairs.cols
    out: Counts = Counter()
    for at, starts in together(axes):
        border = any(
            (low and first < low) or (high and first + tile > n - high)
            for first, tile, n, (low, high) in zip(at, size, p.shape, keep, strict=True)
        )
        inside = [pairs.valid & _within(at, pairs, j, box) for j in (0, 1)]
        if border:
            for j in (0, 1):
                held = inside[j] & _kept(at, pairs, j, p.shape, keep)
                out.update(in_global("ld.global", cells + j, item, starts, held))
            out[f"select.{dtype}"] += sum(pairs.live(j, p.shape) for j in (0, 1)) * int(starts.sum())
        if vector == 2:
            whole = inside[0] & inside[1]
            out.update(in_global("st.global", cells, item, starts, whole, 2))
            inside = [i & ~whole for i in inside]
        for j in (0, 1):
            out.update(in_global("st.global", cells + j, item, starts, inside[j]))
    return out


def _places(at: tuple[int, ...], pairs: Pairs, j: int) -> list[Ints]:
    """Index of cell ``j`` of each pair, on each axis."""
    return [*(np.asarray(i) for i in at[:-2]), at[-2] + pairs.rows, at[-1] + pairs.cols + j]


def _within(at: tuple[int, ...], pairs: Pairs, j: int, box: Box) -> Mask:
    on = np.ones(pairs.rows.shape, dtype=bool)
    for i, (low, high) in zip(_places(at, pairs, j), box, strict=True):
        on &= (i >= low) & (i < high)
    return on


def _kept(at: tuple[int, ...], pairs: Pairs, j: int, shape: tuple[int, ...], keep: tuple[tuple[int, int], ...]) -> Mask:
    on = np.zeros(pairs.rows.shape, dtype=bool)
    for i, n, (low, high) in zip(_places(at, pairs, j), shape, keep, strict=True):
        on |= (i < low) | (i >= n - high if high else False)
    return on
