"""Suite ``auto``: what ``format="auto"`` takes, beside ``torch.matmul`` by the dense matrix, called as users call them.

Thirty products: layers of language models and odd sizes, few zeros and many, one column to 256.  Besides device times
a row has the host's time for a call, in which a short product may lose all that its kernel gains.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from sparsegen.bench.bitmaps import COLD, WARM
from sparsegen.bench.cells import Cells, Column, Result, judged, micro, micros, of, ratio, schedule, size, table
from sparsegen.bench.harness import TOLERANCE
from sparsegen.bench.products import ProductRow, Products
from sparsegen.formats import sparse

if TYPE_CHECKING:
    from sparsegen.kernel import SpmmKernel

#: Share of zeros, then M, K, N of products.
SHAPES: Final[tuple[tuple[float, tuple[int, int, int]], ...]] = (
    *((0.6, (28672, 8192, n)) for n in (1, 8, 16, 32, 64, 128)),
    *((0.6, (8192, 8192, n)) for n in (1, 16, 40, 64)),
    *((0.5, (4096, 4096, n)) for n in (1, 7, 16, 64)),
    *((0.9, (1000, 2048, n)) for n in (1, 16, 33, 64, 256)),
    *((zeros, (5120, 13824, 16)) for zeros in (0.0, 0.3, 0.9)),
    *((0.7, (4099, 4097, n)) for n in (3, 16, 61)),
    (0.8, (333, 777, 17)), (0.6, (2049, 1023, 40)), (0.95, (11008, 4096, 50)), (0.4, (14920, 13172, 47)),
    (0.6, (64, 64, 8)),
)  # fmt: skip
#: What a product may take of the time of torch.matmul, or how many seconds more.
WITHIN, MORE = 1.03, 1.5e-6
#: Calls of a series whose host time is taken.
CALLS: Final = 200


@dataclass(frozen=True)
class AutoCase:
    """A product by a matrix with this share of zeros in random places."""

    sparsity: float
    shape: tuple[int, int, int]


def cases(quick: bool = False) -> list[AutoCase]:
    """All of them; ``quick``: every third."""
    return [AutoCase(*one) for one in SHAPES[:: 3 if quick else 1]]


@dataclass(frozen=True, kw_only=True)
class AutoRow(ProductRow):
    """One product; seconds of a call with warm L2, of ``torch.matmul`` cold and warm, and of the host for a call."""

    sparsity: float
    hot_s: float | None = None
    host_s: float | None = None
    matmul: Mapping[str, float] | None = None


class Auto(Products[AutoCase, AutoRow]):
    """Suite ``auto`` on a GPU."""

    row = AutoRow

    def prepare(self, cases: Sequence[AutoCase]) -> None:
        """The dense matrices."""
        self._dense = {case: self._matrix(case, self.seed + at) for at, case in enumerate(cases)}

    def _matrix(self, case: AutoCase, seed: int) -> Any:
        torch, generator = self.torch, self.random(seed)
        kept = torch.rand(case.shape[:2], generator=generator, device=self.device) >= case.sparsity
        values = torch.randn(case.shape[:2], generator=generator, device=self.device).to(self.dtype("f16"))
        return values.masked_fill_(~kept, 0)

    def build(self, case: AutoCase) -> SpmmKernel:
        """The kernel that ``format="auto"`` takes."""
        return self.kernel(sparse(self._dense[case], format="auto"), case.shape[2], ["rows"])

    def labels(self, case: AutoCase, seed: int) -> dict[str, Any]:
        """What every row says of its case."""
        name = f"{case.sparsity:.0%} zeros"
        return {"case": name, "shape": case.shape, "dtype": "f16", "seed": seed, "sparsity": case.sparsity}

    def host(self, call: Callable[[], object]) -> float:
        """The host's median seconds of a call that waits for nothing."""
        times = list[float]()
        for _ in range(CALLS):
            self.lab.runtime.synchronize()
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return median(times)

    def measure(self, case: AutoCase, kernel: SpmmKernel, seed: int) -> AutoRow:
        """Check, then time a product and torch's: with a cold L2 ours may take WITHIN times as long, or MORE."""
        torch, dense = self.torch, self._dense.pop(case)
        x = self.uniform((case.shape[1], case.shape[2]), "f16", seed)
        exact = self.exact(dense, x)
        y = torch.empty_like(exact, dtype=x.dtype)
        call, library = partial(kernel, x, out=y), partial(torch.matmul, dense, x, out=y)
        error, same = self.checked(call, y, exact)
        cold, hot = self.series(call, COLD), self.series(call, WARM).median
        theirs = {"cold": self.series(library, COLD).median, "hot": self.series(library, WARM).median,
                  "host": self.host(library)}  # fmt: skip
        most = theirs["cold"]
        return AutoRow(
            **self.labels(case, seed), **self.figures(kernel, "rows", cold), hot_s=hot, host_s=self.host(call),
            matmul=theirs, error=error, same=same,
            ok=error <= TOLERANCE["f16"] and same and cold.median <= max(WITHIN * most, most + MORE),
        )  # fmt: skip

    @staticmethod
    def line(row: AutoRow) -> str:
        """A row as a line of progress."""
        what = f"{row.case}, {'x'.join(map(str, row.shape))}"
        if row.median_s is None or row.matmul is None:
            return f"{what}: {row.failed}"
        told = f"{row.median_s * 1e6:.1f} us, matmul {row.matmul['cold'] * 1e6:.1f}, error {row.error:.1e}"
        return f"{what}: {told}{'' if row.ok else ', NOT OK'}; {row.schedule}"


def _theirs(state: str) -> Column:
    return lambda row: micro(row["matmul"] and row["matmul"][state])


_COLUMNS: Final[dict[str, Column]] = {
    "weights": of("case"), "size": size, "µs": lambda row: judged(row, micro(row["median_s"])),
    "torch.matmul": _theirs("cold"), "over": lambda row: ratio((row["matmul"] or {}).get("cold"), row["median_s"]),
    "hot": micros("hot_s"), "torch.matmul, hot": _theirs("hot"), "host": micros("host_s"),
    "torch.matmul, host": _theirs("host"), "model": micros("predicted_s"), "error": of("error", ".0e"),
    "schedule": schedule,
}  # fmt: skip


def view(found: Result) -> Cells:
    """The table of a result."""
    return table(found["rows"], _COLUMNS)
