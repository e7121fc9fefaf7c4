"""What a stencil reads outside its field: one :class:`Side` for each end of each axis.

The kinds are the contract's (ARCHITECTURE, "Meaning"); they hold at every time step.  With n cells along the axis:

=============  ====================================================================================================
periodic       index i reads i mod n; both ends of an axis are periodic, or neither
dirichlet(v)   every cell outside holds v, in the unit of the field
neumann        mirrored about the border's face: -1 reads 0, -2 reads 1, n reads n - 1
frozen         the cells within the stencil's radius of this end keep their values; nothing outside is ever read
=============  ====================================================================================================

A cell that lies outside on several axes: periodic and neumann map its index on their axes; where two axes are
dirichlet with different values, **the lowest axis wins** (a whole row outside axis 0 holds axis 0's value).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from sparsegen.ir.errors import BoundaryError

KINDS = ("periodic", "frozen", "neumann", "dirichlet")


@dataclass(frozen=True, repr=False)
class Side:
    """The boundary at one end of one axis; ``value`` is the cells' value outside, for dirichlet only."""

    kind: str
    value: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BoundaryError(f"unknown boundary {self.kind!r}", hint=f"one of {', '.join(KINDS)}")
        if not math.isfinite(self.value):
            raise BoundaryError(f"boundary value {self.value} is not finite", hint="give dirichlet a finite number")
        if self.kind != "dirichlet" and self.value != 0.0:
            raise BoundaryError(f"a {self.kind} boundary has no value, but got {self.value}", hint="use dirichlet(v)")
        object.__setattr__(self, "value", float(self.value) + 0.0)  # -0.0 becomes 0.0: equal sides print alike

    def __str__(self) -> str:
        return f"dirichlet({self.value!r})" if self.kind == "dirichlet" else self.kind

    __repr__ = __str__

    @classmethod
    def parse(cls, text: str) -> Side:
        """The side that prints as ``text``: ``Side.parse(str(side)) == side``."""
        kind, bracket, rest = text.strip().partition("(")
        if kind == "dirichlet" and bracket and rest.endswith(")"):
            try:
                return cls(kind, float(rest[:-1]))
            except ValueError:
                raise BoundaryError(f"the value of {text!r} is not a number", hint="as in dirichlet(0.0)") from None
        if bracket or kind == "dirichlet":
            raise BoundaryError(f"no boundary reads {text!r}", hint="periodic, frozen, neumann or dirichlet(0.0)")
        return cls(kind)


Sides: TypeAlias = tuple[tuple[Side, Side], ...]
"""(low end, high end) of each axis, in axis order."""


def describe(sides: Sides) -> str:
    """One line: ``periodic`` where all sides agree, else ``0: frozen|neumann, 1: periodic``."""
    if len({side for pair in sides for side in pair}) == 1:
        return str(sides[0][0])
    return ", ".join(
        f"{axis}: {low}" if low == high else f"{axis}: {low}|{high}" for axis, (low, high) in enumerate(sides)
    )
