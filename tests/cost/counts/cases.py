"""Random cases of a family, in its space and beyond: other knobs, other sides, weights that reach unequally far."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparsegen.boundary import dirichlet, frozen, neumann, periodic
from sparsegen.cost.counts import Pass
from sparsegen.dsl.stencil import Stencil
from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import StencilSchedule
from tests.cost.counts.kit import BOUNDARIES, H200, differences, draws

Case = tuple[Stencil, tuple[int, ...], StencilSchedule]
Knobs = Mapping[str, Sequence[Any]]
_PAIRS = (periodic, (frozen, neumann), (dirichlet(0.5), frozen), (neumann, dirichlet(-1.0)), (frozen, frozen))


def boundaries(axes: int) -> Sequence[Any]:
    """One kind everywhere, and different ones on different sides and axes."""
    mixed = [{axis: _PAIRS[(i + axis * (i + 1)) % len(_PAIRS)] for axis in range(axes)} for i in range(len(_PAIRS))]
    return (*BOUNDARIES, *mixed)


def cases(
    family: str, axes: int, sizes: Sequence[tuple[int, int]], dtypes: str, knobs: Knobs, trials: int = 26
) -> list[Case]:
    """Random legal cases of a family, every other one with ``knobs`` that its space leaves alone."""
    found = draws(family, axes, trials, sizes, dtypes=dtypes, boundaries=boundaries(axes))
    return [*found[::2], *_varied(found[1::2], random.Random(f"{family} {axes}"), knobs)]


def _varied(found: Iterable[Case], draw: random.Random, knobs: Knobs) -> Iterator[Case]:
    """The cases with knobs at random, some with weights that reach less far on one axis, where that is legal."""
    for s, shape, schedule in found:
        for _ in range(20):
            axis = draw.choice([axis for axis, n in enumerate(s.weights.shape) if n > 1])
            part = tuple(slice(1, -1) if a == axis else slice(None) for a in range(s.ndim))
            even = draw.random() < 0.7 or not s.weights[part].any()
            t = s if even else replace(s, weights=s.weights[part])
            try:
                other = replace(schedule, **{name: draw.choice(values) for name, values in knobs.items()})
                yield t, shape, Pass.of(t, shape, other, H200).schedule
            except ScheduleError:
                continue
            break


def compare(every: Sequence[Case]) -> None:
    """AssertionError that names the cases whose counts differ from the emulator's, and the counts."""
    wrong = [
        f"{'x'.join(map(str, shape))} {s.dtype} radius {s.radius} {s.sides} {schedule}:\n    " + "\n    ".join(found)
        for s, shape, schedule in every
        if (found := differences(s, shape, schedule))
    ]
    assert not wrong, f"{len(wrong)} of {len(every)} cases differ:\n" + "\n".join(wrong)
