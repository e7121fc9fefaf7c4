"""Time steps of a linear stencil on a grid."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from sparsegen.batch import Batch
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
from sparsegen.ir.errors import ScheduleError, StencilError
from sparsegen.ir.module import Module
from sparsegen.ir.passes.manager import Pass
from sparsegen.ir.symbols import symbol
from sparsegen.ir.types import DTYPES
from sparsegen.problem import Problem, digest, of_batch
from sparsegen.problems.stencil_update import StencilUpdate
from sparsegen.problems.update import UpdateProblem, tried, updating
from sparsegen.registry import families
from sparsegen.schedule import Schedule, StencilSchedule
from sparsegen.sizes import ITEMSIZE

#: Elements from row to row of the input and of the output.
Pitch = tuple[int, int]


def own_and_others() -> tuple[str, ...]:
    """The families of a stencil's schedules: its own, and those of updates that are tried for it."""
    return (*families("stencil"), *(own.name for own in updating(linear=True)))


def grid(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with at least two axes."""
    return shape if len(shape) > 1 else (1, *shape)


@dataclass(frozen=True)
class StencilProblem(Problem):
    """A stencil on fields of ``shape`` cells; a variant is the :data:`Pitch` of input and output."""

    op: ClassVar[str] = "stencil"
    what: Stencil
    shape: tuple[int, ...]
    batch: Batch | None = field(default=None, kw_only=True)

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape with at least two axes: a field of one axis is one row (see ``Stencil.gridded``)."""
        return grid(self.shape)

    @property
    def stencil(self) -> Stencil:
        """The stencil with at least two axes."""
        return self.what.gridded

    @property
    def takes(self) -> tuple[str, ...]:
        return self.op, UpdateProblem.op

    @cached_property
    def update(self) -> StencilUpdate | None:
        """The same steps as those of an update; None where it would compute something else: 16-bit fields are rounded
        at every step of an update, and its frozen sides keep no more cells than weights reach."""
        if ITEMSIZE[self.what.dtype] < ITEMSIZE["f32"]:
            return None
        try:
            return StencilUpdate(self.what.as_update(), self.shape, self, batch=self.batch)
        except StencilError:
            return None

    def under(self, schedule: Schedule) -> Problem:
        return (self.update or self) if schedule.op == UpdateProblem.op else self

    def at(self, shape: tuple[int, ...]) -> StencilProblem:
        """The same on fields of another shape."""
        return replace(self, shape=shape)

    def of_batch(self, batch: Batch) -> StencilProblem:
        if batch.shared:
            raise StencilError(
                f"shared={', '.join(batch.shared)}: a stencil has no coefficients that items could share",
                hint="leave shared away",
            )
        batch.fits(self.shape)
        return replace(self, batch=batch)

    def sooner(self, cost: Cost | None, device: DeviceProfile, steps: int) -> Cost | None:
        """A schedule's cost, or that of the one for updates that does all steps sooner; ``device``: an item's share."""
        if self.update is None:
            return cost
        time = math.inf if cost is None else self.seconds(cost, steps)
        if all(own.least(self.update.what, self.shape, device, steps) >= time for own in updating(linear=True)):
            return cost
        best = tried(self.update, device, steps, linear=True).best
        return best if best is not None and self.update.seconds(best, steps) < time else cost

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
            "shape": self.shape, **of_batch(self.batch),
        }  # fmt: skip

    def seconds(self, cost: Cost, steps: int) -> float:
        """The time of all passes, a rest that does not fill one among them."""
        if self.update is not None and cost.schedule.op == UpdateProblem.op:
            return self.update.seconds(cost, steps)
        return total_time(cost, steps)

    def options(self, wanted: Schedule | None, device: DeviceProfile, request: Request) -> StencilOptions:
        """Every schedule; a line says all its words, so ``wanted`` has no say."""
        return _options(self, device.share(self.items), request)

    def price(self, schedule: Any, device: DeviceProfile, request: Request) -> Cost:
        if schedule.op == UpdateProblem.op:
            return self._updating(schedule).price(schedule, device, request)
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
        return cost(self.footprint, self.grid, chosen, device.share(self.items))

    def _updating(self, schedule: Schedule) -> StencilUpdate:
        """The problem of a schedule for updates; ScheduleError where the stencil is none."""
        if self.update is None:
            raise ScheduleError(
                f"{schedule.family} does steps of updates, and {self.what.name} is none: its fields have 16 bits or "
                "fewer, which an update rounds at every step, or a frozen side keeps more cells than its weights reach",
                hint="take a schedule of stencils, or sg.compile(stencil.as_update(), ...) where that is meant",
            )
        return self.update

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
        own = choose(p.footprint, self.device, p.grid, extents, steps, limit, self.request.exact)
        return p.sooner(own, self.device, steps)

    @cached_property
    def _rankings(self) -> list[Options]:
        """Those of a stencil's own schedules, and of those for updates."""
        p, steps = self.problem, self.request.steps
        own = ranked(p.stencil, p.grid, min(steps, most_steps()), self.device, self.request.exact)
        return [own, *([tried(p.update, self.device, steps, linear=True)] if p.update else [])]

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """Every legal schedule of at most as many steps a pass, cheapest a time step first."""
        every = (c for ranking in self._rankings for c in ranking.costs)
        return tuple(sorted(every, key=lambda c: round(c.time_per_step, 12)))

    @cached_property
    def rejected(self) -> tuple[Rejected, ...]:
        return tuple(r for ranking in self._rankings for r in ranking.rejected)


_options = lru_cache(maxsize=64)(StencilOptions)
