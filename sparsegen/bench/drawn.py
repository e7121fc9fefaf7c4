"""Random updates for suite ``regret``: part ``updates`` of usual sizes, part ``small`` of fields that may stay on chip.

A formula spreads each field over its neighbours, lets it react with the others, and may carry coefficients and earlier
levels, as waves, reactions and flows do.  In part ``small`` half are linear stencils.

A formula whose numbers run away before its last step is drawn anew: what comes of it could not be compared.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np

import sparsegen as sg
from sparsegen.backends.reference.update import run
from sparsegen.bench import update_run
from sparsegen.bench.regret import StencilProblem, between, drawn_stencil
from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.compiler import described
from sparsegen.dsl.update import Update

#: part -> cells, before STRETCH changes each axis of several; time steps.
CELLS: Final = {"updates": (1 << 20, 1 << 26), "small": (1 << 12, 1 << 20)}
STEPS: Final = {"updates": (1, 50), "small": (20, 2000)}
STRETCH: Final = (0.6, 1.6)
#: Of a part, the share of linear stencils.
LINEAR: Final = {"updates": 0.0, "small": 0.5}
#: About the most cells whose numbers are worked out in NumPy: enough for the random ones next to one another that run
#: away first, where a large field takes minutes.
TRIED: Final = 1 << 14
#: Time levels of each field.
LEVELS: Final = ((1,), (1,), (2,), (2,), (3,), (1, 1), (1, 1), (2, 1), (1, 1, 1))
#: By the number of axes: the radius of the star that a field spreads over.
REACHES: Final = {1: (1, 2, 3, 4), 2: (1, 1, 1, 2, 4), 3: (1, 1, 2, 4)}
SIDES: Final[tuple[BoundarySpec, ...]] = (periodic, periodic, periodic, frozen, neumann, dirichlet(0.25))
#: What a field's formula may have besides: of a cell, and of the same cell of the next field.
REACTIONS: Final[tuple[Callable[[Any, Any], Any], ...]] = (
    lambda a, b: 0.02 * (a * (1 - a) * (a - 0.1) - b), lambda a, b: 0.05 * (1 - a) - 0.1 * a * b * b,
    lambda a, b: 0.02 * a / (1 + b * b), lambda a, b: 0.01 * sg.sqrt(abs(a * b)), lambda a, b: 0.02 * sg.min(a, b),
    lambda a, b: sg.where(a > b, 0.01 * b, 0.02 * a), lambda a, b: -0.2 * a * b,
)  # fmt: skip


@dataclass(frozen=True)
class UpdateProblem:
    """``steps`` time steps of an update that ``told`` says in words."""

    name: str
    told: str
    update: Update
    shape: tuple[int, ...]
    steps: int


def problems(part: str, seed: int, count: int) -> list[StencilProblem | UpdateProblem]:
    """Those of a part of a seed."""
    draw = random.Random(f"{part} {seed}")
    drawn = [problem(draw, part, f"{part[0]}{i + 1}") for i in range(count)]
    return [settled(p, part, seed) for p in drawn]


def settled(p: StencilProblem | UpdateProblem, part: str, seed: int) -> StencilProblem | UpdateProblem:
    """A problem, or where its numbers run away the first of others whose numbers do not.

    They come of a generator of their own, so that the problems behind it are what they would be without.
    """
    again = random.Random(f"{part} {seed} {p.name} again")
    while isinstance(p, UpdateProblem) and not bounded(p, seed):
        p = problem(again, part, p.name)
    return p


def bounded(p: UpdateProblem, seed: int) -> bool:
    """Whether all numbers are finite after the problem's steps, in NumPy with random input as it is measured with; of a
    large field with those of a small one."""
    edge = round(TRIED ** (1 / len(p.shape)))
    shape = tuple(max(min(n, edge), extent) for n, extent in zip(p.shape, p.update.extents, strict=True))
    given = update_run.random(p.update, shape, np.dtype(f"f{int(p.update.dtype[1:]) // 8}"), seed)
    fields = {name: given[name] if levels > 1 else (given[name],) for name, levels in p.update.fields}
    op: Any = described(p.update, shape, p.steps, "any")[0].describe().funcs[0]
    new = run(op, fields, {name: given[name] for name in p.update.coefs}, p.steps)
    return all(math.isfinite(float(np.abs(a).max())) for levels in new.values() for a in levels)


def problem(draw: random.Random, part: str, name: str) -> StencilProblem | UpdateProblem:
    """An update on one to three axes; half have sizes that 32 divides."""
    axes = draw.choice((1, 2, 2, 3))
    edge, whole = between(draw, *CELLS[part]) ** (1 / axes), draw.random() < 0.5
    sizes = [edge * between(draw, *STRETCH) ** (axes > 1) for _ in range(axes)]
    shape = tuple(max(32, round(n / 32) * 32) if whole else round(n) for n in sizes)
    steps = round(between(draw, *STEPS[part]))
    if draw.random() < LINEAR[part]:
        return StencilProblem(name, drawn_stencil(draw, axes), shape, steps)
    return UpdateProblem(name, *update(draw, axes), shape, steps)


def update(draw: random.Random, axes: int) -> tuple[str, Update]:
    """An update of one to three fields, some with levels, some with a coefficient: in words, and as such."""
    levels, coef, radius = draw.choice(LEVELS), draw.random() < 0.4, draw.choice(REACHES[axes])
    box = axes > 1 and radius == 1 and draw.random() < 0.3
    near, here = _box(axes) if box else _star(axes, radius), (0,) * axes
    shares = [[draw.uniform(0.5, 1.0) for _ in near] for _ in levels]
    # one field has a reaction, else it would be a linear stencil
    terms = [draw.sample(REACTIONS, draw.randint(len(levels) == 1, 2)) for _ in levels]

    def drawn(*given: Any) -> Any:
        fields, out = given[: len(levels)], []
        for at, field in enumerate(fields):
            around = sum(share * field[to] for share, to in zip(shares[at], near, strict=True)) / sum(shares[at])
            new = field[here] + (0.1 * given[-1][here] if coef else 0.2) * (around - field[here])
            past = field
            for _ in range(levels[at] - 1):
                past = past.prev
                new = new + 0.2 * (field[here] - past[here])
            other = fields[(at + 1) % len(fields)]
            for term in terms[at]:
                new = new + term(field[here], other[here])
            out.append(new)
        return tuple(out) if len(out) > 1 else out[0]

    words = {name: sg.Field(levels=n) for name, n in zip("uvw", levels, strict=False)}
    taken = [*words.items(), ("c", sg.Coef())][: len(words) + coef]
    ordinary = inspect.Parameter.POSITIONAL_OR_KEYWORD
    drawn.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, ordinary, annotation=kind) for name, kind in taken]
    )
    made = sg.stencil(dtype=draw.choice(("f64", "f32")), boundary=draw.choice(SIDES))(drawn)
    assert isinstance(made, Update)
    told = f"{'box' if box else 'star'}_{axes}d_r{radius}, levels {'+'.join(map(str, levels))}"
    return f"{told}{', coefficient' * coef}, terms {'+'.join(str(len(each)) for each in terms)}", made


def _star(axes: int, radius: int) -> list[tuple[int, ...]]:
    """The neighbours along the axes, up to a radius."""
    far = [at for at in range(-radius, radius + 1) if at]
    return [tuple(at if axis == i else 0 for i in range(axes)) for axis in range(axes) for at in far]


def _box(axes: int) -> list[tuple[int, ...]]:
    """All neighbours that touch a cell."""
    return [at for at in product((-1, 0, 1), repeat=axes) if any(at)]
