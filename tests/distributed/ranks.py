"""Ranks as threads of one process, which put what they send into queues: the numbers of a mesh in milliseconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any

import numpy as np
import torch

from sparsegen.distributed.group import Ranks
from sparsegen.distributed.kernel import DistributedKernel
from sparsegen.kernel import Kernel

#: Seconds after which a thread that gets nothing fails the test.
PATIENCE = 20.0


Mail = dict[Any, "Queue[Any]"]


class Threads(Ranks):
    """Ranks that are threads, and reach each other's queues."""

    def __init__(self, mesh: tuple[int, ...], me: int, mail: Mail) -> None:
        self.mesh, self.me, self._mail, self.device = mesh, me, mail, torch.device("cpu")

    def everyone(self, value: Any, what: str) -> list[Any]:
        every = range(math.prod(self.mesh))
        for rank in every:
            self._mail["said", self.me, rank].put(value)
        return [self._mail["said", rank, self.me].get(timeout=PATIENCE) for rank in every]

    def exchange(self, sends: Sequence[Any], receives: Sequence[Any], what: str) -> Callable[[], None]:
        for a, rank in sends:
            self._mail[self.me, rank].put(a.clone())

        def wait() -> None:
            for a, rank in receives:
                a.copy_(self._mail[rank, self.me].get(timeout=PATIENCE))

        return wait


def over(
    k: Kernel, mesh: tuple[int, ...], do: Callable[[DistributedKernel], Any], overlap: bool | None = None
) -> list[Any]:
    """What each rank of a mesh does with its part of a kernel."""
    ranks = range(math.prod(mesh))
    pairs = [(a, b) for a in ranks for b in ranks]
    mail: Mail = {key: Queue() for a, b in pairs for key in ((a, b), ("said", a, b))}  # now, as threads make two of one
    with ThreadPoolExecutor(math.prod(mesh)) as pool:
        return list(pool.map(lambda rank: do(DistributedKernel(k, Threads(mesh, rank, mail), overlap)), ranks))


def flat(result: Any) -> list[Any]:
    """All arrays of a result."""
    return [a for part in result for a in flat(part)] if isinstance(result, tuple) else [result]


def each(form: Any, do: Callable[[Any], Any]) -> Any:
    """A result with ``do`` of each of its arrays."""
    return tuple(each(part, do) for part in form) if isinstance(form, tuple) else do(form)


def held(d: DistributedKernel, whole: Any) -> Any:
    """A rank's block of a field; numbers of time steps are those of all."""
    return np.ascontiguousarray(whole[d.block]) if np.shape(whole) == d.kernel.shape else whole


def blocks(d: DistributedKernel, given: dict[str, Any]) -> dict[str, Any]:
    """A rank's blocks of what a call is given."""
    return {name: each(a, lambda whole: held(d, whole)) for name, a in given.items()}


def together(
    k: Kernel, mesh: tuple[int, ...], given: dict[str, Any], steps: int | None = None, overlap: bool | None = None
) -> list[np.ndarray[Any, Any]]:
    """The arrays of a result on the whole domain, worked out by the ranks of a mesh."""

    def one(d: DistributedKernel) -> tuple[DistributedKernel, Any]:
        return d, d(**blocks(d, given), steps=steps)

    found = over(k, mesh, one, overlap)
    results = [np.empty(k.shape, k.dtype) for _ in flat(found[0][1])]
    for d, made in found:
        for whole, part in zip(results, flat(made), strict=True):
            whole[d.block] = part
    return results
