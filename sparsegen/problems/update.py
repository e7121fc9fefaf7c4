"""Time steps of a general update on a grid."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any, ClassVar, NamedTuple, cast

from sparsegen.batch import Batch
from sparsegen.choose import Listed, Options, Rejected, Request
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.terms import STARTING
from sparsegen.cost.total import saved
from sparsegen.dsl.sites import Sites
from sparsegen.dsl.update import Update
from sparsegen.families.update.base import UpdateFamily, family
from sparsegen.families.update.sites import AGAIN, HELD, held_site_seconds, site_pass, site_seconds, with_sites
from sparsegen.ir import op_update as o
from sparsegen.ir.boundary import Sides, describe
from sparsegen.ir.errors import ScheduleError, StencilError
from sparsegen.ir.module import Module
from sparsegen.ir.op import Sides as SideSpecs
from sparsegen.ir.op_sites import Placed, signal
from sparsegen.ir.passes.manager import Pass
from sparsegen.ir.symbols import symbol
from sparsegen.ir.types import DTYPES
from sparsegen.problem import Problem, digest, of_batch
from sparsegen.registry import families
from sparsegen.schedule import Schedule, UpdateSchedule
from sparsegen.sizes import ITEMSIZE, padded_pitch


class Layouts(NamedTuple):
    """How arrays of a pass lie in memory: elements from row to row of each, ghosts beside each row (none: ()), whether
    what lies behind the cells of a row is nobody's (of no array: ())."""

    pitch: tuple[int, ...]
    ghosts: tuple[int, ...] = ()
    spare: tuple[bool, ...] = ()


@dataclass(frozen=True)
class UpdateProblem(Problem):
    """An update on fields of ``shape`` cells.

    A variant has the elements from row to row of each array that a step reads (each field's levels, newest first, then
    the coefficients), then of each field's levels where a pass writes them; or it is their :class:`Layouts`.
    """

    op: ClassVar[str] = "update"
    what: Update
    shape: tuple[int, ...]
    batch: Batch | None = field(default=None, kw_only=True)
    #: Whether its steps go from the last one to the first.
    backwards: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for group in self.what.sites:
            group.check(self.shape, self._sides(group), self.what.loc)

    def _sides(self, group: Sites) -> Sides:
        """The boundary of the field that sites are in."""
        return self.what.sides[[name for name, _ in self.what.fields].index(group.field)]

    @property
    def grid(self) -> tuple[int, ...]:
        return self.shape

    def describe(self, variant: Hashable = None) -> Module:
        update, shape = self.what, self.shape
        arrays = len(o.parameters(update.fields, update.coefs)) + len(o.parameters(update.fields, ()))
        layouts = variant if isinstance(variant, Layouts) else Layouts(variant or (shape[-1],) * arrays)  # type: ignore[arg-type]
        op = o.Update(
            symbol(update.name), shape, DTYPES[update.dtype], update.fields, update.coefs, update.code, update.results,
            update.radius, tuple(map(_specs, update.sides)), _specs(update.coef_sides),
            layouts.pitch, loc=update.loc, ghosts=layouts.ghosts, spare=layouts.spare,
            sources=_groups(update.sources), receivers=_groups(update.receivers),
            backwards=self.backwards and bool(update.sites),
        )  # fmt: skip
        tables = dict[str, Any]()
        for group in update.sites:
            tables |= self.placed[group.name].tables(op.symbol, group.name)
        return Module(update.name, (op,), constants=tables)

    @cached_property
    def placed(self) -> dict[str, Placed]:
        """The cells around the points of each group of sites."""
        return {group.name: group.placed(self.shape, self._sides(group)) for group in self.what.sites}

    def passes(self, schedule: UpdateSchedule, device: DeviceProfile, steps: int) -> list[Pass]:
        own = family(schedule).passes(self.what, self.shape, schedule, device, steps)
        return [*([] if family(schedule).whole else self._site_passes(device, steps)), *own]

    def _site_passes(self, device: DeviceProfile, steps: int) -> list[Pass]:
        """What puts kernels for its sites behind a pass of so many steps."""
        if not self.what.sites:
            return []
        if (found := site_pass(self.what, self.shape, steps, device, self.backwards)) is None:
            why, hint = _no_windows(self.what, steps)
            raise ScheduleError(why, hint=hint)
        return [found]

    def misfit(self, s: UpdateSchedule, device: DeviceProfile) -> tuple[str, str] | None:
        """Why a schedule cannot run there, and what would help; None if it can."""
        why = family(s).refused(self.what, self.shape, s, device)
        if why is not None or not self.what.sites or family(s).whole:
            return why
        return _no_windows(self.what, s.steps) if self._site_seconds(device, s.steps) is None else None

    def cost(self, s: UpdateSchedule, device: DeviceProfile, steps: int = 1) -> Cost:
        """The cost of one launch of a schedule that can run, with its sites; see the family's."""
        alone = family(s).cost(self.what, self.shape, s, device, steps)
        if not self.what.sites:
            return alone
        if family(s).whole:
            return with_sites(alone, held_site_seconds(self.what, self.shape, alone.schedule, device, steps), HELD)
        return with_sites(alone, self._site_seconds(device, alone.steps_per_launch), AGAIN)

    def _site_seconds(self, device: DeviceProfile, steps: int) -> float | None:
        """What its sites add to a pass of so many steps; None where no windows fit."""
        return site_seconds(self.what, self.shape, steps, device, self.backwards)

    def identity(self) -> dict[str, Any]:
        update = self.what
        return {
            "what": "update", "of": f"of {', '.join(name for name, _ in update.fields)} {update.dtype}",
            "dtype": update.dtype, "formula": digest(repr((update.parameters, update.code, update.results)).encode()),
            "sides": [describe(sides) for sides in update.sides], "shape": self.shape,
            **({"sites": digest(repr([group.key for group in update.sites]).encode())} if update.sites else {}),
            **of_batch(self.batch),
        }  # fmt: skip

    def seconds(self, cost: Cost, steps: int) -> float:
        """The time of all passes; a rest that does not fill one is a pass of its own."""
        if family(cost.schedule).whole:
            return self._whole(cost, steps)
        passes, rest = divmod(steps, cost.steps_per_launch)
        time = passes * cost.time - saved(passes, cost.time, STARTING * cost.profile.launch_s)
        time += self._rest(cost, rest) if rest else 0.0
        passes += bool(rest)
        return time + self._ends(cost, passes) + self._unpadded(cost, passes) + self._copied(cost, steps)

    def _unpadded(self, cost: Cost, passes: int) -> float:
        """What passes take besides that read arrays of the call, where the others go between padded rows: the first
        ones, and those behind the first that writes a result."""
        if not self._padded(cost, passes):
            return 0.0
        own = max(-(-levels // min(levels, cost.steps_per_launch)) for _, levels in self.what.fields)
        return min(passes, 2 * own - 1) * (self.cost(cost.schedule, cost.profile).time - cost.time)

    def _padded(self, cost: Cost, passes: int) -> bool:
        """Whether levels between so many passes lie in padded rows."""
        size = ITEMSIZE[self.what.dtype]
        return family(cost.schedule).pieces and bool(padded_pitch(self.shape, size, self.shape[-1], passes))

    def _ends(self, cost: Cost, passes: int) -> float:
        """The time that the first and the last pass take besides: what a call is given and its results lie in L2 beside
        what passes leave to one another."""
        nbytes = prod(self.shape) * ITEMSIZE[self.what.dtype]
        given, results = (len(o.parameters(self.what.fields, coefs)) for coefs in (self.what.coefs, ()))
        of_pass, of_call = ((given + n * results) * nbytes for n in (1, 2))
        device = cost.profile
        if passes < 2 or device.missed(of_call) == device.missed(of_pass):
            return 0.0
        crowded = replace(device, l2_bytes=int(device.l2_bytes * of_pass / of_call))
        steps = passes * cost.steps_per_launch
        return 2 * (self.cost(cost.schedule, crowded, steps).time - cost.time)

    def _copied(self, cost: Cost, steps: int) -> float:
        """The time of copies: after fewer steps than a field has levels, older ones of a result are those given; and
        coefficients are copied to padded rows, where many passes read them."""
        device, size = cost.profile, ITEMSIZE[self.what.dtype]
        count = sum(max(0, levels - steps) for _, levels in self.what.fields)
        passes = -(-steps // cost.steps_per_launch)
        if self._padded(cost, passes):
            count += len(self.what.coefs)
        nbytes = prod(self.shape) * size
        return count * (STARTING * device.launch_s + 2 * nbytes / device.bw_global)

    def _whole(self, cost: Cost, steps: int) -> float:
        """The time of a launch of so many steps."""
        if steps == cost.steps_per_launch:
            return cost.time
        return self.cost(cost.schedule, cost.profile, steps).time

    def _rest(self, cost: Cost, rest: int) -> float:
        return self.cost(cost.schedule.but(levels=rest), cost.profile).time

    def at(self, shape: tuple[int, ...]) -> Problem:
        """The same on fields of another shape."""
        return replace(self, shape=shape)

    @property
    def shared(self) -> tuple[str, ...]:
        sources = {group.name for group in self.what.sources}
        shared = self.batch.shared if self.batch else ()
        return tuple(signal(name) if name in sources else f"in.{name}.0" for name in shared)

    def of_batch(self, batch: Batch) -> UpdateProblem:
        known = (*self.what.coefs, *(group.name for group in self.what.sources))
        if unknown := [name for name in batch.shared if name not in known]:
            raise StencilError(
                f"shared={', '.join(unknown)}: {self.what.name} has no such coefficient or source",
                hint=f"name some of its coefficients and sources: {', '.join(known) or 'none'}; fields belong to an "
                "item, scalars are the same for all",
            )
        batch.fits(self.shape)
        return replace(self, batch=batch)

    def options(self, wanted: Schedule | None, device: DeviceProfile, request: Request) -> Options:
        return tried(self, device.share(self.items), request.steps)

    def price(self, schedule: UpdateSchedule, device: DeviceProfile, request: Request) -> Cost:
        device = device.share(self.items)
        if schedule.steps > request.steps:
            raise ScheduleError(
                f"levels={schedule.levels} does {schedule.steps} time steps at once, but steps={request.steps}",
                hint=f"compile for steps={schedule.steps} or more, or take levels={request.steps}",
            )
        if (why := self.misfit(schedule, device)) is not None:
            raise ScheduleError(why[0], hint=why[1])
        return self.cost(schedule, device, request.steps)


class CopyProblem(UpdateProblem):
    """A copy of an array to rows that lie otherwise: of an update that hands one field on as it is."""

    def passes(self, schedule: UpdateSchedule, device: DeviceProfile, steps: int) -> list[Pass]:
        from sparsegen.ir.kernels.copy_field import CopyField

        return [CopyField()]


@lru_cache(maxsize=64)
def tried(problem: UpdateProblem, device: DeviceProfile, steps: int, linear: bool = False) -> Listed:
    """Those that are tried and fit; of equally cheap ones that whose other units have least to do comes first.

    ``linear``: only of families that are tried for linear stencils, too.
    """
    found, refused = list[Cost](), list[Rejected]()
    for own in (each for each in updating(linear) if each.bytes or problem.what.dtype != "u8"):
        for s in own.candidates(problem.what, steps):
            if (why := problem.misfit(s, device)) is not None:
                refused.append(Rejected(s, *why))
            elif own.worth(c := problem.cost(s, device, steps)):
                found.append(c)
    found.sort(key=lambda c: (c.time_per_step, sum(c.terms.values())))
    return Listed(found, refused, min(found, key=lambda c: problem.seconds(c, steps), default=None))


def updating(linear: bool) -> list[UpdateFamily]:
    """The families of updates, or those that are tried for linear stencils, too."""
    every = (cast("UpdateFamily", each) for each in families("update").values())
    return [own for own in every if own.linear or not linear]


def _no_windows(update: Update, steps: int) -> tuple[str, str]:
    """Why sites cannot be in a pass, and what would help."""
    what = f"the sites of {update.name}: no windows around them fit registers and the field for {steps} steps a pass"
    return what, "take fewer levels, or a larger field"


def _groups(sites: tuple[Sites, ...]) -> tuple[o.Sites, ...]:
    return tuple((group.name, group.field, len(group.points)) for group in sites)


def _specs(sides: Sides) -> SideSpecs:
    return tuple(((low.kind, low.value), (high.kind, high.value)) for low, high in sides)
