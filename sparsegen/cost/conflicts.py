"""Bank conflicts of stencil2row's shared memory, counted from addresses: wavefronts over the least possible."""

from __future__ import annotations

from functools import cache

import numpy as np

from sparsegen.families.base import Geometry


@cache
def fragment_degree(stride: int) -> float:
    """Wavefronts of an 8 x 4 f64 fragment load (rows ``stride`` doubles apart) over the least possible, 2."""
    worst = []
    for half in (0, 4):
        banks = [((half + row) * stride + col) % 16 for row in range(4) for col in range(4)]
        worst.append(max(banks.count(bank) for bank in banks))
    return sum(worst) / 2


def store_degree(g: Geometry, dirty: bool) -> float:
    """Mean wavefronts of a warp's store into A or B over the least possible, 2; the whole tile, dirty slot included."""
    return _store_degree(g.halo_rows, g.halo_cols, g.k, g.groups, g.stride_ab, g.offset_dirty if dirty else -1)


@cache
def _store_degree(rows: int, cols: int, k: int, groups: int, stride: int, dirty: int) -> float:
    e = np.arange(rows * cols)
    row, col = e // cols, e % cols
    total, halves = 0, 0
    for shift, base in ((0, 0), (k, groups * stride)):
        group, j = (col - shift) // (k + 1), (col - shift) % (k + 1)
        live = (col >= shift) & (j < k) & (group < groups)
        address = np.where(live, base + group * stride + k * row + j, dirty)
        address = np.append(address, np.full(-len(e) % 16, -1)).reshape(-1, 16)
        address.sort(axis=1)
        fresh = np.diff(address, axis=1, prepend=-2) != 0  # lanes that write one address together cost one
        fresh &= address >= 0
        half = np.nonzero(fresh)[0]
        counts = np.bincount(16 * half + address[fresh] % 16, minlength=address.size).reshape(-1, 16)
        total, halves = total + int(counts.max(axis=1).sum()), halves + len(address)
    return total / halves
