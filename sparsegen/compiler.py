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
from typing import TYPE_CHECKING, Any, Literal

from sparsegen.dsl.stencil import Stencil
from sparsegen.geometry import legal, legalise, misfit
from sparsegen.ir.errors import Loc, ScheduleError, SparsegenError, StencilError
from sparsegen.schedule import ITEMSIZE, RANGES, Schedule, StencilSchedule
from sparsegen.target import Target, resolve
from sparsegen.where import user_loc

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.cost.search import Ranking
    from sparsegen.cost.stencil import Cost
    from sparsegen.kernel import Kernel

#: Cells of a field that 32-bit index arithmetic reaches.
MAX_CELLS = 2**31 - 1
#: Largest number of time steps that one application of fused weights stands for (``stream`` has its own limit).
MAX_FUSE = RANGES[""]["fuse"][1]
#: Largest number of time steps of a pass.
MAX_STEPS = RANGES["stream"]["fuse"][1] * RANGES[""]["levels"][1]
NonFinite = Literal["any", "exact"]


def compile(
    stencil: Stencil,
    shape: Sequence[int],
    steps: int = 1,
    device: str | Path | DeviceProfile = "auto",
    backend: str = "auto",
    schedule: str | StencilSchedule = "auto",
    nonfinite: NonFinite = "any",
) -> Kernel:
    """A kernel that does ``steps`` time steps of ``stencil`` on fields of ``shape`` (cells on each axis).

    ``device``: what the code is for: ``"auto"`` (this machine's GPU; without one the H200), a profile's name, a TOML
    path.  ``backend``: where it runs: ``"auto"`` (``cuda`` when that device is here, else ``emulator``), ``"cuda"``,
    ``"emulator"``, ``"reference"``.  ``schedule``: ``"auto"`` (the cheapest legal one by the cost model), a line such
    as ``"tiled fuse=2 tile=32x64"``, or a StencilSchedule.  ``nonfinite="exact"`` leaves out schedules that spread a
    NaN or Inf farther than the stencil does.

    Raises StencilError (rank, shape, steps, dtype), ScheduleError (unknown, contradictory, or illegal on the device:
    shared memory, registers, instructions it does not have), DeviceError (unknown, or not here); all before nvcc runs.
    """
    from sparsegen.kernel import Kernel

    loc = user_loc()
    with located(loc):
        sizes = _shape(stencil, shape)
        count = positive(steps, "steps")
        if nonfinite not in ("any", "exact"):
            raise ScheduleError(f"nonfinite={nonfinite!r} is unknown", hint="write nonfinite='any' or 'exact'")
        target = resolve(device, backend)
        choice = _choose(stencil, sizes, count, target, schedule, nonfinite)
        return Kernel(stencil, sizes, count, target, choice, loc)


def schedules(
    stencil: Stencil,
    shape: Sequence[int],
    steps: int | None = None,
    device: str | Path | DeviceProfile = "auto",
    nonfinite: NonFinite = "any",
) -> list[Cost]:
    """The predicted cost of every legal schedule, cheapest a time step first; each has ``.schedule`` and ``.rate``.

    ``steps`` limits how many time steps a pass may do (default: as many as a schedule can).  Errors as in ``compile``.
    """
    with located(user_loc()):
        sizes = _shape(stencil, shape)
        limit = MAX_STEPS if steps is None else positive(steps, "steps")
        _supported(stencil)
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


def positive(value: Any, name: str) -> int:
    """A positive whole number given by the user; StencilError otherwise."""
    try:
        if isinstance(value, bool):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise StencilError(
            f"{name}={value!r} is not a whole number", hint=f"pass a positive int, as in {name}=100"
        ) from None
    if count < 1:
        raise StencilError(f"{name}={count}: there is nothing to do", hint=f"pass a positive int, as in {name}=100")
    return count


def _shape(stencil: Any, shape: Any) -> tuple[int, ...]:
    if not isinstance(stencil, Stencil):
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
    for axis, (n, extent) in enumerate(zip(sizes, stencil.weights.shape, strict=True)):
        if n < extent:
            raise StencilError(
                f"shape {_text(sizes)} has {n} cells on axis {axis}, but {stencil.name} is {extent} cells wide there",
                hint=f"make axis {axis} at least {extent} cells, or trim zero weights off the stencil",
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


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def boundary_kind(stencil: Stencil) -> str:
    """The kind of boundary that the cost model takes for all sides: the costliest of them."""
    from sparsegen.cost.stencil import costliest

    return costliest(side.kind for pair in stencil.sides for side in pair)


@dataclass(frozen=True)
class Choice:
    """A schedule and how it was chosen.  ``ranking`` and ``cost`` are None where no schedule fits (reference only);
    then ``reason`` is the error that any use of the schedule raises."""

    schedule: StencilSchedule | None
    cost: Cost | None
    ranking: Ranking | None
    automatic: bool
    reason: SparsegenError | None = None


def edge(stencil: Stencil) -> int:
    """The edge of the square that holds one step's weights: what cost model and schedules call k."""
    return int(max(stencil.weights.shape))


def _choose(
    stencil: Stencil, shape: tuple[int, ...], steps: int, target: Target, schedule: Any, nonfinite: str
) -> Choice:
    try:
        _supported(stencil)
    except StencilError as error:
        if target.backend != "reference":
            raise
        return Choice(None, None, None, True, error)  # the reference needs no schedule
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
        knobs = f"fuse={schedule.fuse}" + (f" levels={schedule.levels}" if schedule.family == "stream" else "")
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

    kind = boundary_kind(stencil)
    predicted = cost(edge(stencil), stencil.points, _pair(shape), chosen, target.profile, stencil.dtype, kind,
                     flat=flat(stencil))  # fmt: skip
    return Choice(chosen, predicted, None, False)


def check(
    stencil: Stencil, shape: tuple[int, ...], schedule: StencilSchedule, profile: DeviceProfile
) -> StencilSchedule:
    """The schedule with its tile resolved; ScheduleError if it cannot run this stencil and shape on the device."""
    k = edge(stencil)
    chosen = legalise(schedule, k)
    if reason := misfit(chosen, stencil.weights.shape, shape):
        raise ScheduleError(reason, hint="lower fuse (or levels), or compile for a larger shape")
    legal(chosen, k, profile, stencil.dtype, bool((stencil.weights != 0.0).all()), flat(stencil))
    return chosen


def flat(stencil: Stencil) -> bool:
    """Whether the stencil reaches along its rows only: what it does is one-dimensional."""
    return len(stencil.weights) == 1


def _supported(stencil: Stencil) -> None:
    if stencil.ndim != 2:
        raise StencilError(
            f"{stencil.name} has {stencil.ndim} axes: schedules exist for 2 axes in this version",
            loc=stencil.loc,
            hint="run it with backend='reference'"
            + ("" if stencil.ndim == 3 else ", or as a 2-D stencil with weights of shape (1, n)"),
        )
    if stencil.dtype not in ITEMSIZE:
        raise StencilError(
            f"{stencil.name} is {stencil.dtype}: schedules exist for {' and '.join(ITEMSIZE)} in this version",
            loc=stencil.loc,
            hint="use dtype='f64' or 'f32', or backend='reference'",
        )


def _pair(shape: tuple[int, ...]) -> tuple[int, int]:
    rows, cols = shape
    return rows, cols


def ranked(
    stencil: Stencil, shape: tuple[int, ...], steps: int, profile: DeviceProfile, nonfinite: str = "any"
) -> Ranking:
    """All legal schedules of at most ``steps`` steps a pass, cheapest first, and the others with their reasons."""
    return _ranked(stencil, shape, min(steps, MAX_STEPS), profile, nonfinite)


@lru_cache(maxsize=64)
def _ranked(stencil: Stencil, shape: tuple[int, ...], limit: int, profile: DeviceProfile, nonfinite: str) -> Ranking:
    from sparsegen.cost.search import Ranking, Rejected, candidates, rank

    fuses = tuple(range(1, min(limit, MAX_FUSE) + 1))
    k, rejected, fitting = edge(stencil), list[Rejected](), list[StencilSchedule]()
    for s in candidates(k, stencil.dtype, profile, (MAX_CELLS, MAX_CELLS), fuses, rejected, limit=limit,
                        points=stencil.points, flat=flat(stencil)):  # fmt: skip
        reason = misfit(s, stencil.weights.shape, shape)
        if reason is None and nonfinite == "exact" and s.widens:
            reason = "nonfinite='exact': it may spread a NaN or Inf farther than the stencil"
        if reason is None:
            fitting.append(s)
        else:
            rejected.append(Rejected(s, reason))
    kind = boundary_kind(stencil)
    ranking = rank(k, stencil.points, stencil.dtype, profile, _pair(shape), fuses, fitting, boundary=kind,
                   flat=flat(stencil))  # fmt: skip
    return Ranking(ranking.costs, tuple(rejected))


def total_time(cost: Cost, steps: int) -> float:
    """Predicted seconds of ``steps`` time steps; a rest that does not fill a pass is counted as whole passes' share."""
    passes, rest = divmod(steps, cost.steps_per_launch)
    return passes * cost.time + (cost.time if rest else 0.0)


def _automatic(stencil: Stencil, shape: tuple[int, ...], steps: int, profile: DeviceProfile, nonfinite: str) -> Choice:
    ranking = ranked(stencil, shape, steps, profile, nonfinite)
    if not ranking.costs:
        why = ranking.rejected[0].reason if ranking.rejected else "no candidates"
        raise ScheduleError(
            f"no schedule can run {stencil.name} on {_text(shape)} on {profile.name}: {why}",
            hint="try another device, a larger shape, or backend='reference'",
        )
    best = min(ranking.costs, key=lambda c: total_time(c, steps))  # the first of the cheapest
    return Choice(best.schedule, best, ranking, True)
