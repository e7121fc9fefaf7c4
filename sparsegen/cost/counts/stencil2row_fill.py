"""How A and B of ``stencil2row`` are filled: windows fetched, elements scattered, padding zeroed."""

from __future__ import annotations

from functools import cached_property
from math import prod

import numpy as np

from sparsegen.cost.counts.base import Pass
from sparsegen.cost.counts.elements import aligned, by_warps, period, request
from sparsegen.cost.counts.fetched import Fetched, fetches
from sparsegen.cost.counts.fused import Fused
from sparsegen.cost.counts.requests import Mask
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.tiles import Ints
from sparsegen.families.base import up
from sparsegen.ir.layout import stencil2row_a, stencil2row_b

Plane = tuple[int, ...]  #: how far away a plane of weights is, on the axes before the rows


class Fill:
    """The fill of all tiles of a pass; ``size`` is a tile's on every axis of the field."""

    def __init__(self, p: Pass, f: Fused) -> None:
        self.f, self.s, self.g, self.item = f, p.schedule, p.geometry, f.dtype.nbytes
        self.size = (1,) * (len(p.shape) - 2) + (self.g.rows, self.g.cols)
        self.tiles = prod(-(-n // of) for n, of in zip(p.shape, self.size, strict=True))
        self.blocks = self.tiles if self.s.stages == 1 else min(self.tiles, p.resident * p.device.sms)
        self.window = self.g.halo_rows, self.g.halo_cols
        self.explicit = self.s.transform == "explicit"
        self.spare = self.g.offset_dirty if self.s.dirty and not self.explicit else None

    @cached_property
    def slots(self) -> Ints:
        """How many of the tiles' matrices in global memory begin at each element of a sector (explicit)."""
        every = period(self.item)
        number = np.arange(min(self.tiles, every))
        again = (self.tiles - number - 1) // every + 1
        at = number * up(2 * self.g.offset_b + 1, 2) % every
        return np.bincount(at, weights=again, minlength=every).astype(np.int64)

    def pad(self, tally: Tally) -> None:
        """Zeros where a product reads and no copy writes, the ends of A's and B's rows: once a block, or a tile."""
        g = self.g
        read = g.k * (g.rows - 1) + g.depth
        ends = np.arange(2 * g.groups)[:, None] * g.stride_ab + np.arange(g.k * g.halo_rows, read)
        at, on = by_warps(ends)
        listed, _ = by_warps(np.arange(ends.size))
        request(tally, "ld.global", listed, 4, aligned(4, self.tiles if self.explicit else self.blocks), on)
        self._put(tally, at, on, self.blocks)

    def fill(self, tally: Tally, plane: Plane) -> None:
        """The windows of all tiles into A and B: out of global memory, or out of raw tiles."""
        if self.s.lut:  # two words for each element of the window
            at, on = by_warps(2 * np.arange(prod(self.window)))
            request(tally, "ld.global", at, 4, aligned(4, self.tiles), on, 2)
        if self.s.stages == 1:
            self._window(plane, self.g.k // 2, self.window).load(tally)
        else:
            row, col = np.indices(self.window)
            at, on = by_warps(row * self.g.pitch_raw + col)
            tally.request("ld.shared", at * self.item, self.item, on, self.tiles)
        for at, on in self._targets:
            self._put(tally, at, on, self.tiles)

    def fetch(self, tally: Tally, plane: Plane) -> None:
        """The windows of all tiles into raw tiles."""
        wide = self.g.halo_rows, self.g.pitch_raw
        places = fetches(self.tiles, self.blocks, self.s.stages - 1)
        self._window(plane, self.g.before, wide).copy(tally, np.arange(prod(wide)), pair(self.f), places)

    def _put(self, tally: Tally, at: Ints, on: Mask, times: int) -> None:
        """Stores to A and B: so many times in shared memory, or once a tile in global memory."""
        if self.explicit:
            request(tally, "st.global", at, self.item, self.slots, on)
        else:
            tally.request("st.shared", at * self.item, self.item, on, times)

    @cached_property
    def _targets(self) -> list[tuple[Ints, Mask]]:
        """Where the window's elements go in A and in B, as requests; the dirty slot takes those with no place."""
        out: list[tuple[Ints, Mask]] = []
        for layout, offset in ((stencil2row_a, 0), (stencil2row_b, self.g.offset_b)):
            of = layout(self.g.k, self.g.groups, self.g.halo_rows)
            group, place = of.tables()
            at, on = by_warps(np.where(of.mask(), offset + group * self.g.stride_ab + place, self.spare or 0))
            out.append((at, on if self.spare is not None else on & by_warps(of.mask())[0].astype(bool)))
        return out

    def _window(self, plane: Plane, left: int, wide: tuple[int, int]) -> Fetched:
        before = (*(-far for far in plane), self.g.reach // 2, left)
        return Fetched(self.f, self.size, before, (1,) * len(plane) + wide)


def pair(f: Fused) -> int:
    """Elements that one access may move: two if every row starts at a multiple of them, as the only one of a field."""
    return 2 if prod(f.shape[:-1]) == 1 or f.shape[-1] % 2 == 0 else 1
