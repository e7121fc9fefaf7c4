"""Requests along the rows of a field: what a row costs depends only on where in a sector it starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from sparsegen.cost.counts.requests import SECTOR, Addresses, Mask
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.tiles import Ints, Kinds, Range, kinds, mapped, unit
from sparsegen.ir.op import SideSpec

#: How many rows start so many bytes after a sector does.
Rows = Mapping[int, int]
Pair = tuple[SideSpec, SideSpec]
PERIODIC: Pair = (("periodic", 0.0), ("periodic", 0.0))
EDGE: Pair = (("frozen", 0.0), ("frozen", 0.0))  #: what is read across a side where any cell will do


def windows(count: int, step: int, before: int, size: int, n: int, every: int) -> Kinds:
    """``count`` windows of ``size`` cells, ``step`` apart, the first ``before`` cells left of an axis of ``n`` cells.

    Those inside the axis are alike if their first cells agree modulo ``every``.
    """
    tiles = kinds((0, count * step), step, (before, n + before + step - size), every)
    return Kinds(tiles.first - before, tiles.times)


def fetched(at: Ints, n: int, together: int = 1) -> Ints:
    """The first of ``together`` columns that are read for columns ``at``: they wrap, also where any cell will do."""
    return np.minimum(mapped(at, n, PERIODIC), n - together)


def rows_fetched(w: Kinds, size: int, n: int, pair: Pair, stride: int) -> Rows:
    """The rows that windows of ``size`` rows read; rows are ``stride`` bytes apart."""
    rows = mapped(w.first[:, None] + np.arange(size), n, pair if pair[0][0] == "periodic" else EDGE)
    return _starts(rows * stride, np.broadcast_to(w.times[:, None], rows.shape))


def rows_of(cells: Range, stride: int) -> Rows:
    """The rows of a half-open range, each once; rows are ``stride`` bytes apart."""
    each = kinds(cells, 1, cells, unit(stride, 1))
    return _starts(each.first * stride, each.times)


def of_planes(planes: Rows, rows: Rows) -> Rows:
    """The rows of planes, by where both together start."""
    out: Counter[int] = Counter()
    for at, n in planes.items():
        for row, m in rows.items():
            out[(at + row) % SECTOR] += n * m
    return out


def along(tally: Tally, kind: str, at: Addresses, nbytes: int, times: Any, rows: Rows, on: Mask | None = None) -> None:
    """Requests of global memory at bytes ``at`` [requests, 32] of each row, the i-th ``times[i]`` times a row."""
    for start, n in rows.items():
        tally.request(kind, at + start, nbytes, on, times * n)


def _starts(at: Any, times: Any) -> Rows:
    found = np.zeros(SECTOR, np.int64)
    np.add.at(found, np.ravel(at) % SECTOR, np.ravel(times))
    return {start: int(n) for start, n in enumerate(found) if n}
