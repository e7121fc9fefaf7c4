"""Weights in fragment order, which every warp of a block loads into registers."""

from __future__ import annotations

import numpy as np

from sparsegen.cost.counts.elements import aligned, request
from sparsegen.cost.counts.tally import Tally


def load_fragments(tally: Tally, registers: int, item: int) -> None:
    """Loads of so many registers, all warps together: 32 adjacent elements each."""
    request(tally, "ld.global", np.arange(32)[None], item, aligned(item, registers))
