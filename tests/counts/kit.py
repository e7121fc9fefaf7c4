"""Random cases of every family, and what counts of theirs differ from those of a whole run on the emulator."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sparsegen.boundary import dirichlet, frozen, neumann, periodic
from sparsegen.cost.devices import load_profile
from sparsegen.counts import LaunchCounts, of_program
from sparsegen.dsl.stencil import Stencil
from sparsegen.families.base import named
from sparsegen.footprint import Footprint
from sparsegen.geometry import check
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.types import Buffer
from sparsegen.pipelines import Program, lower
from sparsegen.plan import SCRATCH, launches
from sparsegen.problems.stencil import StencilProblem
from sparsegen.run.emulator import COUNTING, run_module
from sparsegen.schedule import StencilSchedule

#: Few SMs, so that blocks that stay take many tiles of a small field.
H200 = dataclasses.replace(load_profile("h200"), sms=3)
SIDES: tuple[Any, ...] = (frozen, neumann, dirichlet(0.5), dirichlet(-1.0))
Case = tuple[Stencil, tuple[int, ...], StencilSchedule]
Sizes = Sequence[tuple[int, int]]
#: Of each family and number of axes: dtypes, sizes of which fields have many tiles, and knobs beyond its space.
FAMILIES: Mapping[tuple[str, int], tuple[str, Sizes, Mapping[str, Sequence[Any]]]] = {
    ("direct", 1): ("f64 f32 f16 bf16", [(900, 9000)], {"block": ((64, 1), (32, 1), (96, 1))}),
    ("direct", 2): ("f64 f32 f16 bf16", [(60, 200), (60, 300)], {"block": ((20, 6), (7, 9), (48, 2), (32, 4))}),
    ("direct", 3): ("f64 f32 f16", [(7, 14), (12, 40), (30, 120)], {"block": ((20, 6), (16, 2), (32, 4))}),
    ("tiled", 1): ("f64 f32 f16 bf16", [(900, 9000)], {"stages": (1, 2, 3)}),
    ("tiled", 2): ("f64 f32 f16 bf16", [(80, 200), (100, 300)], {"stages": (1, 2, 3), "tile": ((8, 32), (16, 32))}),
    ("stream", 1): ("f64 f32 f16 bf16", [(900, 9000)], {"cols": (2, 4, 8), "warps": (1, 2), "stages": (2, 3, 8)}),
    ("stream", 2): (
        "f64 f32 f16 bf16", [(60, 160), (200, 700)],
        {"cols": (2, 4, 6, 8), "rows": (None, 7, 12, 32), "warps": (1, 2), "stages": (2, 3, 8), "unroll": (1, 2)},
    ),
    ("patches", 2): (
        "f64", [(60, 160), (200, 600)],
        {"rows": (None, 10, 18, 34), "levels": (1, 2, 3), "strips": (1, 2), "warps": (1, 2), "stages": (2, 3, 8)},
    ),
    ("column", 3): (
        "f64 f32", [(6, 12), (30, 60), (100, 200)],
        {"planes": (1, 2, 4), "lines": (1, 2), "warps": (1, 2, 4), "stages": (2, 3)},
    ),
    ("layers", 3): (
        "f64 f32", [(6, 12), (30, 60), (100, 200)],
        {"planes": (1, 2, 4), "lines": (1, 2), "warps": (1, 2, 4), "stages": (2, 3)},
    ),
    ("march", 3): (
        "f64 f32", [(6, 12), (30, 60), (100, 200)],
        {"planes": (1, 2, 4), "lines": (1, 2), "block": ((32, 1), (32, 2), (64, 1))},
    ),
    ("slab", 3): (
        "f64 f32", [(6, 12), (30, 60), (60, 128)],
        {"planes": (1, 2, 4), "lines": (1, 2), "cols": (128,), "warps": (2, 4), "stages": (2, 3)},
    ),
    ("toeplitz", 1): (
        "f64", [(3000, 40000)], {"fuse": (1, 3, 7), "products": (4, 8), "warps": (1, 2), "stages": (2, 3)}
    ),
    ("lowrank", 2): (
        "f64", [(120, 240), (160, 320)], {"fuse": (1, 2), "stages": (1, 2, 3), "tile": ((16, 16), (16, 32), (32, 32))}
    ),
    ("stencil2row", 1): ("f64", [(20000, 60000)], {"stages": (1, 2, 3, 4), "lut": (False, True), "pad": (False, True)}),
    ("stencil2row", 2): (
        "f64", [(60, 160), (100, 400)],
        {"stages": (1, 2, 3, 4), "warps": (2, 4), "tile": ((8, 32), (4, 64), (8, 48)), "lut": (False, True),
         "dirty": (False, True), "pad": (False, True), "transform": ("implicit", "explicit")},
    ),
    ("stencil2row", 3): (
        "f64", [(4, 8), (16, 40), (60, 200)],
        {"stages": (1, 2, 3), "warps": (2, 4), "tile": ((8, 32), (4, 64), (8, 48)), "lut": (False, True),
         "transform": ("implicit", "explicit")},
    ),
}  # fmt: skip


def weights(draw: random.Random, family: str, axes: int) -> Any:
    """A box, a star, a box with holes, or one that is narrower on an axis; for ``lowrank`` a product of two rows."""
    edge = 2 * draw.choice((1, 1, 2) if axes == 3 else (1, 1, 2, 3)) + 1
    if family == "lowrank":
        w = np.outer(*([draw.uniform(0.2, 1.0) for _ in range(edge)] for _ in range(2)))
        return w / w.sum()
    w = np.array([draw.uniform(0.1, 1.0) for _ in range(edge**axes)]).reshape((edge,) * axes)
    kind, away = (
        draw.choice(("box", "star", "holes", "narrow")),
        np.count_nonzero(np.indices(w.shape) - edge // 2, axis=0),
    )
    if kind == "star":
        w[away > 1] = 0.0
    elif kind == "holes":
        w[np.array([draw.random() < 0.3 for _ in range(w.size)]).reshape(w.shape) & (away > 0)] = 0.0
    elif kind == "narrow" and edge > 3:
        w = w.take(range(1, edge - 1), axis=draw.randrange(axes))
    return w / w.sum()


def boundary(draw: random.Random, axes: int) -> Any:
    """One kind for all sides, or for each axis periodic or a kind for each end."""
    if draw.random() < 0.4:
        return draw.choice((periodic, *SIDES[:3]))
    ends = {axis: (draw.choice(SIDES), draw.choice(SIDES)) for axis in range(axes)}
    return {axis: periodic if draw.random() < 0.25 else pair for axis, pair in ends.items()}


def cases(family: str, axes: int, seed: object) -> Iterator[Case]:
    """Random cases that can run, without end; most of them with knobs beyond the family's space."""
    draw, (dtypes, sizes, knobs) = random.Random(f"{family} {axes} {seed}"), FAMILIES[family, axes]
    while True:
        dtype, w = draw.choice(dtypes.split()), weights(draw, family, axes)
        s = Stencil.from_weights(w, boundary(draw, axes), dtype=dtype).gridded
        shape = ((1,) if axes == 1 else ()) + tuple(draw.randint(*size) for size in sizes)
        if not (space := list(named(family).space(Footprint.of(s), 3))):
            continue
        schedule = draw.choice(space)
        try:
            if draw.random() < 0.7:
                schedule = schedule.but(**{n: draw.choice(values) for n, values in knobs.items()})
            yield s, shape, check(s, shape, schedule, H200)
        except ScheduleError:
            continue


def programs(family: str, axes: int, seed: object, pitch: int = 0) -> Iterator[tuple[str, Program]]:
    """Random cases lowered, with their names; rows ``pitch`` elements further apart than they are long."""
    for s, shape, schedule in cases(family, axes, seed):
        apart = shape[-1] + pitch, shape[-1] + pitch
        try:
            yield f"{s} {shape} {schedule}", lower(StencilProblem(s, shape), schedule, H200, schedule.steps, apart)
        except ScheduleError:
            continue


def whole(program: Program, given: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """The counts of each launch of a program, all of its blocks run on the emulator, on fields of zeros."""
    fields = dict(given)
    for bound in launches(program.warp):
        for param, role in bound.roles:
            if role not in program.warp.constants and not role.startswith(SCRATCH) and isinstance(param, Buffer):
                fields.setdefault(role, np.zeros(param.size, param.dtype.numpy()))
    return {name: dict(report.counts) for name, report in run_module(program.warp, fields, COUNTING)}


def differences(program: Program, found: Sequence[LaunchCounts], given: Mapping[str, Any]) -> list[str]:
    """What was counted otherwise than by a whole run."""
    want, got = whole(program, given), {launch.kernel: launch.counts for launch in found}
    assert want.keys() == got.keys()
    return [
        f"{kernel} {name}: {got[kernel].get(name, 0)}, a whole run has {theirs.get(name, 0)}"
        for kernel, theirs in want.items()
        for name in sorted({*theirs, *got[kernel]})
        if theirs.get(name, 0) != got[kernel].get(name, 0)
    ]


def wrong(program: Program, given: Mapping[str, Any] | None = None) -> list[str]:
    """What is counted otherwise than by a whole run; empty if all is equal."""
    given = given or {}
    return differences(program, of_program(program, 1, given), given)
