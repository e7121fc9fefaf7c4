"""Time steps of a linear stencil on a grid."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from sparsegen.choose import Options, Rejected, Request
from sparsegen.cost.choice import choose
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.search import most_steps, ranked
from sparsegen.cost.stencil import blocks_per_sm, cost, filled
from sparsegen.cost.total import total_time
from sparsegen.dsl.stencil import Stencil, round_to
from sparsegen.families.base import family
from sparsegen.footprint import Footprint
from sparsegen.geometry import check, geometry, legalise, with_steps
from sparsegen.ir import op as o
from sparsegen.ir.boundary import Side, describe
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.module import Module
from sparsegen.ir.passes.manager import Pass
from sparsegen.ir.symbols import symbol
from sparsegen.ir.types import DTYPES
from sparsegen.problem import Problem, digest
from sparsegen.schedule import Schedule, StencilSchedule

#: Elements from row to row of the input and of the output.
Pitch = tuple[int, int]


def grid(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with at least two axes."""
    return shape if len(shape) > 1 else (1, *shape)


@dataclass(frozen=True)
class StencilProblem(Problem):
    """A stencil on fields of ``shape`` cells; a variant is the :data:`Pitch` of input and output."""

    op: ClassVar[str] = "stencil"
    what: Stencil
    shape: tuple[int, ...]

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape with at least two axes: a field of one axis is one row (see ``Stencil.gridded``)."""
        return grid(self.shape)

    @property
    def stencil(self) -> Stencil:
        """The stencil with at least two axes."""
        return self.what.gridded

    @cached_property
    def footprint(self) -> Footprint:
        """What schedules and costs have to know of the stencil."""
        return Footprint.of(self.stencil)

    def describe(self, variant: Hashable = None) -> Module:
        """The op level of one time step: the taps in row-major order, exactly as the weights have them."""
        stencil, shape = self.stencil, self.grid
        taps = tuple(
            (tuple(int(i) - r for i, r in zip(at, stencil.radius, strict=True)), float(stencil.weights[tuple(at)]))
            for at in np.argwhere(stencil.weights != 0.0)
        )

        def spec(side: Side) -> o.SideSpec:  # what a cell outside holds is a number of the field's type
            return side.kind, float(round_to(np.array([side.value]), stencil.dtype)[0])

        op = o.Stencil(
            symbol(stencil.name), shape, DTYPES[stencil.dtype], taps, stencil.radius,
            tuple((spec(low), spec(high)) for low, high in stencil.sides), tuple((0, n) for n in shape),
            variant or (shape[-1], shape[-1]), loc=stencil.loc,  # type: ignore[arg-type]
        )  # fmt: skip
        return Module(stencil.name, (op,))

    def passes(self, schedule: StencilSchedule, device: DeviceProfile, steps: int) -> list[Pass]:
        """Those of the family, with what is ``auto`` resolved for the grid."""
        fp = self.footprint
        s = schedule if steps == schedule.steps else schedule.but(fuse=steps)
        s = with_steps(schedule, steps, fp.k) if schedule.levelled else s
        s = filled(legalise(s, fp.k, fp.axes), fp, self.grid, device)
        g = geometry(s, fp)
        return family(s).passes(s, g, fp, device, blocks_per_sm(s, g, device, fp))

    def identity(self) -> dict[str, Any]:
        s = self.what
        return {
            "what": "stencil", "of": f"{s.points}-point {s.kind} {s.dtype}", "dtype": s.dtype,
            "extents": s.weights.shape, "weights": digest(s.weights.tobytes()), "sides": describe(s.sides),
            "shape": self.shape,
        }  # fmt: skip

    def seconds(self, cost: Cost, steps: int) -> float:
        """The time of all passes, a rest that does not fill one among them."""
        return total_time(cost, steps)

    def options(self, wanted: Schedule | None, device: DeviceProfile, request: Request) -> StencilOptions:
        """Every schedule; a line says all its words, so ``wanted`` has no say."""
        return _options(self, device, request)

    def price(self, schedule: StencilSchedule, device: DeviceProfile, request: Request) -> Cost:
        chosen = check(self.stencil, self.grid, schedule, device)
        if schedule.steps > request.steps:
            knobs = f"fuse={schedule.fuse}" + (f" levels={schedule.levels}" if schedule.levelled else "")
            raise ScheduleError(
                f"{knobs} does {schedule.steps} time steps at once, but steps={request.steps}",
                hint=f"compile for steps={schedule.steps} or more, or do {request.steps} at once",
            )
        if request.exact and chosen.widens:
            raise ScheduleError(
                f"a {chosen.family} schedule may spread a NaN or Inf to cells that the stencil does not reach",
                hint="choose direct or tiled, or nonfinite='any'",
            )
        return cost(self.footprint, self.grid, chosen, device)

    def none(self, device: DeviceProfile, options: Options, wanted: Schedule | None) -> ScheduleError:
        assert isinstance(options, StencilOptions)
        why = options.rejected[0].reason if options.rejected else "no candidates"
        if options.costs:
            why = f"none of the {len(options.costs)} that run has a pass for the steps that are left over"
        size, steps = "x".join(map(str, self.grid)), options.request.steps
        return ScheduleError(
            f"no schedule can run {steps} steps of {self.stencil.name} on {size} on {device.name}: {why}",
            hint="try another device, a larger shape, or backend='reference'",
        )


@dataclass(frozen=True)
class StencilOptions(Options):
    """The schedules of a stencil; the best is found without the cost of what cannot be it."""

    problem: StencilProblem
    device: DeviceProfile
    request: Request

    @cached_property
    def best(self) -> Cost | None:
        """The one that does all steps soonest."""
        p, steps = self.problem, self.request.steps
        extents, limit = p.stencil.weights.shape, min(steps, most_steps())
        return choose(p.footprint, self.device, p.grid, extents, steps, limit, self.request.exact)

    @cached_property
    def _ranking(self) -> Options:
        limit = min(self.request.steps, most_steps())
        return ranked(self.problem.stencil, self.problem.grid, limit, self.device, self.request.exact)

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """Every legal schedule of at most as many steps a pass, cheapest a time step first."""
        return self._ranking.costs

    @cached_property
    def rejected(self) -> tuple[Rejected, ...]:
        return self._ranking.rejected


_options = lru_cache(maxsize=64)(StencilOptions)
