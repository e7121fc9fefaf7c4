"""``sg.compile`` and ``sg.schedules``: check everything that can be checked, choose a schedule, hand back a kernel.

Nothing is compiled here: lowering takes milliseconds and happens at once, nvcc runs when its result is first needed.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from sparsegen.callsite import user_loc
from sparsegen.dsl.stencil import Stencil
from sparsegen.dsl.update import Update
from sparsegen.footprint import Footprint
from sparsegen.geometry import legal, legalise, misfit
from sparsegen.ir.errors import Loc, ProductError, ScheduleError, SparsegenError, StencilError
from sparsegen.rows import MAX_CELLS
from sparsegen.schedule import RANGES, Schedule, StencilSchedule
from sparsegen.target import Target, resolve

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.cost.search import Ranking
    from sparsegen.cost.stencil import Cost
    from sparsegen.kernel import Kernel
    from sparsegen.products.cost import SpmmCost
    from sparsegen.products.kernel import SpmmKernel
    from sparsegen.products.product import Product
    from sparsegen.products.schedule import SpmmSchedule
    from sparsegen.updates.cost import UpdateCost
    from sparsegen.updates.kernel import UpdateKernel
    from sparsegen.updates.schedule import UpdateSchedule

#: Largest number of time steps of a pass.
MAX_STEPS = RANGES["stream"]["fuse"][1] * RANGES[""]["levels"][1]
NonFinite = Literal["any", "exact"]


@overload
def compile(
    stencil: Stencil,
    shape: Sequence[int],
    steps: int = 1,
    device: str | Path | DeviceProfile = "auto",
    backend: str = "auto",
    schedule: str | StencilSchedule = "auto",
    nonfinite: NonFinite = "any",
) -> Kernel: ...
@overload
def compile(
    stencil: Update,
    shape: Sequence[int],
    steps: int = 1,
    device: str | Path | DeviceProfile = "auto",
    backend: str = "auto",
    schedule: str | UpdateSchedule = "auto",
    nonfinite: NonFinite = "any",
) -> UpdateKernel: ...
@overload
def compile(
    stencil: Product,
    *,
    device: str | Path | DeviceProfile = "auto",
    backend: str = "auto",
    schedule: str | SpmmSchedule = "auto",
) -> SpmmKernel: ...
def compile(
    stencil: Stencil | Update | Product,
    shape: Sequence[int] = (),
    steps: int = 1,
    device: str | Path | DeviceProfile = "auto",
    backend: str = "auto",
    schedule: str | StencilSchedule | UpdateSchedule | SpmmSchedule = "auto",
    nonfinite: NonFinite = "any",
) -> Kernel | UpdateKernel | SpmmKernel:
    """A kernel that does ``steps`` time steps of ``stencil`` on fields of ``shape`` (cells on each axis).

    ``device``: what the code is for: ``"auto"`` (this machine's GPU; without one the H200), a profile's name, a TOML
    path.  ``backend``: where it runs: ``"auto"`` (``cuda`` when that device is here, else ``emulator``), ``"cuda"``,
    ``"emulator"``, ``"reference"``.  ``schedule``: ``"auto"`` (the cheapest legal one by the cost model), a line such
    as ``"tiled fuse=2 tile=32x64"``, or a StencilSchedule.  ``nonfinite="exact"`` leaves out schedules that spread a
    NaN or Inf farther than the stencil does.

    Fields in f16 and bf16 are summed in f32 and rounded once a *pass*: with one step a pass that is the reference's
    result, which rounds at every step; with several (``fuse``, ``levels``) it is nearer to the exact one.

    A general update (several fields or levels, coefficients, a formula that is not linear) takes schedules such as
    ``"direct block=32x8 column=4"`` on the CUDA cores, and its kernel is called with all its arrays.

    A sparse product (``sg.spmm``) has no shape and steps of its own; it takes schedules such as ``"bitmap cols=16"``,
    whose other words the cost model chooses, and ``"dense"``.

    Raises StencilError (rank, shape, steps, dtype), ScheduleError (unknown, contradictory, or illegal on the device:
    shared memory, registers, instructions it does not have), DeviceError (unknown, or not here); all before nvcc runs.
    """
    from sparsegen.kernel import Kernel
    from sparsegen.products.product import Product

    loc = user_loc()
    with located(loc):
        if isinstance(stencil, Product):
            from sparsegen.products.compile import choose as choose_product
            from sparsegen.products.kernel import SpmmKernel

            _no_grid(shape, steps, nonfinite)
            target = resolve(device, backend)
            return SpmmKernel(stencil, target, choose_product(stencil, target, schedule), loc)
        sizes = _shape(stencil, shape)
        count = positive(steps, "steps")
        if nonfinite not in ("any", "exact"):
            raise ScheduleError(f"nonfinite={nonfinite!r} is unknown", hint="write nonfinite='any' or 'exact'")
        target = resolve(device, backend)
        if isinstance(stencil, Update):
            from sparsegen.updates.compile import choose
            from sparsegen.updates.kernel import UpdateKernel

            chosen = choose(stencil, sizes, target, schedule)
            return UpdateKernel(stencil, sizes, count, target, chosen, loc)
        choice = _choose(stencil.gridded, grid(sizes), count, target, schedule, nonfinite)
        return Kernel(stencil, sizes, count, target, choice, loc)


@overload
def schedules(
    stencil: Stencil,
    shape: Sequence[int],
    steps: int | None = None,
    device: str | Path | DeviceProfile = "auto",
    nonfinite: NonFinite = "any",
) -> list[Cost]: ...
@overload
def schedules(
    stencil: Update,
    shape: Sequence[int],
    steps: int | None = None,
    device: str | Path | DeviceProfile = "auto",
    nonfinite: NonFinite = "any",
) -> list[UpdateCost]: ...
@overload
def schedules(stencil: Product, *, device: str | Path | DeviceProfile = "auto") -> list[SpmmCost]: ...
def schedules(
    stencil: Stencil | Update | Product,
    shape: Sequence[int] = (),
    steps: int | None = None,
    device: str | Path | DeviceProfile = "auto",
    nonfinite: NonFinite = "any",
) -> list[Cost] | list[UpdateCost] | list[SpmmCost]:
    """The predicted cost of every legal schedule, cheapest a time step first; each has ``.schedule`` and ``.rate``.

    ``steps`` limits how many time steps a pass may do (default: as many as a schedule can).  Errors as in ``compile``.
    """
    from sparsegen.products.product import Product

    with located(user_loc()):
        if isinstance(stencil, Product):
            from sparsegen.products.compile import ranked as ranked_products

            _no_grid(shape, 1 if steps is None else steps, nonfinite)
            return ranked_products(stencil, resolve(device, "emulator" if device != "auto" else "auto").profile)
        sizes = _shape(stencil, shape)
        if isinstance(stencil, Update):
            from sparsegen.updates.compile import rank

            positive(1 if steps is None else steps, "steps")
            return list(rank(stencil, sizes, resolve(device, "emulator" if device != "auto" else "auto").profile))
        limit = MAX_STEPS if steps is None else positive(steps, "steps")
        stencil, sizes = stencil.gridded, grid(sizes)
        profile = resolve(device, "emulator" if device != "auto" else "auto").profile
        ranking = ranked(stencil, sizes, limit, profile, nonfinite)
        return list(ranking.costs)


@contextmanager
def located(loc: Loc | None) -> Iterator[None]:
    """Errors raised inside that name no line of their own name this one."""
    try:
        yield
    except SparsegenError as error:
        if error.loc is None:
            error.loc = loc
        raise


def positive(value: Any, name: str, error: type[SparsegenError] = StencilError) -> int:
    """A positive whole number given by the user; ``error`` otherwise."""
    try:
        if isinstance(value, bool):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise error(f"{name}={value!r} is not a whole number", hint=f"pass a positive int, as in {name}=100") from None
    if count < 1:
        raise error(f"{name}={count}: there is nothing to do", hint=f"pass a positive int, as in {name}=100")
    return count


def _no_grid(shape: Any, steps: Any, nonfinite: str) -> None:
    """ProductError for what only a stencil has."""
    for name, value, default in (("shape", shape, ()), ("steps", steps, 1), ("nonfinite", nonfinite, "any")):
        if value != default:
            raise ProductError(
                f"{name}={value!r} means nothing to a sparse product", hint=f"leave {name} away: W and n say its size"
            )


def _shape(stencil: Any, shape: Any) -> tuple[int, ...]:
    from sparsegen.formats.matrix import SparseMatrix

    if isinstance(stencil, SparseMatrix):
        raise ProductError(f"{stencil!r} is a matrix, not a product", hint="compile sg.spmm(W, n=...)")
    if not isinstance(stencil, (Stencil, Update)):
        raise StencilError(
            f"cannot compile {type(stencil).__name__} {stencil!r}",
            hint="decorate the function with @sg.stencil, or use sg.Stencil.from_weights(w)",
        )
    try:
        given = tuple(shape)
    except TypeError:
        raise StencilError(
            f"shape={shape!r} is no shape", hint="pass the cells of each axis, as in shape=(512, 512)"
        ) from None
    sizes = tuple(positive(n, f"shape[{axis}]") for axis, n in enumerate(given))
    if len(sizes) != stencil.ndim:
        raise StencilError(
            f"shape {_text(sizes)} has {len(sizes)} axes, {stencil.name} has {stencil.ndim}",
            hint=f"pass {stencil.ndim} sizes, slowest axis first",
        )
    extents = stencil.extents if isinstance(stencil, Update) else stencil.weights.shape
    for axis, (n, extent) in enumerate(zip(sizes, extents, strict=True)):
        if n < extent:
            trim = "" if isinstance(stencil, Update) else ", or trim zero weights off the stencil"
            raise StencilError(
                f"shape {_text(sizes)} has {n} cells on axis {axis}, but {stencil.name} is {extent} cells wide there",
                hint=f"make axis {axis} at least {extent} cells{trim}",
            )
    cells = 1
    for n in sizes:
        cells *= n
    if cells > MAX_CELLS:
        raise StencilError(
            f"shape {_text(sizes)} has {cells} cells; indices are 32 bits wide, so {MAX_CELLS} is the most",
            hint="split the field and exchange the rims",
        )
    return sizes


def grid(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with at least two axes: a field of one axis is one row (see ``Stencil.gridded``)."""
    return shape if len(shape) > 1 else (1, *shape)


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


@dataclass(frozen=True)
class Choice:
    """A schedule and how it was chosen; ``automatic``: by the cost model, not by the user."""

    schedule: StencilSchedule
    cost: Cost
    automatic: bool
    nonfinite: str = "any"


def edge(stencil: Stencil) -> int:
    """The edge of the square that holds one step's weights: what cost model and schedules call k."""
    return int(max(stencil.weights.shape))


def _choose(
    stencil: Stencil, shape: tuple[int, ...], steps: int, target: Target, schedule: Any, nonfinite: str
) -> Choice:
    if isinstance(schedule, str) and schedule.strip() == "auto":
        return _automatic(stencil, shape, steps, target.profile, nonfinite)
    if isinstance(schedule, str):
        schedule = Schedule.parse(schedule)
    if not isinstance(schedule, StencilSchedule):
        raise ScheduleError(
            f"schedule={schedule!r} is no schedule",
            hint="pass 'auto', a line such as 'tiled fuse=2', or a StencilSchedule",
        )
    chosen = check(stencil, shape, schedule, target.profile)
    if schedule.steps > steps:
        knobs = f"fuse={schedule.fuse}" + (f" levels={schedule.levels}" if schedule.levelled else "")
        raise ScheduleError(
            f"{knobs} does {schedule.steps} time steps at once, but steps={steps}",
            hint=f"compile for steps={schedule.steps} or more, or do {steps} at once",
        )
    if nonfinite == "exact" and chosen.widens:
        raise ScheduleError(
            f"a {chosen.family} schedule may spread a NaN or Inf to cells that the stencil does not reach",
            hint="choose direct or tiled, or nonfinite='any'",
        )
    from sparsegen.cost.stencil import cost

    return Choice(chosen, cost(Footprint.of(stencil), shape, chosen, target.profile), False, nonfinite)


def check(
    stencil: Stencil, shape: tuple[int, ...], schedule: StencilSchedule, profile: DeviceProfile
) -> StencilSchedule:
    """The schedule with its tile resolved; ScheduleError if it cannot run this stencil and shape on the device."""
    fp = Footprint.of(stencil)
    chosen = legalise(schedule, fp.k, fp.axes)
    if reason := misfit(chosen, stencil.weights.shape, shape):
        raise ScheduleError(reason, hint="lower fuse (or levels), or compile for a larger shape")
    legal(chosen, fp, profile)
    return chosen


def ranked(
    stencil: Stencil, shape: tuple[int, ...], steps: int, profile: DeviceProfile, nonfinite: str = "any"
) -> Ranking:
    """All legal schedules of at most ``steps`` steps a pass, cheapest first, and the others with their reasons."""
    return _ranked(stencil, shape, min(steps, MAX_STEPS), profile, nonfinite)


@lru_cache(maxsize=64)
def _ranked(stencil: Stencil, shape: tuple[int, ...], limit: int, profile: DeviceProfile, nonfinite: str) -> Ranking:
    from sparsegen.cost.search import Ranking, Rejected, candidates, rank

    fp, rejected, fitting = Footprint.of(stencil), list[Rejected](), list[StencilSchedule]()
    for s in candidates(fp, profile, (MAX_CELLS,) * len(shape), limit, rejected):
        reason = misfit(s, stencil.weights.shape, shape)
        if reason is None and nonfinite == "exact" and s.widens:
            reason = "nonfinite='exact': it may spread a NaN or Inf farther than the stencil"
        if reason is None:
            fitting.append(s)
        else:
            rejected.append(Rejected(s, reason))
    return Ranking(rank(fp, profile, shape, schedules=fitting).costs, tuple(rejected))


@lru_cache(maxsize=64)
def _cheapest(
    stencil: Stencil, shape: tuple[int, ...], steps: int, profile: DeviceProfile, nonfinite: str
) -> Cost | None:
    from sparsegen.cost.choice import choose

    return choose(
        Footprint.of(stencil), profile, shape, stencil.weights.shape, steps, min(steps, MAX_STEPS), nonfinite == "exact"
    )


def _automatic(stencil: Stencil, shape: tuple[int, ...], steps: int, profile: DeviceProfile, nonfinite: str) -> Choice:
    best = _cheapest(stencil, shape, steps, profile, nonfinite)
    if best is None:
        ranking = ranked(stencil, shape, steps, profile, nonfinite)
        why = ranking.rejected[0].reason if ranking.rejected else "no candidates"
        if ranking.costs:
            why = f"none of the {len(ranking.costs)} that run has a pass for the steps that are left over"
        raise ScheduleError(
            f"no schedule can run {steps} steps of {stencil.name} on {_text(shape)} on {profile.name}: {why}",
            hint="try another device, a larger shape, or backend='reference'",
        )
    return Choice(best.schedule, best, True, nonfinite)
