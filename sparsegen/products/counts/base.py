"""A product in numbers, as far as its counts are concerned: who has which strips, slabs and columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsegen.products.geometry import Geometry
from sparsegen.products.product import Epilogue, Problem
from sparsegen.products.schedule import SpmmSchedule

Ints = npt.NDArray[np.int64]
LANE = np.arange(32)


@dataclass(frozen=True)
class Orders:
    """What of the arrays of a call the code depends on: orders of x and y, and elements of x that a load may take."""

    x: str = "row"
    y: str = "row"
    vec: int = 1


@dataclass(frozen=True)
class Shares:
    """Who has what: of each (run, row warp) its first strip and how many, of each (split, slab warp) its first slab and
    its turns; of each run its first strip and how many."""

    own: Ints
    mine: Ints
    begin: Ints
    turns: Ints
    first: Ints
    count: Ints

    @classmethod
    def of(cls, s: SpmmSchedule, g: Geometry) -> Shares:
        """As even as they come; row warps without a strip are left out."""
        row_warps, slab_warps = s.warps
        first = np.arange(g.groups + 1) * g.strips // g.groups
        count = np.diff(first)
        parts = np.arange(row_warps + 1) * count[:, None] // row_warps
        slabs = np.arange(s.splits + 1) * g.slabs // s.splits
        warp = np.arange(slab_warps)
        turns = (np.diff(slabs)[:, None] - warp + slab_warps - 1) // slab_warps
        own, mine = first[:-1, None] + parts[:, :-1], np.diff(parts, axis=1)
        busy = mine.reshape(-1) > 0
        return cls(
            own.reshape(-1)[busy], mine.reshape(-1)[busy], (slabs[:-1, None] + warp).reshape(-1), turns.reshape(-1),
            first[:-1], count,
        )  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A product, its schedule, and the numbers that follow from both."""

    p: Problem
    epilogue: Epilogue
    s: SpmmSchedule
    g: Geometry
    orders: Orders
    shares: Shares
    bulk: bool

    @property
    def one(self) -> bool:
        """One column, on the CUDA cores."""
        return self.s.mma == "none"

    @property
    def blocks(self) -> int:
        """Blocks of 8 columns."""
        return 1 if self.one else self.s.cols // 8

    @property
    def warps(self) -> int:
        """Warps of all blocks."""
        return self.g.blocks * self.s.warps[0] * self.s.warps[1]

    @property
    def refills(self) -> int:
        """Turns of the rings of all warps."""
        return self.g.tiles * len(self.shares.mine) * int(self.shares.turns.sum())
