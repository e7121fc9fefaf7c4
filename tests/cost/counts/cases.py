"""Random cases beyond a family's space of schedules: sides of different kinds, weights that are not square."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from sparsegen.boundary import dirichlet, frozen, neumann, periodic
from sparsegen.cost.counts import Pass
from sparsegen.dsl.stencil import Stencil
from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import StencilSchedule
from tests.cost.counts.kit import BOUNDARIES, H200, differences

Case = tuple[Stencil, tuple[int, ...], StencilSchedule]
SIDES: tuple[Any, ...] = (frozen, neumann, dirichlet(0.5), dirichlet(-1.0))


def boundary(draw: random.Random, axes: int) -> Any:
    """One kind for all sides, or for each axis periodic or a kind for each end."""
    if draw.random() < 0.4:
        return draw.choice(BOUNDARIES)
    ends = {axis: (draw.choice(SIDES), draw.choice(SIDES)) for axis in range(axes)}
    return {axis: periodic if draw.random() < 0.25 else pair for axis, pair in ends.items()}


def drawn(seed: str, trials: int, one: Callable[[random.Random], Case]) -> list[Case]:
    """So many cases that can run, of those that ``one`` makes up."""
    draw, out = random.Random(seed), list[Case]()
    while len(out) < trials:
        try:
            s, shape, schedule = one(draw)
            out.append((s, shape, Pass.of(s, shape, schedule, H200).schedule))
        except ScheduleError:
            continue
    return out


def wrong(cases: list[Case]) -> dict[str, list[str]]:
    """The cases that the formulas count otherwise than the emulator, and what of them."""
    found = {f"{s} {shape} {schedule}": differences(s, shape, schedule) for s, shape, schedule in cases}
    return {case: lines for case, lines in found.items() if lines}
