"""``sg.compile`` and ``sg.schedules``: check everything that can be checked, choose a schedule, hand back a kernel.

This is the front door: here alone it matters which of the things that can be described was given.  Nothing is compiled
here: lowering takes milliseconds and happens at once, nvcc runs when its result is first needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any, Literal

from sparsegen.arguments import one_of, positive
from sparsegen.batch import Batch
from sparsegen.callsite import located, user_loc
from sparsegen.choose import Request, choose
from sparsegen.cost.cost import Costs
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.search import most_steps
from sparsegen.dsl.stencil import Stencil
from sparsegen.dsl.update import Update
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import ProductError, ScheduleError, StencilError
from sparsegen.kernel import Kernel
from sparsegen.problem import Problem
from sparsegen.problems.attention import AttentionProblem
from sparsegen.problems.product import SpmmProblem
from sparsegen.problems.sddmm import SddmmProblem
from sparsegen.problems.stencil import StencilProblem
from sparsegen.problems.update import UpdateProblem
from sparsegen.products.attention import Attention
from sparsegen.products.product import Product
from sparsegen.products.sddmm import Sampled
from sparsegen.schedule import Schedule
from sparsegen.sizes import MAX_CELLS
from sparsegen.target import resolve

NonFinite = Literal["any", "exact"]


def compile(
    stencil: Stencil | Update | Product | Sampled | Attention,
    shape: Sequence[int] = (),
    steps: int = 1,
    device: str | Path | DeviceProfile = "auto",
    backend: str = "auto",
    schedule: str | Schedule = "auto",
    nonfinite: NonFinite = "any",
    batch: int | None = None,
    shared: str | Sequence[str] = (),
) -> Kernel:
    """The kernel of a stencil or an update on a grid of ``shape`` cells, or of a product, whose matrices say its size.

    ``steps``: time steps of a call that says no other number.  ``device`` (a profile's name or file) is what the
    schedule is chosen for, ``backend`` (``cuda``, ``emulator``, ``reference``) what runs it; ``auto`` is the best of
    this machine.  ``schedule``: a line or a Schedule, which ``auto`` leaves to the cost model.  With
    ``nonfinite="exact"`` a NaN or Inf reaches only cells that the stencil connects it to.

    ``batch``: how many such grids a call works on, each as by itself; they are the first axis of every array, but of
    the coefficients, and signals of sources, named in ``shared``, which are given once for all.

    StencilError or ProductError for what cannot be computed, ScheduleError for a schedule that cannot do it,
    DeviceError for a device or back end that is not there.
    """
    loc = user_loc()
    with located(loc):
        problem, request = described(stencil, shape, steps, nonfinite, batch=batch, shared=shared)
        target = resolve(device, backend)
        choice = choose(problem, target.profile, schedule, request)
        kernel = Kernel(problem.under(choice.schedule), request.steps, target, choice, loc)
        kernel._watch.compiled()
        return kernel


def schedules(
    stencil: Stencil | Update | Product | Sampled | Attention,
    shape: Sequence[int] = (),
    steps: int | None = None,
    device: str | Path | DeviceProfile = "auto",
    nonfinite: NonFinite = "any",
    batch: int | None = None,
    shared: str | Sequence[str] = (),
) -> Costs:
    """The predicted cost of every legal schedule, cheapest a time step first; each has ``.schedule`` and ``.rate``.

    ``steps`` limits how many time steps a pass may do (default: as many as a schedule can).  Errors as in ``compile``.
    """
    with located(user_loc()):
        problem, request = described(stencil, shape, steps, nonfinite, listing=True, batch=batch, shared=shared)
        profile = resolve(device, "auto" if isinstance(device, str) and device == "auto" else "emulator").profile
        return Costs(problem.options(None, profile, request).costs)


def described(
    what: Any, shape: Any, steps: Any, nonfinite: str, *, listing: bool = False, batch: Any = None, shared: Any = (),
) -> tuple[Problem, Request]:  # fmt: skip
    """The problem that a user means, and what is asked of its schedule.

    For a ``listing`` of schedules ``steps`` may be None: as many as a pass can do.

    StencilError or ProductError for what is none, ScheduleError for an unknown ``nonfinite``.
    """
    problem, unsaid = problem_of(what, shape), listing and steps is None
    names = _names(shared)
    if batch is not None:
        problem = problem.of_batch(Batch(positive(batch, "batch"), names))
    elif names:
        raise StencilError(f"shared={', '.join(map(str, names))} without a batch", hint="pass batch=..., or leave it")
    if problem.grid is None:
        for name, value, default in (("steps", 1 if unsaid else steps, 1), ("nonfinite", nonfinite, "any")):
            _means_nothing(name, value, default)
        return problem, Request(every=listing)
    count = most_steps() if unsaid else positive(steps, "steps")
    return problem, Request(count, one_of(nonfinite, ("any", "exact"), "nonfinite", ScheduleError) == "exact")


def _names(shared: Any) -> tuple[str, ...]:
    """Names of coefficients; StencilError for what is none."""
    names = (shared,) if isinstance(shared, str) else tuple(shared) if isinstance(shared, Iterable) else (shared,)
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise StencilError(f"shared={wrong[0]!r} is no name", hint="name coefficients, as in shared=('c',)")
    return names


@singledispatch
def problem_of(what: Any, shape: Any) -> Problem:
    """The problem of a described value on a grid of ``shape``; other kinds of values may be registered."""
    raise StencilError(
        f"cannot compile {type(what).__name__} {what!r}",
        hint="decorate the function with @sg.stencil, or use sg.Stencil.from_weights(w)",
    )


def described_by(value: Any) -> bool:
    """Whether a value describes a problem."""
    return problem_of.dispatch(type(value)) not in (problem_of.dispatch(object), _matrix)


@problem_of.register
def _stencil(what: Stencil, shape: Any) -> Problem:
    return StencilProblem(what, _shape(what, shape, ", or trim zero weights off the stencil"))


@problem_of.register
def _update(what: Update, shape: Any) -> Problem:
    return UpdateProblem(what, _shape(what, shape, ""))


@problem_of.register
def _product(what: Product, shape: Any) -> Problem:
    _means_nothing("shape", shape, ())
    return SpmmProblem(what)


@problem_of.register
def _sampled(what: Sampled, shape: Any) -> Problem:
    _means_nothing("shape", shape, ())
    return SddmmProblem(what)


@problem_of.register
def _attention(what: Attention, shape: Any) -> Problem:
    _means_nothing("shape", shape, ())
    return AttentionProblem(what)


@problem_of.register
def _matrix(what: SparseMatrix, shape: Any) -> Problem:
    raise ProductError(f"{what!r} is a matrix, not a product", hint="compile sg.spmm(W, n=...)")


def _means_nothing(name: str, value: Any, default: Any) -> None:
    """ProductError for what only a stencil has."""
    if type(value) is not type(default) or value != default:
        raise ProductError(
            f"{name}={value!r} means nothing to a sparse product", hint=f"leave {name} away: its matrices say its size"
        )


def _shape(stencil: Stencil | Update, shape: Any, trim: str) -> tuple[int, ...]:
    """The sizes of a grid, one an axis; StencilError for what is no shape or too small for the stencil."""
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
    for axis, (n, extent) in enumerate(zip(sizes, stencil.extents, strict=True)):
        if n < extent:
            raise StencilError(
                f"shape {_text(sizes)} has {n} cells on axis {axis}, but {stencil.name} is {extent} cells wide there",
                hint=f"make axis {axis} at least {extent} cells{trim}",
            )
    cells = math.prod(sizes)
    if cells > MAX_CELLS:
        raise StencilError(
            f"shape {_text(sizes)} has {cells} cells; indices are 32 bits wide, so {MAX_CELLS} is the most",
            hint="split the field and exchange the rims",
        )
    return sizes


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
