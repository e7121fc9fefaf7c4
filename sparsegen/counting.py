"""Exact counts of a kernel: of one pass of every program, since all passes are alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sparsegen.counts import LaunchCounts, of_program
from sparsegen.plan import Plan


@dataclass(frozen=True)
class Counts(Mapping[str, int]):
    """Counts of a call: ``counts[name]`` is the total over all launches, ``launches`` has each kind of launch once.

    ``steps``: the time steps of the call; 0 for a product, which has none.
    """

    launches: tuple[LaunchCounts, ...]
    steps: int

    @property
    def total(self) -> dict[str, int]:
        """Every count, summed over all launches of the call."""
        out: dict[str, int] = {}
        for launch in self.launches:
            for name, n in launch.counts.items():
                out[name] = out.get(name, 0) + n * launch.times
        return out

    @property
    def sampled(self) -> frozenset[str]:
        """The names of counts that are estimates: decided by the data, and so much of it that a sample stands for it.

        Only products with a matrix of more than 2^24 elements have any; all other counts are exact.
        """
        return frozenset[str]().union(*(launch.sampled for launch in self.launches))

    def __getitem__(self, name: str) -> int:
        return self.total[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.total)

    def __len__(self) -> int:
        return len(self.total)

    def __str__(self) -> str:
        lines: list[str] = []
        for launch in self.launches:
            lines.append(f"{launch.kernel}, launched {launch.times} time{'s' * (launch.times != 1)}; each:")
            lines += _lines(launch.counts, launch.sampled)
        lines.append(f"in all, {self.steps} time step{'s' * (self.steps != 1)}:" if self.steps else "in all:")
        return "\n".join([*lines, *_lines(self.total, self.sampled)])


def _lines(counts: Mapping[str, int], sampled: frozenset[str]) -> list[str]:
    return [f"  {name:<28} {n:>16,}{' (sampled)' * (name in sampled)}" for name, n in sorted(counts.items())]


def counts(plan: Plan, given: Mapping[str, Any]) -> Counts:
    """Counts of every launch of a plan.

    ``given``: the (flat) arrays of roles whose contents decide what is done, as a sparse matrix's do.
    """
    return Counts(tuple(c for program, times in plan.programs for c in of_program(program, times, given)), plan.steps)
