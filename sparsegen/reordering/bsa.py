"""The paper's clustering of rows, one comparison after the other, on the host (BSA-SpMM, algorithms 1 and 2).

The rows stand in ascending order of dispersion.  The first one that is in no cluster begins one and is what represents
it; each later one in no cluster joins if its similarity to the representative exceeds alpha, and its counts, not
normalised, are added to the representative's before the next row is compared.  Empty rows are cluster -1.

Between two rows that join, the representative stays as it is: so similarities are worked out for many rows at once, up
to the first that joins.  What is decided is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sparsegen.reordering.blocks import Blocks, Variant, ascending
from sparsegen.reordering.similarity import of_parts

#: Rows that are compared at once: at least, and at most.
FEW: Final = 16
MANY: Final = 1 << 16


@dataclass(frozen=True, eq=False)
class Clusters:
    """``permutation`` int64 [rows], new -> old; ``of_row`` int64 [rows]: the cluster of each old row, -1 of empty ones.

    Clusters are numbered in the order in which they begin.
    """

    permutation: Any
    of_row: Any

    @property
    def count(self) -> int:
        """Clusters of rows that have entries."""
        return int(self.of_row.max(initial=-1)) + 1


def clusters(blocks: Blocks, alpha: float, variant: Variant = "paper") -> Clusters:
    """The clusters of a matrix whose blocks are in NumPy."""
    order, empty = ascending(blocks, variant)
    of_row = np.full(blocks.shape[0], -1, np.int64)
    rows, left = _Normalised(blocks), order[empty:]
    cluster = 0
    while len(left):
        joined = _joined(rows, left, alpha)
        of_row[left[joined]] = cluster
        left = left[~joined]
        cluster += 1
    return Clusters(order[np.argsort(of_row[order], kind="stable")], of_row)


def _joined(rows: _Normalised, left: Any, alpha: float) -> Any:
    """Which of the rows that are left belong to the cluster that the first of them begins: bool, one a row."""
    joined = np.zeros(len(left), bool)
    joined[0] = True
    sums = np.zeros(rows.across)
    rows.add(left[0], sums)
    at, step = 1, FEW
    while at < len(left):
        similar = rows.similar(left[at : at + step], sums) > alpha
        here = int(similar.argmax()) if similar.any() else -1
        if here < 0:
            at, step = at + len(similar), min(4 * step, MANY)
            continue
        joined[at + here] = True
        rows.add(left[at + here], sums)
        at, step = at + here + 1, max(FEW, min(step, 4 * here))
    return joined


class _Normalised:
    """The rows of a matrix as vectors of counts, and of counts over their L2 norm."""

    def __init__(self, blocks: Blocks) -> None:
        self.across, self.ptr, self.block = blocks.across, blocks.starts(), blocks.block
        self.count = blocks.count.astype(np.float64)
        rows = blocks.shape[0]
        norm = np.sqrt(np.bincount(blocks.row, self.count**2, rows))
        self.share = self.count / norm[blocks.row]
        self.total = np.bincount(blocks.row, self.share, rows)

    def add(self, row: int, sums: Any) -> None:
        """Add a row's counts to ``sums`` [blocks]."""
        own = slice(self.ptr[row], self.ptr[row + 1])
        sums[self.block[own]] += self.count[own]

    def similar(self, rows: Any, sums: Any) -> Any:
        """The similarities of some rows, none of them empty, to a representative."""
        whole = sums / np.sqrt((sums**2).sum())
        counts = self.ptr[rows + 1] - self.ptr[rows]
        ends = np.cumsum(counts)
        entries = np.arange(ends[-1]) + np.repeat(self.ptr[rows] - ends + counts, counts)
        smaller = np.minimum(self.share[entries], whole[self.block[entries]])
        return of_parts(np.add.reduceat(smaller, ends - counts), self.total[rows], whole.sum())
