"""Weights in fragment order, which every warp of a block loads into registers."""

from __future__ import annotations

from collections import Counter

from sparsegen.cost.counts.access import Counts
from sparsegen.cost.counts.base import Pass
from sparsegen.cost.counts.requests import SECTOR


def fragments(p: Pass, registers: int) -> Counts:
    """Loads of so many registers by a block: 32 adjacent elements each."""
    n, nbytes = registers * p.schedule.warps, 32 * p.footprint.itemsize
    return Counter({"ld.global": n, "bytes.global.read": nbytes * n, "sectors.global.read": nbytes // SECTOR * n})
