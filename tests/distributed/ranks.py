"""Ranks as threads of one process, which put what they send into queues: the numbers of a mesh in milliseconds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Queue
from typing import Any

import numpy as np
import torch

from sparsegen.distributed.kernel import DistributedKernel
from sparsegen.kernel import Kernel

#: Seconds after which a thread that gets nothing fails the test.
PATIENCE = 20.0


@dataclass
class Threads:
    """What a DistributedKernel asks of its ranks."""

    mesh: tuple[int, ...]
    me: int
    mail: dict[tuple[int, int], Queue[Any]] = field(default_factory=lambda: defaultdict(Queue))
    device: Any = field(default_factory=lambda: torch.device("cpu"))

    def agree(self, facts: dict[str, str]) -> None:
        """All threads have one kernel."""

    def exchange(self, sends: Sequence[Any], receives: Sequence[Any], what: str) -> Callable[[], None]:
        for a, rank in sends:
            self.mail[self.me, rank].put(a.clone())

        def wait() -> None:
            for a, rank in receives:
                a.copy_(self.mail[rank, self.me].get(timeout=PATIENCE))

        return wait


def flat(result: Any) -> list[Any]:
    """All arrays of a result."""
    return [a for part in result for a in flat(part)] if isinstance(result, tuple) else [result]


def each(form: Any, do: Callable[[Any], Any]) -> Any:
    """A result with ``do`` of each of its arrays."""
    return tuple(each(part, do) for part in form) if isinstance(form, tuple) else do(form)


def held(d: DistributedKernel, whole: Any) -> Any:
    """A rank's block of a field; numbers of time steps are those of all."""
    return np.ascontiguousarray(whole[d.block]) if np.shape(whole) == d.kernel.shape else whole


def together(
    k: Kernel, mesh: tuple[int, ...], given: dict[str, Any], steps: int | None = None, overlap: bool | None = None
) -> list[np.ndarray[Any, Any]]:
    """The arrays of a result on the whole domain, worked out by the ranks of a mesh."""
    mail: dict[tuple[int, int], Queue[Any]] = defaultdict(Queue)

    def one(rank: int) -> tuple[DistributedKernel, Any]:
        d = DistributedKernel(k, Threads(mesh, rank, mail), overlap)  # type: ignore[arg-type]
        mine = {name: each(a, lambda whole: held(d, whole)) for name, a in given.items()}
        return d, d(**mine, steps=steps)

    with ThreadPoolExecutor(math.prod(mesh)) as pool:
        found = list(pool.map(one, range(math.prod(mesh))))
    results = [np.empty(k.shape, k.dtype) for _ in flat(found[0][1])]
    for d, made in found:
        for whole, part in zip(results, flat(made), strict=True):
            whole[d.block] = part
    return results
