"""Boundaries of the tests of counts: every kind on all sides, and different kinds and numbers on different sides."""

from __future__ import annotations

from typing import Any

from sparsegen.boundary import dirichlet, frozen, neumann, periodic
from tests.cost.counts.kit import BOUNDARIES

#: (low side, high side) of an axis.
PAIRS: tuple[Any, ...] = (
    (periodic, periodic), (frozen, neumann), (dirichlet(0.5), dirichlet(0.25)), (neumann, dirichlet(1.0)),
    (dirichlet(0.5), frozen), (dirichlet(0.5), dirichlet(0.5)),
)  # fmt: skip


def mixed(axes: int) -> tuple[Any, ...]:
    """Each pair on the first axis, and the others in turn on those after it."""
    return tuple({axis: PAIRS[(i + 2 * axis) % len(PAIRS)] for axis in range(axes)} for i in range(len(PAIRS)))


def every(axes: int) -> tuple[Any, ...]:
    """Those of one kind and the mixed ones."""
    return (*BOUNDARIES, *mixed(axes))


def closed(axes: int) -> tuple[Any, ...]:
    """Those that leave something to a rim: not periodic everywhere."""
    return every(axes)[1:]
