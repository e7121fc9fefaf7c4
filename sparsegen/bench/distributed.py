"""Suite ``distributed``: several GPUs of one host against one of them, and the link between them.

    torchrun --nproc-per-node 2 -m sparsegen.bench.distributed_run --out docs/bench/distributed.json
    torchrun --nproc-per-node 2 -m sparsegen.bench.split_run --out docs/bench/distributed.json

========  =========================================================================================================
link      the time of the shortest message and the bytes a second of long ones, sent both ways at once
strong    a domain over all ranks against the whole of it on one, what is gathered compared bit for bit
weak      a domain that grows with the ranks against one rank's block on one GPU: the time that should not grow.  A
          block is half of the domain of ``strong``, as there on two GPUs, or about as large as all of it
products  a linear layer split over all ranks against the whole of it on one, calls recorded in a CUDA graph
========  =========================================================================================================

Every stencil and update is measured with blocks in one piece and in two, whose halos travel while the other one is
worked out; a call does some hundred time steps, and what it copies before and after them is counted.  Their seconds are
the host's, from a barrier to the end of the last rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sparsegen.bench import stencils, updates
from sparsegen.bench.cells import Cells, Column, Result, judged, micros, number, of, part, ratio, schedule, size, table
from sparsegen.bench.harness import AnyRow

NAME: Final = "distributed"
PARTS: Final = ("strong", "weak", "link", "products")
#: The time of one rank's block alone, over that of all: at least.
WEAK: Final = 0.95


@dataclass(frozen=True)
class Form:
    """A stencil or an update, its domain on two GPUs, and how much faster than one they must be.

    ``block``: cells of a large block where the domain grows with the ranks, if not those of the domain.
    """

    name: str
    shape: tuple[int, ...]
    speedup: float
    block: tuple[int, ...] = ()

    @property
    def what(self) -> Any:
        """What is compiled."""
        if self.name == "acoustic, order 8":
            return updates.update(self.name)
        return stencils.stencil(self.name)


FORMS: Final = (
    Form("Heat-2D", (20480, 20480), 1.85),
    # indices have 32 bits, so that twice 1024 planes are too many
    Form("Heat-3D", (1024, 1024, 1024), 1.85, (1000, 1024, 1024)),
    Form("acoustic, order 8", (1024, 1024, 512), 1.8),
)


@dataclass(frozen=True, kw_only=True)
class Row(AnyRow):
    """One result.

    ``alone_s``: of one GPU; ``busy_s``: of the slowest where each does that on its own at once; ``speedup``: over one
    GPU, ``predicted`` by the model; ``sent``: bytes a rank sends a pass; ``tokens``: rows of a layer's x; ``gbs``,
    ``latency_s``: of a link.
    """

    ranks: int
    steps: int = 0
    overlap: bool | None = None
    median_s: float | None = None
    alone_s: float | None = None
    busy_s: float | None = None
    speedup: float | None = None
    predicted: float | None = None
    target: float | None = None
    sent: int | None = None
    tokens: int | None = None
    gbs: float | None = None
    latency_s: float | None = None


def _speedup(row: Mapping[str, Any]) -> str:
    return judged(row, number(row["speedup"], ".2f"))


def _over_busy(row: Mapping[str, Any]) -> str:
    return ratio(row.get("busy_s"), row.get("median_s"))


def _halves(row: Mapping[str, Any]) -> str:
    return "yes" if row["overlap"] else "no"


_SCALING: Final[dict[str, Column]] = {
    "form": of("case"), "size": size, "type": of("dtype"), "GPUs": of("ranks", "d"), "halves": _halves,
    "steps": of("steps", "d"), "speed-up": _speedup, "at least": of("target", "g"),
    "over a busy one": _over_busy, "model": of("predicted", ".2f"),
    "schedule": schedule,
}  # fmt: skip
_PRODUCTS: Final[dict[str, Column]] = {
    "layer": of("case"), "outputs×inputs": size, "tokens": of("tokens", "d"), "GPUs": of("ranks", "d"),
    "one GPU, µs": micros("alone_s"), "all, µs": micros("median_s"), "speed-up": _speedup,
    "at least": of("target", "g"), "off by": of("error", ".1e"), "schedule": schedule,
}  # fmt: skip
_LINK: Final[dict[str, Column]] = {"form": of("case"), "GB/s": of("gbs", ".0f"), "latency, s": of("latency_s", ".1e")}


def view(name: str, found: Result) -> Cells:
    """The table of a part."""
    return table(part(found, name), {"link": _LINK, "products": _PRODUCTS}.get(name, _SCALING))
