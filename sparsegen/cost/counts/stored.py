"""Results to global memory: pairs of adjacent cells that lie in a box, and those that a frozen border keeps."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from sparsegen.cost.counts.covering import covering, together
from sparsegen.cost.counts.elements import request
from sparsegen.cost.counts.fused import Fused
from sparsegen.cost.counts.requests import Mask
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.tiles import Ints


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

    def places(self, at: tuple[int, ...], j: int) -> list[Ints]:
        """Indices of cell ``j`` of each pair on all axes, in the tile that begins ``at``."""
        return [*map(np.asarray, at[:-2]), at[-2] + self.rows, at[-1] + self.cols + j]


def store(tally: Tally, f: Fused, size: tuple[int, ...], pairs: Pairs, vector: int) -> None:
    """The stores of all tiles of ``size``; ``vector``: 2 if a pair may be stored at once."""
    item = f.dtype.nbytes
    axes = [
        covering(n, tile, (max(low, k), min(high, n - j)), prod(f.shape[axis + 1 :]), item)
        for axis, (n, tile, (low, high), (k, j)) in enumerate(zip(f.shape, size, f.box, f.keep, strict=True))
    ]
    cells = pairs.rows * f.shape[-1] + pairs.cols
    for at, starts in together(axes):
        inside = [pairs.valid & _within(f, pairs.places(at, j)) for j in (0, 1)]
        if _keeps(f, at, size):
            for j in (0, 1):
                request(tally, "ld.global", cells + j, item, starts, inside[j] & _kept(f, pairs.places(at, j)))
            live = sum(pairs.live(j, f.shape) for j in (0, 1))
            tally.issue(f"select.{f.dtype}", live * int(starts.sum()))
        if vector == 2:
            whole = inside[0] & inside[1]
            request(tally, "st.global", cells, item, starts, whole, 2)
            inside = [i & ~whole for i in inside]
        for j in (0, 1):
            request(tally, "st.global", cells + j, item, starts, inside[j])


def _within(f: Fused, places: list[Ints]) -> Mask:
    """Which cells lie in the box."""
    on = [(i >= low) & (i < high) for i, (low, high) in zip(places, f.box, strict=True)]
    return np.asarray(np.logical_and.reduce(np.broadcast_arrays(*on)), dtype=bool)


def _kept(f: Fused, places: list[Ints]) -> Mask:
    """Which cells a frozen border keeps."""
    on = [(i < low) | (i >= n - high) for i, n, (low, high) in zip(places, f.shape, f.keep, strict=True)]
    return np.asarray(np.logical_or.reduce(np.broadcast_arrays(*on)), dtype=bool)


def _keeps(f: Fused, at: tuple[int, ...], size: tuple[int, ...]) -> bool:
    """Whether the tile that begins ``at`` reaches cells that a frozen border keeps."""
    return any(
        (low and first < low) or (high and first + tile > n - high)
        for first, tile, n, (low, high) in zip(at, size, f.shape, f.keep, strict=True)
    )
