"""What a schedule is predicted to cost: seconds, the terms that they are made of, and the formula behind both."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from sparsegen.cost.arithmetic import NUMBERS, Arithmetic, symbols
from sparsegen.cost.devices import DeviceProfile
from sparsegen.notebook import block, table
from sparsegen.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Law:
    """How the time of a kind of kernel follows from numbers: of the problem, the schedule and the device."""

    #: Seconds and terms of a schedule and of values by the names of their symbols: floats, arrays or sympy's symbols,
    #: in their arithmetic.
    equations: Callable[[Any, Any, Arithmetic], tuple[Any, dict[str, Any]]]
    #: The formula's symbols, and what they are; other values are figures of the device.
    symbols: Mapping[str, str]
    #: One line of reason for every term.
    reasons: Mapping[str, str]
    #: Terms that add to the longest of the others, or lie beside it, and so bind nothing.
    beside: frozenset[str]
    #: The rate of a cost and its unit, for people to compare.
    rate: Callable[[Cost], float]
    unit: str = "GS/s"
    #: What binds where that is not the longest term; None where it is.
    binds: Callable[[Mapping[str, float], Mapping[str, float]], str | None] = lambda terms, values: None

    def evaluate(
        self, schedule: Schedule, values: dict[str, float], device: DeviceProfile, shape: tuple[int, ...],
        facts: Any = None, steps: int = 1,
    ) -> Cost:  # fmt: skip
        """The cost of one launch of a schedule, with the numbers behind the formula's symbols."""
        time, terms = self.equations(schedule, SimpleNamespace(**values), NUMBERS)
        binds = self.binds(terms, values) or max((n for n in terms if n not in self.beside), key=terms.__getitem__)
        return Cost(schedule, shape, time, terms, binds, steps, values, self, device, facts)


@dataclass(frozen=True)
class Cost:
    """The predicted cost of one launch.  ``terms`` are seconds; they overlap, so they do not add up to ``time``."""

    schedule: Any
    #: Cells of each axis of a grid (of each item of a batch), or M, K and n of a product.
    shape: tuple[int, ...]
    time: float
    terms: dict[str, float]
    #: The term that the time depends on most.
    binds: str
    steps_per_launch: int
    #: The numbers behind the formula's symbols.
    values: dict[str, float] = field(repr=False)
    law: Law = field(repr=False, compare=False)
    #: The device; of a batch what each item has of it.
    profile: DeviceProfile = field(repr=False)
    #: What the law knows of the problem: a stencil's footprint, an update, a product in numbers.
    facts: Any = field(repr=False)

    def __str__(self) -> str:
        """The schedule's line, its time and what binds it."""
        return f"{self.schedule}: {self.time_per_step * 1e6:.4g} µs a step, bound by {self.binds}"

    @property
    def cells(self) -> int:
        """Cells of all items of a grid."""
        return math.prod(self.shape) * self.profile.shares

    @property
    def blocks_per_sm(self) -> int:
        """Blocks that an SM runs at a time."""
        return int(self.values["b"])

    @property
    def time_per_step(self) -> float:
        """Seconds a time step (a product is one)."""
        return self.time / self.steps_per_launch

    @property
    def rate(self) -> float:
        """What people compare: GS/s (cells x time steps a second, in 1e9), or TB/s of a product's arrays."""
        return self.law.rate(self)

    @property
    def bandwidth(self) -> float:
        """Bytes a second of a product's arrays: of W's format (dense: of the dense matrix), x and y."""
        return self.rate * 1e12

    @property
    def flops(self) -> float:
        """Operations a second of a product, those with zeros included."""
        return 2.0 * math.prod(self.shape) / self.time

    @property
    def formula(self) -> Any:
        """``time`` as a sympy expression in the law's symbols; figures of the device are numbers in it.

        ``formula.xreplace(cost.substitution())`` is ``time``, by the same equations (so is ``subs``, in seconds).
        """
        import sympy

        known = self.law.symbols
        v = {name: sympy.Symbol(name) if name in known else sympy.sympify(x) for name, x in self.values.items()}
        return self.law.equations(self.schedule, SimpleNamespace(**v), symbols())[0]

    def substitution(self) -> dict[Any, Any]:
        """The formula's symbols and their numbers."""
        import sympy

        return {sympy.Symbol(name): sympy.sympify(x) for name, x in self.values.items() if name in self.law.symbols}

    def reasons(self) -> dict[str, str]:
        """Why each term is there, one line each."""
        return {name: self.law.reasons[name] for name in self.terms}


#: Schedules that a notebook shows of a list of them.
SHOWN = 20


class Costs(list[Cost]):
    """Predicted costs, cheapest first; shown in a line, and in a notebook as a table of the first ones."""

    def __repr__(self) -> str:
        best = f", cheapest {self[0]}" if self else ""
        return f"<{len(self)} schedules{best}>"

    def _repr_html_(self) -> str:
        rows = [[str(c.schedule), f"{c.time_per_step * 1e6:.4g}", f"{c.rate:.4g}", c.binds] for c in self[:SHOWN]]
        if len(self) > SHOWN:
            rows.append([f"… and {len(self) - SHOWN} more"])
        return block(f"{len(self)} schedules", table(("schedule", "µs a step", "rate", "bound by"), rows, (1, 2)))


def steps_rate(cost: Cost) -> float:
    """GS/s: cells x time steps a second, in 1e9."""
    return cost.cells / cost.time_per_step / 1e9
