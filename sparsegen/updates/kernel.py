"""A compiled general update: call it on arrays, look at every level of it, check it, count it, time it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sparsegen.arrays import ArrayView, check_together, empty_like, host_array, launch_stream
from sparsegen.callsite import user_loc
from sparsegen.compiler import located, positive
from sparsegen.dsl.update import Update
from sparsegen.inspection import Build
from sparsegen.ir.errors import ArrayError, Loc
from sparsegen.ir.types import DTYPES
from sparsegen.kernel import FieldArgument
from sparsegen.looking import Looking, Plans
from sparsegen.memory import DEVICE, HOST, host_room, room_for
from sparsegen.target import Target
from sparsegen.updates.compile import UpdateChoice
from sparsegen.updates.cuda import UpdateBuilds, UpdateExecutor
from sparsegen.updates.plan import UpdatePlan, UpdatePrograms, inputs, outputs

if TYPE_CHECKING:
    from sparsegen.backends.emulator.report import Report
    from sparsegen.counting import Counts
    from sparsegen.explain import Explanation
    from sparsegen.measure import BenchResult
    from sparsegen.pipelines import Program
    from sparsegen.updates.cost import UpdateCost
    from sparsegen.updates.schedule import UpdateSchedule

Views = dict[str, ArrayView]


class UpdateKernel(Looking):
    """What :func:`sparsegen.compile` gives back for an update.  Every method may be called from any thread.

    ``update``, ``shape``, ``steps``, ``device`` (the profile), ``backend`` and ``schedule`` say what it was made of.
    """

    def __init__(
        self, update: Update, shape: tuple[int, ...], steps: int, target: Target, choice: UpdateChoice, loc: Loc | None
    ) -> None:
        self.update, self.shape, self.steps, self.loc = update, shape, steps, loc
        self._target, self._choice = target, choice
        self.dtype = np.dtype(DTYPES[update.dtype].numpy())
        self._expect = {
            name: FieldArgument(
                _shown(update, name), shape, self.dtype, target.backend, writable=name.startswith("out.")
            )
            for name in (*inputs(update), *outputs(update))
        }
        self._programs = UpdatePrograms(update, shape, choice.schedule)
        size = "x".join(map(str, shape))
        notes = (f"Schedule: {choice.schedule}", f"For: {target.profile.name}")
        self._builds = UpdateBuilds(target.profile, f"{update} on {size}", notes, shape[-1])
        self._lock = Lock()
        self._plans = Plans[UpdatePlan]()
        self._executors: dict[tuple[int, str], UpdateExecutor] = {}
        self._plan(steps)  # lowered now, so that a program that cannot be made is refused by compile

    # -------------------------------------------------------------------------------------------- what it is
    @property
    def schedule(self) -> UpdateSchedule:
        """Every choice that was made; ``str`` of it is a line that ``compile`` takes back."""
        return self._choice.schedule

    @property
    def cost(self) -> UpdateCost:
        """The predicted cost of one time step: time in seconds, terms, formula."""
        return self._choice.cost

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of device memory that a call of the compiled ``steps`` on packed arrays needs besides them.

        An array for each field, from one step more than it has levels on.
        """
        return self._plan(self.steps).workspace_nbytes

    def explain(self) -> Explanation:
        """Why this schedule: its terms and what binds it, and why general updates take no others.

        A string, which also has ``data``, ``json()``, ``roofline()`` and ``save(path)``.
        """
        from sparsegen.updates.explain import explain

        return explain(self, self._choice, self._target, self._plan(self.steps))

    def __repr__(self) -> str:
        size = "x".join(map(str, self.shape))
        return f"<UpdateKernel {self.update.name} {size} steps={self.steps} on {self.backend}: {self.schedule}>"

    # -------------------------------------------------------------------------------------------- looking at it
    def _main(self) -> Program:
        return self._plan(self.steps).main

    def _build(self) -> Build:
        return self._builds.get(self._main())

    def export(self, path: str | Path) -> Path:
        """Write a self-contained CUDA file with a C launcher of one time step on packed arrays, ``NAME_step(...)``.

        Its arguments are the arrays of the kernel, in its order, and a stream; the caller exchanges the levels.
        Returns the path; ArrayError if it cannot be written.
        """
        return self._write(path, self._build().export_step)

    def _plan(self, steps: int, pitch: tuple[int, ...] | None = None) -> UpdatePlan:
        """``pitch``: of each input and output; None for packed arrays."""

        def make() -> UpdatePlan:
            names = (*inputs(self.update), *outputs(self.update))
            return self._programs.plan(steps, None if pitch is None else dict(zip(names, pitch, strict=True)))

        return self._plans.get((steps, pitch), make)

    # -------------------------------------------------------------------------------------------- running it
    def __call__(
        self, /, *args: Any, out: Any = None, steps: int | None = None, stream: object = None, **named: Any
    ) -> Any:
        """The newest levels after ``steps`` time steps (default: the compiled number).

        An array for each parameter, by position or by name; for a field of several levels a tuple, newest first.  Back
        comes for each field an array, or a tuple of its levels, newest first; of several fields a tuple of these.
        ``out`` (what to write them to) has the same form.  Which arrays may be passed, what is copied, and ``stream``
        are as for stencils: see :meth:`sparsegen.Kernel.__call__`.  Inputs are never written, and ``out`` must not
        overlap them, nor its own arrays each other.

        ArrayError, before anything is written, for an array that does not fit; KernelFault, from the emulator, for a
        program that does what no GPU allows.
        """
        with located(user_loc()):
            given = self._given(args, named)
            count = self.steps if steps is None else positive(steps, "steps")
            first = next(iter(given.values()))
            made = self._new(first) if out is None else out
            results = {n: self._expect[n](a) for n, a in self._flat_results(made).items()}
            self._apart(given, results)
            if self.backend == "cuda":
                self._on_gpu(given, results, count, stream)
            else:
                self._on_host(given, results, count, stream)
        return made

    def _given(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> Views:
        """The view of every input, by the plan's names."""
        parameters = {p.name: p for p in self.update.parameters}
        listed = ", ".join(parameters)
        values = dict(zip(parameters, args, strict=False))
        for name in named:
            if name not in parameters or name in values:
                why = "is given twice" if name in values else f"is no parameter of {self.update.name}"
                raise ArrayError(f"{name} {why}", hint=f"pass each of {listed} once")
        values.update(named)
        if len(args) > len(parameters) or len(values) < len(parameters):
            missing = [n for n in parameters if n not in values]
            what = (
                f"no array for {', '.join(missing)}"
                if missing
                else f"{len(args)} arrays for {len(parameters)} parameters"
            )
            raise ArrayError(f"{self.update.name}: {what}", hint=f"pass {listed}")
        views: Views = {}
        for name, p in parameters.items():
            for level, a in enumerate(_levels(values[name], name, p.levels)):
                views[f"in.{name}.{level}"] = self._expect[f"in.{name}.{level}"](a)
        return {n: views[n] for n in inputs(self.update)}

    def _flat_results(self, made: Any) -> dict[str, Any]:
        """The arrays of a result, by the plan's names; ArrayError for one of another form."""
        fields = self.update.fields
        names = ", ".join(n for n, _ in fields)
        each = (made,) if len(fields) == 1 else _levels(made, f"out (of {names})", len(fields))
        return {
            f"out.{name}.{k}": a
            for (name, levels), value in zip(fields, each, strict=True)
            for k, a in enumerate(_levels(value, f"out of {name}", levels))
        }

    def _new(self, like: ArrayView) -> Any:
        """New arrays for a result, in the form that a call gives back."""

        def one(levels: int) -> Any:
            return empty_like(like) if levels == 1 else tuple(empty_like(like) for _ in range(levels))

        device = like.layout.device_index
        free, where = host_room, HOST
        if device is not None:
            free, where = lambda: self._executor(device, None).runtime.memory(), DEVICE
        count = sum(levels for _, levels in self.update.fields)
        with room_for({"results": count * prod(self.shape) * self.dtype.itemsize}, free, where):
            made = [one(levels) for _, levels in self.update.fields]
        return tuple(made) if len(made) > 1 else made[0]

    def _apart(self, given: Views, results: Views) -> None:
        """ArrayError for arrays on different devices, and for results that overlap an input or each other."""
        seen = [(_shown(self.update, n), v) for n, v in given.items()]
        for name, view in results.items():
            check_together(seen, (_shown(self.update, name), view))
            seen.append((_shown(self.update, name), view))

    def _on_host(self, given: Views, results: Views, steps: int, stream: object) -> None:
        from sparsegen.updates import host

        self._no_stream(stream)
        arrays, new = _host(given), _host(results)
        needed = {"inputs": sum(a.nbytes for a in arrays.values()), "results": sum(a.nbytes for a in new.values())}
        if self.backend == "reference":
            with room_for(needed | {"steps": 2 * needed["inputs"]}, host_room, HOST):
                host.run_reference(self.update, arrays, new, steps)
            return
        plan = self._plan(steps)
        with room_for(needed | {"workspace": plan.workspace_nbytes}, host_room, HOST):
            host.run_emulator(plan, arrays, new)

    def _on_gpu(self, given: Views, results: Views, steps: int, stream: object) -> None:
        first = next(iter(given.values()))
        handle = launch_stream(first, stream)
        device = first.layout.device_index
        if device is None:
            executor = self._executor(self._target.gpu or 0, handle)
            executor.update_host(self._plan(steps), _host(given), _host(results), handle)
            return
        views = {**given, **results}
        plan = self._device_plan(views, steps)
        self._executor(device, handle).run_update(plan, {n: v.pointer for n, v in views.items()}, handle, first)

    def _device_plan(self, views: Views, steps: int) -> UpdatePlan:
        """The plan for device arrays with their pitches."""
        if all(v.layout.contiguous for v in views.values()):
            return self._plan(steps)
        return self._plan(steps, tuple(v.layout.pitch // self.dtype.itemsize for v in views.values()))

    def _executor(self, device: int, stream: int | None) -> UpdateExecutor:
        from sparsegen.execute_cuda import executor_kind

        key = (device, executor_kind(device, stream))
        with self._lock:
            if key not in self._executors:
                self._executors[key] = UpdateExecutor(*key, self._builds, self.cost.time, self.update)
            return self._executors[key]

    # -------------------------------------------------------------------------------------------- judging it
    def counts(self) -> Counts:
        """Exact instruction and byte counts, for each launch and in all, for the compiled shape and steps.

        Up to ``counting.MAX_CELLS`` cells from the emulator, beyond by formula: the same numbers.
        """
        from sparsegen.updates.host import counts

        with located(user_loc()):
            return counts(self.update, self._plan(self.steps), self.shape, self.dtype, self.schedule)

    def check(self, /, *args: Any, **named: Any) -> Report:
        """Run one time step on the emulator with all checkers on.

        Host arrays as for a call (default: random numbers).  The report has ``errors`` (empty if all is well; each with
        line and remedy), ``notes``, and ``raise_if_errors()``.
        """
        from sparsegen.updates.host import check

        with located(user_loc()):
            arrays = _host(self._given(args, named)) if args or named else self._random()
            return check(self.update, self._plan(self.steps), arrays)

    def bench(self, /, *args: Any, repeats: int = 10, steps: int | None = None, **named: Any) -> BenchResult:
        """Time a call: median, spread, rate in GS/s and share of the model's bound.

        Arrays as for a call (default: random numbers).  On ``cuda`` with events on the device, after one warm-up;
        elsewhere wall time of the host, and the result says so.
        """
        from sparsegen.updates.bench import bench

        with located(user_loc()):
            count = self.steps if steps is None else positive(steps, "steps")
            given = self._given(args, named) if args or named else None
            return bench(self, given, positive(repeats, "repeats"), count)

    def _random(self, seed: int = 0) -> dict[str, Any]:
        from sparsegen.updates.host import random_arrays

        return random_arrays(self.update, self.shape, self.dtype, seed)


def _levels(value: Any, name: str, count: int) -> Sequence[Any]:
    """The arrays of a parameter: one, or a tuple of its levels, newest first; ArrayError for another number."""
    several = isinstance(value, (tuple, list))
    if count == 1 and not several:
        return (value,)
    found = len(cast("Sequence[Any]", value)) if several else 1
    if count == 1:
        what = type(cast("object", value)).__name__
        raise ArrayError(f"{name} is a {what} of {found}, but one array is needed", hint="pass the array itself")
    if found != count or not several:
        raise ArrayError(
            f"{name} is {f'{found} arrays' if several else 'one array'}, but {count} are needed",
            hint=f"pass a tuple of {count} arrays",
        )
    return cast("Sequence[Any]", value)


def _shown(update: Update, name: str) -> str:
    """An array of the plan in a message: ``u``, ``u[1]`` (a level), ``out``, ``out of u``."""
    kind, field, level = name.split(".")
    levels = dict(update.fields).get(field, 1)
    where = f"{field}[{level}]" if levels > 1 else field
    if kind == "in":
        return where
    return "out" if len(update.fields) == 1 and levels == 1 else f"out of {where}"


def _host(views: Views) -> dict[str, Any]:
    return {name: host_array(view) for name, view in views.items()}


__all__ = ["UpdateKernel"]
