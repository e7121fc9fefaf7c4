"""``k.run``: many time steps, of which some are looked at, with checkpoints to go on from.

A run is a chain of whole passes from step 0 on: of T time steps each (``k.schedule.steps``), whatever is looked at and
wherever it was interrupted.  A frame between two passes is worked out beside the chain, from the last pass before it.
So a frame's numbers depend on its step alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sparsegen.arguments import positive
from sparsegen.arrays import copied, describe, host_array, launch_stream
from sparsegen.callsite import located, user_loc
from sparsegen.checkpoint import Checkpoints, State
from sparsegen.families.update.base import family
from sparsegen.frame import Frame
from sparsegen.ir.errors import ArrayError, ProductError, RunError
from sparsegen.run.emulator import estimate
from sparsegen.run.host import HostArray
from sparsegen.run.progress import Advance, bar
from sparsegen.run.slow import say_if_long, silence
from sparsegen.schedule import UpdateSchedule

if TYPE_CHECKING:
    from typing_extensions import Self

    from sparsegen.calls.grid import GridCalls
    from sparsegen.kernel import Kernel

#: Passes between two moves of the bar at first, and the seconds that should lie between them.
_PASSES, _SECONDS = 4, 0.5
Frames = Generator[Frame, None, None]


def run(
    self: Kernel,
    /,
    *args: Any,
    steps: int | None = None,
    every: int | None = None,
    initial: bool = False,
    progress: bool = True,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    **named: Any,
) -> Frames:
    """Frames of ``steps`` time steps, one every ``every`` of them and the last one always at ``steps``.

    Arrays as for a call, by position or by name, and numbers for scalars, one or one for each of ``steps``; after those
    by position ``steps`` may stand too, as in ``k.run(u0, 10_000, every=50)``.  A parameter that is called like an
    option is given by position.  ``steps``: default the compiled number; ``every``: default ``steps``; ``initial``: a
    frame of step 0 comes first.  A frame has ``step``, ``fields`` as a call gives them back, and ``frame["u"]``.  A bar
    on stderr shows the progress (rich; in notebooks tqdm) unless that is no terminal or ``progress`` is False.

    ``checkpoint``: a file (``.npz``, or with zarr ``.zarr.zip``) that keeps the state after every ``checkpoint_every``
    steps (default: ``every``) and at the end.  It is written after the frame of that step was taken, aside, and then
    renamed: a run that is killed at any moment leaves a whole one.  ``resume``: go on from it, with frames of later
    steps only, from step 0 if there is no file; arrays of fields then say only where the results go.  Numbers for
    scalars are not kept: those of all steps from 0 on are given again, and not compared.

    The run makes whole passes of T = ``k.schedule.steps`` time steps from step 0 on, and works out a frame between two
    passes beside them.  So the numbers of a frame depend on its step alone, not on ``every``, and a run that goes on
    from a checkpoint has those of one that was never interrupted, bit for bit, with the same schedule and back end.
    Frame n is ``k(u0, steps=n)`` bit for bit where T divides n, and always with ``resident`` schedules and on
    ``backend="reference"``.  Else a call makes the steps that fill no pass first, the run makes them last: linear
    stencils that fuse steps may then differ by the rounding of their sums, and those in f16 and bf16, which are rounded
    once a pass, by the rounding of their type.

    RunError for a checkpoint that is broken, of another kernel (formula, shape, type, boundary), of other coefficients,
    or further than ``steps``; SlowRunWarning for a run that is expected to take longer than a minute.
    """
    with located(user_loc()):
        if self.problem.grid is None:
            raise ProductError("a product has no time steps to run", hint="call the kernel: k(x)")
        made = Run.begun(
            self, args, named, steps=steps, every=every, checkpoint=checkpoint, checkpoint_every=checkpoint_every,
            resume=resume,
        )  # fmt: skip
        return made.frames(initial, progress)


class Run:
    """One run: what it reads, and the chain of whole passes.

    ``at``: the time step that is done; ``base``: the one that the chain has reached, of which ``fields`` are, in the
    form that a call gives back; ``start``: where the chain began;
    ``keeps``: whether there is a checkpoint.
    """

    #: Whether a bar may move between the steps at which something is done.
    between = True

    @classmethod
    def begun(
        cls, kernel: Any, args: Sequence[Any], named: Mapping[str, Any], *, steps: int | None, every: int | None,
        checkpoint: str | Path | None, checkpoint_every: int | None, resume: bool,
    ) -> Self:  # fmt: skip
        """The run that a user asks for in the words of ``k.run``, ready to hand out frames."""
        calls: GridCalls = kernel._calls
        arrays = len([name for name in calls.positional if name not in calls.OPTIONS])
        if len(args) == arrays + 1 and steps is None:
            args, steps = args[:arrays], args[arrays]
        if len(args) > arrays:
            raise ArrayError(f"{len(args)} arrays for {arrays}", hint="name all options: steps=..., every=...")
        count = kernel.steps if steps is None else positive(steps, "steps")
        each = count if every is None else positive(every, "every")
        made = cls(kernel, args, named, count, each)
        if checkpoint is not None:
            kept = each if checkpoint_every is None else positive(checkpoint_every, "checkpoint_every")
            made.keep(checkpoint, kept, resume)
        elif resume or checkpoint_every is not None:
            name = "resume=True" if resume else f"checkpoint_every={checkpoint_every!r}"
            raise RunError(f"{name} without a checkpoint", hint="name its file: checkpoint='run.npz'")
        made.lower()
        return made

    def __init__(
        self, kernel: Kernel, args: Sequence[Any], named: Mapping[str, Any], steps: int, every: int,
        calls: GridCalls | None = None,
    ) -> None:  # fmt: skip
        """``calls``: those of one step of the chain, where they are not the kernel's."""
        self.kernel, self.steps, self.every, self.kept_every = kernel, steps, every, steps
        self.calls = cast("GridCalls", kernel._calls) if calls is None else calls
        values, options = self.calls.values(args, named, {})
        if refused := [name for name, value in options.items() if value is not None]:
            raise ArrayError(f"{refused[0]} means nothing to a run", hint=f"leave {refused[0]} away")
        self.inputs = self.calls.at(steps).views(values)
        self.names = tuple(self.calls.fields)
        state = [values.pop(name) for name in self.names]
        state = [tuple(levels) if isinstance(levels, list) else levels for levels in state]
        self.fields: Any = tuple(state) if len(state) > 1 else state[0]
        self.numbers = self.calls.each_step(values, steps)
        self.given = {name: value for name, value in values.items() if name not in self.calls.named}
        self.at = self.base = self.start = 0
        self.worked, self.took, self.said = 0, 0.0, False
        #: What receivers have recorded of the chain's steps, in parts.
        self.records: list[dict[str, Any]] = []
        self.file: Checkpoints | None = None
        self.keeps = False
        schedule = kernel.schedule
        alike = kernel.backend == "reference" or (isinstance(schedule, UpdateSchedule) and family(schedule).whole)
        self.pass_steps: int = 1 if alike else schedule.steps

    def lower(self) -> None:
        """Refuse a rest for which there is no pass before the first step: ScheduleError."""
        if self.kernel.backend != "reference":
            ends = (*range(self.every, self.steps, self.every)[: self.pass_steps], self.steps)
            for rest in {(n - self.start) % self.pass_steps for n in ends if n > self.at} - {0}:
                self.kernel._plan(rest)

    # -------------------------------------------------------------------------------------------- frames
    def frames(self, initial: bool, progress: bool) -> Frames:
        """Every frame that is not yet handed out."""
        self._expect()
        with bar(self.calls.problem.name, self.at, self.steps) if progress else nullcontext() as shown:
            if initial and self.at == 0:
                yield Frame(0, self.fields, self.names)
            if self.at == self.steps:
                yield self._frame()
            passes = _PASSES
            while self.at < self.steps:
                passes = self._advance(passes, shown)
                if self.at == self.steps or self.at % self.every == 0:
                    yield self._frame()
                if self.keeps and (self.at == self.steps or self.at % self.kept_every == 0):
                    self._save()

    def _advance(self, passes: int, shown: Advance | None) -> int:
        """On to the next step at which something is done; how many passes may lie between two moves of the bar."""
        ends = [self.steps, *((self.at // n + 1) * n for n in (self.every, self.kept_every))]
        chunk = self.base + passes * self.pass_steps
        stop = min(*ends, chunk) if shown is not None and self.between else min(ends)
        whole = (stop - self.base) // self.pass_steps * self.pass_steps
        before = time.perf_counter()
        if whole:
            (self.fields, recorded), self.base = self._after(whole), self.base + whole
            self.records.append(recorded)
        self.at = stop
        if shown is not None:
            self._wait(self.fields)
            shown(stop)
        took = time.perf_counter() - before
        self.took, self.worked = self.took + took, self.worked + whole
        self._expect_more(took, whole)
        return passes * 2 if stop == chunk and took < _SECONDS else passes

    def _frame(self) -> Frame:
        """The frame of the present step."""
        before = time.perf_counter()
        rest = self.at - self.base
        fields, recorded = self._after(rest) if rest else (self.fields, {})
        self._wait(fields)
        took, worked = self.took + time.perf_counter() - before, self.worked + rest
        self.took, self.worked = 0.0, 0
        rate = worked * math.prod(self.kernel.shape) / took if worked and took else None
        parts = [*self.records, *([recorded] if rest else [])][:: -1 if self.calls.backwards else 1]
        records = {name: np.concatenate([part[name] for part in parts], axis=-2) for name in parts[0]} if parts else {}
        return Frame(self.at, fields, self.names, rate, records)

    def _after(self, steps: int) -> tuple[Any, dict[str, Any]]:
        """The fields so many steps after the chain's present ones, and what receivers have recorded meanwhile."""
        with silence():
            made = self._call(self._arguments(self.base, self.base + steps), steps)
        fields, records = self.calls.parted(made)
        return fields, {name: copied(a) for name, a in records.items()}

    def _call(self, arguments: Mapping[str, Any], steps: int) -> Any:
        return self.kernel(**arguments, steps=steps)

    def _arguments(self, first: int, last: int) -> dict[str, Any]:
        """What a call from one time step to another is given by name."""
        state = self.fields if len(self.names) > 1 else (self.fields,)
        numbers = self.calls.between(self.numbers, first, last)
        return {**self.given, **numbers, **dict(zip(self.names, state, strict=True))}

    # -------------------------------------------------------------------------------------------- how long
    def _expect(self) -> None:
        """Say so if the run will take long, where that is known before."""
        kernel, left = self.kernel, self.steps - self.at
        if not left or kernel.backend == "reference":
            return
        if kernel.backend == "emulator":
            whole = max(1, self.every // self.pass_steps) * self.pass_steps
            some = min(left, whole)  # a call that the run makes; a plan of all steps may be long
            plan, times = kernel._plan(some), left / some
            expected = times * estimate(plan, {}, int(times * self.calls.cells))
            work = self.calls.work(round(times * plan.passes))
        else:
            expected, work = kernel.problem.seconds(kernel.cost, left), self._work(left)
        self.said = say_if_long(expected, "GPU" if kernel.backend == "cuda" else kernel.backend, work)

    def _expect_more(self, took: float, steps: int) -> None:
        """Say so once the first steps show that those that are left will take long."""
        if not self.said and steps and self.kernel.backend != "cuda":
            left = self.steps - self.at
            self.said = say_if_long(took / steps * left, self.kernel.backend, self._work(left))

    def _work(self, steps: int) -> str:
        cells = "x".join(map(str, self.kernel.problem.stacked))
        remedy = "" if self.keeps else "; checkpoint='run.npz' lets it go on where it is interrupted"
        return f"{steps} time steps of {cells} cells{remedy}"

    # -------------------------------------------------------------------------------------------- checkpoints
    def keep(self, path: Any, every: int, resume: bool) -> None:
        """Keep the state in a file after every so many steps; go on from what it holds."""
        self.kept_every, self.keeps = every, True
        given = {name: copied(a) for name, a in self.given.items()}
        if (state := self._opened(path, given, resume)) is None:
            return
        kernel = self.kernel
        self.fields, _ = self.calls.parted(kernel._new(self.inputs, self.pass_steps))
        for name, a in self._arrays().items():
            view = describe(a)
            if view.layout.device_index is None:
                host_array(view)[...] = state.arrays[name]
            else:
                stream, held = launch_stream(view), np.ascontiguousarray(state.arrays[name])
                kernel._executor(view.layout.device_index, stream).runtime.to_device(view.pointer, held, stream)
        self.at, self.base, self.start = state.step, state.at, state.at

    def _opened(self, path: Any, given: Mapping[str, HostArray], resume: bool) -> State | None:
        """Make the file what a checkpoint is kept in; the state that it holds, if the run goes on from one.

        ``given``: the coefficients of the whole domain.
        """
        kernel, shape = self.kernel, (self.kernel.problem.stacked, self.kernel.dtype)
        fields = {f"{name}.{i}": shape for name, levels in self.calls.fields.items() for i in range(len(levels))}
        how = f"{kernel.schedule} on {kernel.backend}"
        self.file = Checkpoints(path, kernel.problem.identity(), how, given, fields)
        if not resume or (state := self.file.load()) is None:
            return None
        if state.step > self.steps:
            raise RunError(
                f"the checkpoint {self.file.path} has done {state.step} time steps, and steps={self.steps}",
                hint=f"pass steps={state.step} or more: they count from the start of the run",
            )
        return state

    def _save(self) -> None:
        """Write the state to the file."""
        assert self.file is not None
        self.file.save(State(self.at, self.base, {name: copied(a) for name, a in self._arrays().items()}))

    def _arrays(self) -> dict[str, Any]:
        """The arrays of the chain's fields: ``u.0`` is the newest level of u."""
        made, fields = self.calls.of_fields(self.fields), self.calls.fields
        return {f"{name}.{i}": made[array] for name, levels in fields.items() for i, array in enumerate(levels)}

    def _wait(self, fields: Any) -> None:
        """Until a GPU has worked out the fields."""
        view = describe(next(iter(self.calls.of_fields(fields).values())))
        if view.layout.device_index is not None:
            stream = launch_stream(view)
            self.kernel._executor(view.layout.device_index, stream).runtime.synchronize(stream)
