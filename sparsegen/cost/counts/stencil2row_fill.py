"""How A and B of ``stencil2row`` are filled: windows fetched, elements scattered, padding zeroed."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from math import prod

import numpy as np

from sparsegen.cost.counts.access import Counts, Ints, aligned, by_warps, in_global, in_shared, period, times
from sparsegen.cost.counts.base import Pass
from sparsegen.cost.counts.border import sides_of
from sparsegen.cost.counts.requests import Mask
from sparsegen.cost.counts.fetched import Window, fetches
from sparsegen.families.base import up
from sparsegen.ir.layout import stencil2row_a, stencil2row_b


class Fill:
    """The fill of all tiles of a pass; ``size`` is a tile's on every axis of the field."""

    def __init__(self, p: Pass) -> None:
        self.p, self.s, self.g, self.item = p, p.schedule, p.geometry, p.footprint.itemsize
        self.size = (1,) * (len(p.shape) - 2) + (self.g.rows, self.g.cols)
        self.tiles = prod(-(-n // of) for n, of in zip(p.shape, self.size, strict=True))
        self.blocks = self.tiles if self.s.stages == 1 else min(self.tiles, p.resident * p.device.sms)
        self.window = self.g.halo_rows, self.g.halo_cols
        self.spare = self.g.offset_dirty if self.s.dirty and self.s.transform == "implicit" else None

    @cached_property
    def targets(self) -> list[tuple[Ints, Mask]]:
        """Where the window's elements go in A and in B, as requests; the dirty slot takes those with no place."""
        out: list[tuple[Ints, Mask]] = []
        for layout, offset in ((stencil2row_a, 0), (stencil2row_b, self.g.offset_b)):
            of = layout(self.g.k, self.g.groups, self.g.halo_rows)
            group, place = of.tables()
            at, on = by_warps(np.where(of.mask(), offset + group * self.g.stride_ab + place, self.spare or 0))
            out.append((at, on if self.spare is not None else on & by_warps(of.mask())[0].astype(bool)))
        return out

    @property
    def slots(self) -> Ints:
        """How many of the tiles' matrices in global memory begin at each element of a sector (explicit)."""
        number = np.arange(min(self.tiles, period(self.item)))
        again = -(-(self.tiles - number) // period(self.item))
        at = number * up(2 * self.g.offset_b + 1, 2) % period(self.item)
        return np.bincount(at, weights=again, minlength=period(self.item)).astype(np.int64)

    def table(self) -> Counts:
        """The lookup table's two words of every element of the window (nothing without one)."""
        if not self.s.lut:
            return Counter()
        at, on = by_warps(2 * np.arange(prod(self.window)))
        return in_global("ld.global", at, 4, aligned(4), on, 2)

    def padding(self) -> Counts:
        """Zeros where a product reads and no copy writes: the end of each row of A and B, once a block or tile."""
        g = self.g
        height = 1 if self.p.footprint.flat else g.k
        first = g.k * (g.rows - 1) + height * g.k  # of what no copy writes; products read to ``last``
        last = g.k * (g.rows - 1) + g.depth
        if first == last:
            return Counter()
        at, on = by_warps(np.arange(2 * g.groups)[:, None] * g.stride_ab + np.arange(first, last))
        where, _ = by_warps(np.arange(2 * g.groups * (last - first)))
        listed = in_global("ld.global", where, 4, aligned(4), on)
        if self.s.transform == "explicit":
            return times(listed, self.tiles) + in_global("st.global", at, self.item, self.slots, on)
        return listed + in_shared("st.shared", at, self.item, on)

    def raw(self, plane: tuple[int, ...]) -> Counts:
        """The windows of all tiles into raw tiles, for a plane of weights ``plane`` away on the axes before the rows."""
        wide = self.g.halo_rows, self.g.pitch_raw
        places = fetches(self.tiles, self.blocks, self.s.stages - 1)
        vector = 2 if prod(self.p.shape[:-1]) == 1 or self.p.shape[-1] % 2 == 0 else 1
        return self._window(plane, self.g.before, wide).copied(np.arange(prod(wide)), vector, places)

    def filled(self, plane: tuple[int, ...]) -> Counts:
        """The windows of all tiles into A and B: out of global memory, or out of raw tiles."""
        scattered = self.table()
        if self.s.stages == 1:
            out = self._window(plane, self.g.k // 2, self.window).loaded()
        else:
            out = Counter()
            row, col = np.indices(self.window)
            at, on = by_warps(row * self.g.pitch_raw + col)
            scattered += in_shared("ld.shared", at, self.item, on)
        for at, on in self.targets:
            if self.s.transform == "explicit":
                out.update(in_global("st.global", at, self.item, self.slots, on))
            else:
                scattered.update(in_shared("st.shared", at, self.item, on))
        out.update(times(scattered, self.tiles))
        return out

    def _window(self, plane: tuple[int, ...], left: int, wide: tuple[int, int]) -> Window:
        above = (self.g.halo_rows - self.g.rows) // 2
        before = (*(-far for far in plane), above, left)
        return Window(
            self.p.shape, self.size, before, (1,) * len(plane) + wide, sides_of(self.p.stencil), self.p.stencil.dtype,
            self.item,
        )  # fmt: skip
