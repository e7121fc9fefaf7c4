"""Counts of a launch, added up request by request; one request stands for all that are like it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from sparsegen.cost.counts.axis import Rows
from sparsegen.cost.counts.base import Launch
from sparsegen.cost.counts.requests import sectors, wavefronts

#: What a request to global memory counts as: its bytes, its sectors.
_GLOBAL = {"ld.global": "read", "cp_async": "read", "st.global": "write"}
#: What a request to shared memory counts as: the way of its bytes, the kind of its wavefronts.
_SHARED = {"ld.shared": ("read", "shared"), "st.shared": ("write", "shared"), "cp_async.shared": ("write", "cp_async")}
_ONE: Rows = {0: 1}


class Tally:
    """The counts of one launch."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, name: str, times: int) -> None:
        """An instruction that ``times`` warps issue."""
        self.counts[name] += times

    def along(self, name: str, at: Any, nbytes: int, times: Any, rows: Rows = _ONE, on: Any = None) -> None:
        """Requests ``at`` [requests, 32] of ``nbytes`` a lane to each of some rows; the i-th ``times[i]`` times a row.

        Addresses are in bytes from the start of a row.
        """
        lanes = np.full(len(at), 32) if on is None else on.sum(axis=1)
        each = np.broadcast_to(times, len(at)) * (lanes > 0)
        all_rows, way = sum(rows.values()), _GLOBAL[name]
        self.counts[name] += all_rows * int(each.sum())
        self.counts[f"bytes.global.{way}"] += all_rows * int((each * lanes).sum()) * nbytes
        for start, n in rows.items():
            self.counts[f"sectors.global.{way}"] += n * int((each * sectors(at + start, nbytes, on)).sum())

    def shared(self, name: str, at: Any, nbytes: int, times: Any, on: Any = None) -> None:
        """Requests ``at`` [requests, 32] of ``nbytes`` a lane to shared memory, the i-th ``times[i]`` times."""
        lanes = np.full(len(at), 32) if on is None else on.sum(axis=1)
        each = np.broadcast_to(times, len(at)) * (lanes > 0)
        if not each.any():
            return
        way, kind = _SHARED[name]
        taken, least = wavefronts(at, nbytes, on)
        self.counts[name] += int(each.sum())
        self.counts[f"bytes.shared.{way}"] += int((each * lanes).sum()) * nbytes
        self.counts[f"wavefronts.{kind}"] += int((each * taken).sum())
        self.counts[f"conflicts.{kind}"] += int((each * (taken - least)).sum())

    def launch(self, kernel: str) -> Launch:
        """The launch of that name with these counts."""
        return Launch(kernel, {k: int(n) for k, n in self.counts.items() if n or k.startswith("conflicts.")})
