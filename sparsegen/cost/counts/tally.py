"""Adding up what warps issue, and what their requests for memory move and cost."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsegen.cost.counts.requests import Addresses, Mask, sectors, wavefronts

Ints = npt.NDArray[np.int64]
#: Kind of request -> its count of bytes, and what names its cost (sectors of global memory, else wavefronts).
REQUESTS = {
    "ld.global": ("bytes.global.read", "sectors.global.read"),
    "st.global": ("bytes.global.write", "sectors.global.write"),
    "cp_async": ("bytes.global.read", "sectors.global.read"),
    "ld.shared": ("bytes.shared.read", "shared"),
    "st.shared": ("bytes.shared.write", "shared"),
    "cp_async.shared": ("bytes.shared.write", "cp_async"),
}


class Tally:
    """The counts of one launch, by name."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def issue(self, name: str, warps: int) -> None:
        """So many warps issue an instruction of this class."""
        self.counts[name] += int(warps)

    def request(self, kind: str, at: Addresses, nbytes: int, on: Mask | None = None, times: Ints | int = 1) -> int:
        """Requests of ``nbytes`` a lane at byte addresses ``at`` [requests, 32], each made so many ``times``: how many.

        A request of no lane is not made.
        """
        lanes = np.full(len(at), 32) if on is None else on.sum(axis=1)
        made = self.moved(kind, lanes, nbytes, times)
        if kind.endswith(".shared"):
            cost, least = wavefronts(at, nbytes, on)
            self.waves(kind, int((cost * times).sum()), int((least * times).sum()))
        else:
            self.counts[REQUESTS[kind][1]] += int((sectors(at, nbytes, on) * times).sum())
        return made

    def moved(self, kind: str, lanes: Any, nbytes: int, times: Ints | int = 1) -> int:
        """Only the instructions and bytes of requests of so many lanes each."""
        made = int(((lanes > 0) * times).sum())
        self.counts[kind] += made
        self.counts[REQUESTS[kind][0]] += int((lanes * times).sum()) * nbytes
        return made

    def waves(self, kind: str, cost: int, least: int) -> None:
        """Only the wavefronts of requests for shared memory, and how many there would be without conflicts."""
        name = REQUESTS[kind][1]
        self.counts[f"wavefronts.{name}"] += cost
        self.counts[f"conflicts.{name}"] += cost - least

    def result(self) -> dict[str, int]:
        """What is not zero."""
        return {name: n for name, n in self.counts.items() if n}
