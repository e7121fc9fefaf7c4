"""The numbers of products that keep 2 of every 4 columns, by warpgroups: what W has in a slot of the ring."""

from __future__ import annotations

from typing import Final

from ..metadata import KEEP, OF
from .groups import GROUP, ROWS, STEP, bars

#: Kept columns of a turn.
KEPT: Final = STEP * KEEP // OF


def values_size(groups: int) -> int:
    """Kept elements of a turn of a tile of ``groups`` x 64 rows."""
    return KEPT * ROWS * groups


def words_size(groups: int) -> int:
    """Words that say which are kept: of each thread that multiplies one."""
    return GROUP * groups


def slot_bytes(groups: int, cols: int) -> int:
    """Bytes of a slot of the ring: kept elements, their words, the rows of x."""
    return 2 * values_size(groups) + 4 * words_size(groups) + 2 * STEP * cols


def shared_bytes(groups: int, cols: int, stages: int) -> int:
    """Bytes of shared memory of a block: the ring and its mbarriers."""
    return stages * slot_bytes(groups, cols) + 8 * bars(stages, lists=0)
