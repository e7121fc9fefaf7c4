"""Requests by the elements that their lanes access, wherever in a sector these begin.

The tiles of a field ask for the same elements, counted from their first one, but begin at different elements of a
sector: ``starts`` says of each how many tiles begin there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsegen.cost.counts.requests import SECTOR, Mask, sectors
from sparsegen.cost.counts.tally import Ints, Tally


def period(item: int) -> int:
    """Elements of a sector."""
    return SECTOR // item


def by_warps(elements: Any) -> tuple[Ints, Mask]:
    """Elements in the order of threads as requests of 32 lanes, and which lanes of the last one have an element."""
    flat = np.asarray(elements, dtype=np.int64).ravel()
    on = np.arange(-(-flat.size // 32) * 32) < flat.size
    return np.resize(flat, on.size).reshape(-1, 32), on.reshape(-1, 32)


def aligned(item: int, n: int = 1) -> Ints:
    """The ``starts`` of ``n`` requests that all begin with a sector."""
    starts = np.zeros(period(item), dtype=np.int64)
    starts[0] = n
    return starts


def both(a: Ints, b: Ints) -> Ints:
    """The ``starts`` of every pair of two, which begin where the sum of both does."""
    n = len(a)
    return np.array([sum(int(a[i] * b[(s - i) % n]) for i in range(n)) for s in range(n)], dtype=np.int64)


def request(tally: Tally, kind: str, at: Ints, item: int, starts: Ints, on: Mask | None = None, width: int = 1) -> None:
    """Requests to global memory of ``width`` elements a lane at ``at`` [requests, 32], from each of ``starts`` on."""
    first = np.flatnonzero(starts)
    lanes = None if on is None else np.tile(on, (len(first), 1))
    tally.request(kind, _moved(at, item, first) * item, width * item, lanes, np.repeat(starts[first], len(at)))


def touched(at: Ints, item: int, on: Mask | None = None, width: int = 1) -> Ints:
    """Sectors that requests for elements ``at`` touch in all, for each element of a sector that they may begin at."""
    every = np.arange(period(item))
    lanes = None if on is None else np.tile(on, (len(every), 1))
    cost = sectors(_moved(at, item, every) * item, width * item, lanes)
    return np.asarray(cost.reshape(len(every), -1).sum(axis=1), dtype=np.int64)


def _moved(at: Ints, item: int, first: Ints) -> Ints:
    """The same requests from each of some elements on; whole sectors further, so that no address is negative."""
    back = int(at.min(initial=0)) // period(item) * period(item)
    return np.asarray((at - back + first[:, None, None]).reshape(-1, 32), dtype=np.int64)
