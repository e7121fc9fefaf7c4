"""How windows cover one axis of a field, and where the cells of a window are read: arithmetic, whatever the size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsegen.cost.counts.requests import SECTOR

Cells = npt.NDArray[np.int64]
#: How often a row starts so many bytes after a sector's start: requests along a row depend on nothing else of it.
Rows = Mapping[int, int]


@dataclass(frozen=True)
class Windows:
    """Windows of an axis, by kind: the first cell of one of each kind, and how many there are of it."""

    starts: Cells
    times: Cells

    @property
    def count(self) -> int:
        """How many windows there are, of all kinds."""
        return int(self.times.sum())


def windows(count: int, step: int, before: int, size: int, n: int, itemsize: int) -> Windows:
    """``count`` windows of ``size`` cells, ``step`` apart, the first ``before`` cells left of an axis of ``n`` cells.

    Windows inside the axis are of one kind if they start equally far into a sector; each other one is of its own.
    """
    first = min(count, max(0, -(-before // step)))
    last = max(first, min(count, (n - size + before) // step + 1))
    cycle = min(last - first, period(step * itemsize))
    inside = first + np.arange(cycle)
    edges = np.concatenate([np.arange(first), np.arange(last, count)])
    times = np.concatenate([np.ones(len(edges), np.int64), -(-(last - inside) // max(1, cycle))])
    return Windows(np.concatenate([edges, inside]) * step - before, times)


def period(nbytes: int) -> int:
    """How many strides of so many bytes lead to the same place in a sector again."""
    return SECTOR // gcd(nbytes, SECTOR)


def mapped(at: Any, n: int, periodic: bool, together: int = 1) -> Any:
    """The first of ``together`` cells that are read for cells ``at``: wrapped once if periodic, never outside."""
    return np.clip(np.where(at < 0, at + n, np.where(at >= n, at - n, at)) if periodic else at, 0, n - together)


def rows_read(w: Windows, size: int, n: int, periodic: bool, stride: int) -> Rows:
    """Rows that windows of ``size`` rows read, by where they start in a sector; ``stride`` is their bytes."""
    rows = mapped(w.starts[:, None] + np.arange(size), n, periodic)
    return _histogram(rows * stride, np.broadcast_to(w.times[:, None], rows.shape))


def rows_between(low: int, high: int, stride: int) -> Rows:
    """The rows of a range, each once, by where they start in a sector."""
    first = low + np.arange(max(0, min(high - low, period(stride))))
    return _histogram(first * stride, -(-(high - first) // period(stride)))


def together(a: Rows, b: Rows) -> Rows:
    """Every row of ``a`` with every one of ``b``: where the sum of their places is."""
    out: dict[int, int] = {}
    for (x, n), (y, m) in ((i, j) for i in a.items() for j in b.items()):
        out[(x + y) % SECTOR] = out.get((x + y) % SECTOR, 0) + n * m
    return out


def _histogram(at: Any, times: Any) -> Rows:
    found = np.zeros(SECTOR, np.int64)
    np.add.at(found, np.ravel(at) % SECTOR, np.ravel(times))
    return {place: int(n) for place, n in enumerate(found) if n}
