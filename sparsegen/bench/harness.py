"""One harness for all suites: everything is compiled at once, then case after case is checked and timed.

What a row is compared with (other rows, libraries, floors) is measured in the same run.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from os import cpu_count
from typing import Any, Final, Generic, TypeVar

from sparsegen.bench import floors
from sparsegen.bench.lab import SECONDS, Lab

#: Largest error that counts as correct: max|a - b| / max|b| of a stencil; |y - exact| / |exact| over all elements of a
#: product, where rounding y to 16 bits costs 2e-4 and 1.7e-3, and of attention in 8 bits, of integers and of f16; the
#: share of wrong integers.
TOLERANCE: Final = {
    "f64": 1e-12, "f32": 1e-5, "f16": 1e-3, "bf16": 4e-3, "8b-8b": 0.01, "16b-8b": 0.001, "f16 8b-8b": 0.03,
    **{f"L{left}-R{right}": 0.0 for left in (4, 8, 12, 16) for right in (4, 8, 16)},
}  # fmt: skip
C = TypeVar("C")
K = TypeVar("K")
R = TypeVar("R", bound="AnyRow")


@dataclass(frozen=True, kw_only=True)
class AnyRow:
    """One result, as it stands in the JSON: what the rows of all suites say; times are seconds.

    ``p10`` and ``p90``: percentiles of the ``repeats`` times of a call; ``regs``, ``spills``: what nvcc made of the
    kernel; ``error``: how far the result is off; ``ok``: it is right, and the target is met if there is one;
    ``failed``: why there are no numbers.
    """

    part: str = ""
    case: str
    shape: tuple[int, ...]
    dtype: str
    schedule: str = ""
    p10: float | None = None
    p90: float | None = None
    repeats: int = 0
    regs: int | None = None
    spills: int | None = None
    error: float | None = None
    ok: bool = False
    failed: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain values; an infinite error becomes text, which JSON can hold."""
        out = asdict(self)
        if self.error is not None and not math.isfinite(self.error):
            out["error"] = str(self.error)
        return out


def nothing(_: object) -> None:
    """For whom neither lines of progress nor rows matter."""


def reason(error: Exception) -> str:
    """Why a row has no numbers."""
    return f"{type(error).__name__}: {error}"


def compiled(cases: Iterable[C], build: Callable[[C], K]) -> list[K | Exception]:
    """What ``build`` makes of each case, or why there is none; nvcc runs on as many at once as there are cores."""

    def one(case: C) -> K | Exception:
        try:
            return build(case)
        except Exception as error:  # a fault of ours is that row's alone
            return error

    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        return list(pool.map(one, cases))


class Suite(ABC, Generic[C, R]):
    """How the cases of one kind are measured: ``seed`` is the first of the random inputs, ``seconds`` a row's calls."""

    row: type[R]

    def __init__(self, lab: Lab, seed: int = 0, seconds: float = SECONDS) -> None:
        self.lab, self.seed, self.seconds = lab, seed, seconds
        self.floors: list[floors.Floor] = []

    def prepare(self, cases: Sequence[C]) -> None:
        """Make what several cases have in common, before they are compiled."""

    @abstractmethod
    def build(self, case: C) -> Any:
        """The compiled kernel of a case."""

    @abstractmethod
    def labels(self, case: C, seed: int) -> dict[str, Any]:
        """What a row says of its case."""

    @abstractmethod
    def measure(self, case: C, kernel: Any, seed: int) -> R:
        """Check, then time a case."""

    @staticmethod
    @abstractmethod
    def line(row: R) -> str:
        """A row as a line of progress."""

    def run(
        self,
        cases: Sequence[C],
        say: Callable[[str], None] = nothing,
        beside: Sequence[str] = (),
        keep: Callable[[Sequence[R]], None] = nothing,
    ) -> list[R]:
        """Measure all cases, one after another, after all are compiled; a case that fails is a row that says why.

        ``beside``: floors to compile and run in the same call (see ``floors``); one that fails is missing in the rows.
        ``keep`` gets the rows that there are after each one.
        """
        start = time.perf_counter()
        if beside:
            self.floors = floors.measured(beside, self.lab.runtime.info().arch, say)
            say(f"{len(self.floors)} figures of floors by {time.perf_counter() - start:.1f} s")
        self.prepare(cases)
        built = compiled(cases, self.build)[::-1]
        say(f"{len(cases)} kernels compiled by {time.perf_counter() - start:.1f} s")
        rows = list[R]()
        for at, case in enumerate(cases):
            kernel, seed = built.pop(), self.seed + len(cases) + at  # a kernel is freed with its workspace in its turn
            try:
                if isinstance(kernel, Exception):
                    raise kernel
                row = self.measure(case, kernel, seed)
            except Exception as error:  # as in compiled
                row = self.row(**self.labels(case, seed), failed=reason(error))
            rows.append(row)
            keep(rows)
            say(self.line(row))
        say(f"measured by {time.perf_counter() - start:.1f} s")
        return rows
