"""Random cases of a family, in its space and beyond: other knobs, other sides, weights that reach unequally far."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparsegen.dsl.stencil import Stencil
from sparsegen.families import named
from sparsegen.footprint import Footprint
from tests.cost.counts.cases import Case, boundary, drawn, wrong
from tests.cost.counts.kit import weights

Knobs = Mapping[str, Sequence[Any]]


def agree(
    family: str, axes: int, sizes: Sequence[tuple[int, int]], dtypes: str, knobs: Knobs, trials: int = 26,
    radii: Sequence[int] = (1, 1, 2, 3),
) -> None:  # fmt: skip
    """Asserts that formula and emulator count the same in random cases, half of them with ``knobs`` at random."""

    def one(draw: random.Random) -> Case:
        w, dtype = weights(draw, axes, draw.choice(radii)), draw.choice(dtypes.split())
        if axes > 1 and w.shape[0] > 1 and draw.random() < 0.2:
            w = w.take(range(1, w.shape[0] - 1), axis=draw.randrange(axes))
        s = Stencil.from_weights(w, boundary(draw, axes), dtype=dtype).gridded
        shape = ((1,) if axes == 1 else ()) + tuple(draw.randint(*size) for size in sizes)
        schedule = draw.choice(list(named(family).space(Footprint.of(s), 8)))
        if draw.random() < 0.5:
            schedule = replace(schedule, **{name: draw.choice(values) for name, values in knobs.items()})
        return s, shape, schedule

    assert not wrong(drawn(f"{family} {axes}", trials, one))
