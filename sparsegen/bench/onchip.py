"""Part ``onchip`` of suite ``updates``: fields that fit into the registers of a GPU, all steps of a call in one launch.

Linear stencils as updates, periodic, their weights all different, against figures for an H200 and the floor by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

import sparsegen as sg
from sparsegen.bench.stencil_run import Case
from sparsegen.dsl.update import Update

#: Time steps of a call.
STEPS: Final = 1000
#: Calls back to back that are timed together: starting one from Python takes a tenth of the time of a small field's.
CALLS: Final = 10
#: What the floor calls a stencil of so many points.
_CALLED: Final = {"Heat-2D": "5pt", "Box-2D9P": "9pt", "Heat-3D": "7pt"}


@dataclass(frozen=True)
class Small:
    """A stencil on a field that stays on chip, of ``edge`` cells along each axis: GS/s at least and hoped for on an
    H200."""

    name: str
    dtype: str
    edge: int
    least: float | None = None
    aim: float | None = None


FIELDS: Final = (
    Small("Heat-2D", "f64", 256, 175, 260), Small("Heat-2D", "f64", 512, 405, 600),
    Small("Heat-2D", "f64", 1024, 715, 1100), Small("Heat-2D", "f32", 256, 245, 350),
    Small("Heat-2D", "f32", 1024, 1150, 1700), Small("Heat-2D", "f32", 2048, 1440, 2000),
    Small("Box-2D9P", "f64", 256, 132, 200), Small("Box-2D9P", "f64", 512), Small("Box-2D9P", "f64", 1024, 525, 800),
    Small("Heat-3D", "f64", 64, 150, 260), Small("Heat-3D", "f32", 128, 610, 1000),
)  # fmt: skip


def axes(name: str) -> int:
    """Those of a stencil's field."""
    return int(name.split("-")[1][0])


@cache
def update(name: str, dtype: str) -> Update:
    """A stencil by its name: weights of a sum of one that are all different."""
    shape = (3,) * axes(name)
    far = np.abs(np.indices(shape) - 1).sum(0)
    weights = np.where(far == 0, 4.0, 1.0) * (1 + 0.01 * np.arange(far.size).reshape(shape))
    if name.startswith("Heat"):
        weights[far > 1] = 0.0
    made: Update = sg.Stencil.from_weights(weights / weights.sum(), name="small", dtype=dtype).as_update()
    return made


def cases() -> list[Case]:
    """The cases, in the order of FIELDS."""
    return [
        Case(
            f"{of.name} {of.dtype}", update(of.name, of.dtype), (of.edge,) * axes(of.name), STEPS, "resident",
            target=of.least, aim=of.aim, floor=f"{_CALLED[of.name]} {of.dtype} {of.edge}^{axes(of.name)}",
            part="onchip",
        )
        for of in FIELDS
    ]  # fmt: skip
