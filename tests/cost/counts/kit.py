"""Counts by formula against the emulator's, for random stencils, shapes and schedules of a family."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsegen.boundary import dirichlet, frozen, neumann, periodic
from sparsegen.cost.counts import Pass, launches
from sparsegen.cost.devices import DeviceProfile, load_profile
from sparsegen.dsl.stencil import Stencil
from sparsegen.execute_emulator import run_pass
from sparsegen.families import named, stencil2row
from sparsegen.footprint import Footprint
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.types import DTYPES
from sparsegen.pipelines import lower
from sparsegen.schedule import StencilSchedule

#: Few SMs, so that blocks that stay take several tiles of a small field.
H200 = dataclasses.replace(load_profile("h200"), sms=3)
BOUNDARIES: tuple[Any, ...] = (periodic, frozen, neumann, dirichlet(0.5))


def weights(draw: random.Random, axes: int, radius: int) -> Any:
    """A box, a star, or a box with holes, of random weights; its middle is not zero."""
    edge = 2 * radius + 1
    w = np.array([draw.uniform(0.1, 1.0) for _ in range(edge**axes)]).reshape((edge,) * axes)
    kind = draw.choice(("box", "star", "holes"))
    away = np.count_nonzero(np.indices(w.shape) - radius, axis=0)
    if kind == "star":
        w[away > 1] = 0.0
    elif kind == "holes":
        w[np.array([draw.random() < 0.3 for _ in range(w.size)]).reshape(w.shape) & (away > 0)] = 0.0
    return w / w.sum()


def emulated(s: Stencil, shape: tuple[int, ...], schedule: StencilSchedule, device: DeviceProfile) -> list[Any]:
    """(kernel, counts) of each launch of a pass, by the emulator."""
    program = lower(s, shape, schedule, device, schedule.steps)
    _, reports = run_pass(program, np.zeros(shape, DTYPES[s.dtype].numpy()), checks=False)
    return [(name, dict(report.counts)) for name, report in reports]


def differences(
    s: Stencil, shape: tuple[int, ...], schedule: StencilSchedule, device: DeviceProfile = H200
) -> list[str]:
    """What the formula counts otherwise than the emulator; empty if all is equal."""
    want = emulated(s, shape, schedule, device)
    got = [(launch.kernel, dict(launch.counts)) for launch in launches(s, shape, schedule, device)]
    if [name for name, _ in got] != [name for name, _ in want]:
        return [f"launches {[n for n, _ in got]}, the emulator has {[n for n, _ in want]}"]
    return [
        f"{kernel} {name}: formula {mine.get(name, 0)}, emulator {theirs.get(name, 0)}"
        for (kernel, mine), (_, theirs) in zip(got, want, strict=True)
        for name in sorted({*mine, *theirs})
        if mine.get(name, 0) != theirs.get(name, 0)
    ]


def draws(
    family: str, axes: int, trials: int, sizes: Sequence[tuple[int, int]], seed: str = "", dtypes: str = "f64 f64 f32",
    boundaries: Sequence[Any] = BOUNDARIES, radii: Sequence[int] = (1, 1, 2, 3),
) -> list[tuple[Stencil, tuple[int, ...], StencilSchedule]]:  # fmt: skip
    """Random legal cases of a family: the schedule uniform over its space, sizes of each axis in a range."""
    draw = random.Random(f"{family} {axes} {seed}")
    out: list[tuple[Stencil, tuple[int, ...], StencilSchedule]] = []
    while len(out) < trials:
        dtype, boundary = draw.choice(dtypes.split()), draw.choice(boundaries)
        w = weights(draw, axes, draw.choice(radii)).astype("float32" if dtype == "f32" else "float64")
        s = Stencil.from_weights(w, boundary, dtype=dtype).gridded
        shape = ((1,) if axes == 1 else ()) + tuple(draw.randint(*size) for size in sizes)
        fp = Footprint.of(s)
        every = [*(stencil2row.space(fp, 8, True) if family == "stencil2row" else named(family).space(fp, 8))]
        for _ in range(20):
            try:
                p = Pass.of(s, shape, draw.choice(every), H200)
            except (ScheduleError, IndexError):
                continue
            out.append((s, shape, p.schedule))
            break
    return out
