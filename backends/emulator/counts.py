"""Exact counts: shared-memory wavefronts (bank conflicts), global sectors, instruction classes.

A warp's request depends on its address pattern only up to a shift, so every op keeps a table from pattern to result;
a request costs a subtraction and a hash.
"""

from __future__ import annotations

from typing import Any

import numpy as np

OFF = -(1 << 40)  # marks an inactive lane in a pattern
_HASH = np.random.default_rng(20240717).integers(1 << 20, 1 << 62, size=32, dtype=np.int64) | 1
_MIX = np.int64(0x5851F42D4C957F2D)


def wavefronts(addr: Any, nbytes: int) -> tuple[Any, Any, Any]:
    """(wavefronts, ideal wavefronts, worst degree) of requests ``addr[p, 32]`` in bytes, ``nbytes`` a lane.

    4 bytes a lane: 32 lanes in one phase; 8: two halves of 16 lanes; 16: four quarters of 8.  The degree of a phase is
    the largest number of distinct 4-byte words that one of the 32 banks has to deliver.
    """
    words, per = max(1, nbytes // 4), 32 if nbytes <= 4 else 128 // nbytes
    p, phases = len(addr), 32 // per
    w = ((addr >> 2)[:, :, None] + np.arange(words)).reshape(p * phases, per * words)
    w = np.sort(np.where(np.repeat(addr == OFF, words, axis=1).reshape(w.shape), OFF, w), axis=1)
    first = w != OFF
    first[:, 1:] &= w[:, 1:] != w[:, :-1]
    at = (np.arange(p * phases)[:, None] * 32 + (w & 31))[first]
    degree = np.bincount(at, minlength=p * phases * 32).reshape(p, phases, 32).max(2)
    return degree.sum(1), (degree > 0).sum(1), degree.max(1)


def sectors(addr: Any, nbytes: int) -> Any:
    """Distinct 32-byte sectors of requests ``addr[p, 32]`` (in bytes)."""
    ends = [addr >> 5] + ([(addr + nbytes - 1) >> 5] if nbytes > 1 else [])
    s = np.sort(np.where(np.concatenate([addr] * len(ends), axis=1) == OFF, OFF, np.concatenate(ends, axis=1)), axis=1)
    return (s[:, 0] != OFF) + ((s[:, 1:] != s[:, :-1]) & (s[:, 1:] != OFF)).sum(1)


class Patterns:
    """Requests of one op: ``add`` takes element indices of a group and gives their cost."""

    def __init__(self, itemsize: int, nbytes: int, *, shared: bool) -> None:
        self.itemsize, self.nbytes, self.is_shared = itemsize, nbytes, shared
        self.known: dict[int, tuple[int, int, int]] = {}
        self.cost = self.ideal = self.requests = self.degree = 0
        self.period = 4 if shared else 32

    def add(self, ix: Any, mask: Any, n: int) -> tuple[Any, Any]:
        """A request of ``n`` warps: ``ix`` broadcasts to ``[n, 32]``, inactive lanes are false in ``mask``.

        Gives cost and least cost: of each warp, or two numbers that hold for all of them.
        """
        a = np.asarray(ix)
        if a.ndim != 2:
            a = a.reshape(1, 1)
        if mask is None:
            first = a[:, :1]
            d = a - first
        else:
            full = np.where(mask, a, 1 << 62)
            first = full.min(1, keepdims=True)
            d = np.where(mask, full - first, OFF)
        h = d @ _HASH if d.shape[1] == 32 else np.zeros(len(d), dtype=np.int64)
        phase = (first[:, 0] * self.itemsize) % self.period
        if self.itemsize % self.period:
            h = h * _MIX + phase
        of_warp = None
        if len(h) == 1 or (h == h[0]).all():
            keys, at, reps = h[:1].tolist(), [0], [n]
        else:
            keys_, at_, of_warp, reps_ = np.unique(h, return_index=True, return_inverse=True, return_counts=True)
            keys, at, reps = keys_.tolist(), at_.tolist(), reps_.tolist()
        new = [i for k, i in zip(keys, at, strict=True) if k not in self.known]
        if new:
            self._learn([k for k in keys if k not in self.known], d[new], phase[new])
        found = [self.known[k] for k in keys]
        for (cost, ideal, degree), r in zip(found, reps, strict=True):
            self.cost += cost * r
            self.ideal += ideal * r
            self.requests += r if ideal else 0
            if degree > self.degree:
                self.degree = degree
        if len(self.known) > 200_000:
            self.known.clear()
        if of_warp is None:
            return found[0][:2]
        table = np.array(found)
        return table[of_warp, 0], table[of_warp, 1]

    def _learn(self, keys: list[int], d: Any, phase: Any) -> None:
        d = np.broadcast_to(d, (len(d), 32))
        addr = np.where(d == OFF, OFF, d * self.itemsize + phase[:, None])
        if self.is_shared:
            cost, ideal, degree = wavefronts(addr, self.nbytes)
            found = zip(cost.tolist(), ideal.tolist(), degree.tolist(), strict=True)
        else:
            n = sectors(addr, self.nbytes).tolist()
            found = zip(n, [int(x > 0) for x in n], [0] * len(n), strict=True)
        self.known.update(zip(keys, found, strict=True))
