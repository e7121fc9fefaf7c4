"""What requests count as: the names and numbers of loads and stores, from the elements that their lanes access."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsegen.cost.counts.requests import SECTOR, Mask, sectors, wavefronts

Ints = npt.NDArray[np.int64]
Counts = Counter[str]
_WAY = {"ld": "read", "st": "write", "cp_async": "write"}


def by_warps(elements: Any) -> tuple[Ints, Mask]:
    """Elements in the order of threads as requests of 32 lanes, and which lanes of the last one have an element."""
    flat = np.asarray(elements, dtype=np.int64).ravel()
    on = np.arange(-(-flat.size // 32) * 32) < flat.size
    return np.resize(flat, on.size).reshape(-1, 32), on.reshape(-1, 32)


def times(counts: Mapping[str, int], n: int) -> Counts:
    """Counts of ``n`` of the same."""
    return Counter({name: n * count for name, count in counts.items()})


def period(item: int) -> int:
    """Elements of a sector: what the place of a request's first element matters up to."""
    return SECTOR // item


def in_shared(name: str, at: Ints, item: int, on: Mask | None = None, width: int = 1) -> Counts:
    """Requests ``name`` to shared memory at elements ``at`` [requests, 32], ``width`` adjacent ones a lane."""
    lanes = np.ones(at.shape, dtype=bool) if on is None else on
    least = int(at[lanes].min(initial=0))
    cost, ideal = wavefronts((at - least) * item, width * item, lanes)
    op = name.partition(".")[0]
    tag = "cp_async" if op == "cp_async" else "shared"
    return Counter({
        name: int(lanes.any(axis=1).sum()),
        f"bytes.shared.{_WAY[op]}": int(lanes.sum()) * width * item,
        f"wavefronts.{tag}": int(cost.sum()),
        f"conflicts.{tag}": int((cost - ideal).sum()),
    })  # fmt: skip


def touched(at: Ints, item: int, on: Mask | None = None, width: int = 1) -> Ints:
    """Sectors that requests at elements ``at`` touch in all, if these are so many elements past a sector's first."""
    every = period(item)
    first = at - int(at.min(initial=0)) // every * every
    moved = (first[None] + np.arange(every)[:, None, None]).reshape(-1, 32)
    lanes = None if on is None else np.tile(on, (every, 1))
    return np.asarray(sectors(moved * item, width * item, lanes).reshape(every, -1).sum(axis=1), dtype=np.int64)


def in_global(name: str, at: Ints, item: int, starts: Ints, on: Mask | None = None, width: int = 1) -> Counts:
    """Requests ``name`` to global memory, made ``starts[a]`` times with ``at`` counted from a sector's element a."""
    lanes = np.ones(at.shape, dtype=bool) if on is None else on
    asked = lanes.any(axis=1)
    if not asked.any():
        return Counter()
    again = int(starts.sum())
    way = "write" if name.startswith("st") else "read"
    return Counter({
        name: int(asked.sum()) * again,
        f"bytes.global.{way}": int(lanes.sum()) * width * item * again,
        f"sectors.global.{way}": int(touched(at[asked], item, lanes[asked], width) @ starts),
    })  # fmt: skip


def aligned(item: int, n: int = 1) -> Ints:
    """The ``starts`` of ``n`` requests whose buffer begins with a sector."""
    starts = np.zeros(period(item), dtype=np.int64)
    starts[0] = n
    return starts


def both(a: Ints, b: Ints) -> Ints:
    """How often each sum of two places in a sector occurs, given how often each of both does."""
    n = len(a)
    return np.array([sum(int(a[i] * b[(s - i) % n]) for i in range(n)) for s in range(n)], dtype=np.int64)
