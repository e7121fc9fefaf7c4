"""Time steps of a general update on a grid."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from sparsegen.choose import Listed, Request
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.update import cost
from sparsegen.dsl.update import Update
from sparsegen.families.pointwise import candidates
from sparsegen.ir import op_update as o
from sparsegen.ir.boundary import Sides, describe
from sparsegen.ir.kernels.pointwise import Pointwise
from sparsegen.ir.module import Module
from sparsegen.ir.op import Sides as SideSpecs
from sparsegen.ir.passes.manager import Pass
from sparsegen.ir.symbols import symbol
from sparsegen.ir.types import DTYPES
from sparsegen.problem import Problem, digest
from sparsegen.schedule import Schedule, UpdateSchedule
from sparsegen.sizes import ITEMSIZE


@dataclass(frozen=True)
class UpdateProblem(Problem):
    """An update on fields of ``shape`` cells.

    A variant has the elements from row to row of each array that a step reads (each field's levels, newest first, then
    the coefficients), then of each field's new level.
    """

    op: ClassVar[str] = "update"
    what: Update
    shape: tuple[int, ...]

    @property
    def grid(self) -> tuple[int, ...]:
        return self.shape

    def describe(self, variant: Hashable = None) -> Module:
        update, shape = self.what, self.shape
        arrays = len(o.parameters(update.fields, update.coefs)) + len(update.fields)
        op = o.Update(
            symbol(update.name), shape, DTYPES[update.dtype], update.fields, update.coefs, update.code, update.results,
            update.radius, tuple(map(_specs, update.sides)), _specs(update.coef_sides),
            variant or (shape[-1],) * arrays, loc=update.loc,  # type: ignore[arg-type]
        )  # fmt: skip
        return Module(update.name, (op,))

    def passes(self, schedule: UpdateSchedule, device: DeviceProfile, steps: int) -> list[Pass]:
        """A thread works a column of a few cells out."""
        return [Pointwise(1, schedule.block[1], schedule.block[0], schedule.column)]

    def identity(self) -> dict[str, Any]:
        update = self.what
        return {
            "what": "update", "of": f"of {', '.join(name for name, _ in update.fields)} {update.dtype}",
            "dtype": update.dtype, "formula": digest(repr((update.parameters, update.code, update.results)).encode()),
            "sides": [describe(sides) for sides in update.sides], "shape": self.shape,
        }  # fmt: skip

    def options(self, wanted: Schedule | None, device: DeviceProfile, request: Request) -> Listed:
        return _options(self, device)

    def price(self, schedule: UpdateSchedule, device: DeviceProfile, request: Request) -> Cost:
        return cost(self.what, self.shape, schedule, device)


#: Blocks an SM that a schedule with several cells a thread must leave: fewer threads hide less latency.
_BLOCKS_AN_SM = 8
#: 32-bit registers that the numbers read for several cells may take.
_REGISTERS = 64
#: Nodes of the formula that a thread with several cells may work out: code that is longer takes nvcc long.
_NODES = 2000


def _fits(c: Cost, update: Update, shape: tuple[int, ...], device: DeviceProfile) -> bool:
    """Whether a schedule with several cells a thread leaves enough threads, registers and nodes."""
    s = c.schedule
    if s.column == 1:
        return True
    return bool(
        update.ndim > 1
        and shape[-2] >= s.block[1] * s.column
        and len(update.code) * s.column <= _NODES
        and c.values["loads"] * s.column * ITEMSIZE[update.dtype] // 4 <= _REGISTERS
        and math.prod(shape) >= s.threads * s.column * _BLOCKS_AN_SM * device.sms
    )


@lru_cache(maxsize=64)
def _options(problem: UpdateProblem, device: DeviceProfile) -> Listed:
    """Those that are tried and fit; of equally cheap ones that whose other units have least to do comes first."""
    update, shape = problem.what, problem.shape
    found = (c for s in candidates() if _fits(c := cost(update, shape, s, device), update, shape, device))
    return Listed(tuple(sorted(found, key=lambda c: (c.time, sum(c.terms.values())))))


def _specs(sides: Sides) -> SideSpecs:
    return tuple(((low.kind, low.value), (high.kind, high.value)) for low, high in sides)
