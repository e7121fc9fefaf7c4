"""A compiled kernel: call it on arrays, look at every level of it, check it, count it, time it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsegen import counting, measure
from sparsegen.adjoint.method import WithAdjoint
from sparsegen.arguments import positive
from sparsegen.arrays import describe, host_array, launch_stream
from sparsegen.backends.cuda.export import Files
from sparsegen.backends.emulator.report import Report
from sparsegen.calls import Calls, calls_of
from sparsegen.callsite import located, user_loc
from sparsegen.exporting import exported
from sparsegen.inspection import Build, Inspected
from sparsegen.ir.errors import ArrayError, DeviceError, Loc, ProductError, ScheduleError, SparsegenError, StencilError
from sparsegen.ir.op_update import SCALARS
from sparsegen.memo import Memo
from sparsegen.memory import DEVICE, HOST, host_room, room_for
from sparsegen.notebook import facts
from sparsegen.pipelines import Program
from sparsegen.plan import Plan
from sparsegen.problem import Problem
from sparsegen.products.dense import DenseProduct
from sparsegen.run import emulator
from sparsegen.run.cuda import Executor, executor_kind
from sparsegen.run.fast import Call, FastCall, fast_call, library_call
from sparsegen.running import run
from sparsegen.stability import Stability, growth
from sparsegen.target import Target
from sparsegen.unstable import Watch
from sparsegen.views import ArrayView

if TYPE_CHECKING:
    from sparsegen.explain.explanation import Explanation

#: How often a kernel learns other layouts for its short way: callers that alternate gain nothing by it.
_LAYOUTS_LEARNT = 16
#: Plans that are kept for other steps and other layouts of arrays.
_PLANS_KEPT = 64
Views = Mapping[str, ArrayView]
Scalars: TypeAlias = "npt.NDArray[Any]"


class Kernel(Inspected, WithAdjoint):
    """What :func:`sparsegen.compile` gives back.  Immutable to its user; every method may be called from any thread.

    ``problem`` says what it computes and ``shape`` its sizes (cells of each axis, or M, K and n of a product);
    ``batch`` is how many such grids a call works on, the first axis of its arrays (None: they have none);
    ``stencil``, ``update`` or ``product`` is what was described.  ``steps``, ``device`` (the profile), ``backend`` and
    ``schedule`` say what else it was made of.
    """

    def __init__(self, problem: Problem, steps: int, target: Target, choice: Any, loc: Loc | None) -> None:
        self.problem, self.shape, self.steps, self.loc = problem, problem.shape, steps, loc
        self.batch = problem.batch.items if problem.batch else None
        self._target, self._choice = target, choice
        self._calls: Calls = calls_of(problem, target.backend).at(steps)
        self.dtype = self._calls.dtype
        self._lock = Lock()
        self._executors: dict[tuple[int, str], Executor] = {}
        self._default: tuple[int, Executor] | None = None
        self._fast: FastCall | None = None
        self._learnt = 0
        self._watch = Watch(problem.described)
        self._library = DenseProduct(problem.what) if self.schedule.family == "dense" else None
        self._programs = Memo(partial(self._calls.program, choice.schedule, target.profile))
        self._plans: Memo[Plan] = Memo(partial(self._calls.plan, self._programs, choice.schedule), _PLANS_KEPT)
        self._notes = (f"Schedule: {choice.schedule}", f"For: {target.profile.name}")
        build = partial(_build, self._calls, target.profile.arch, self._notes)  # no circle back to the kernel
        self._builds = Memo(build)
        if self._library is None:
            self._plan(steps)  # lowered now, so that a program that cannot be made is refused by compile

    # -------------------------------------------------------------------------------------------- what it is
    @property
    def stencil(self) -> Any:
        """The described stencil of a stencil's kernel; ``update`` and ``product`` are called so for those."""
        return self.problem.described

    update = product = stencil

    @property
    def schedule(self) -> Any:
        """Every choice that was made; ``str`` of it is a line that ``compile`` takes back."""
        return self._choice.schedule

    @property
    def cost(self) -> Any:
        """The predicted cost of one pass (``cost.steps_per_launch`` time steps of a stencil or an update), or of one
        product: time in seconds, terms, formula."""
        return self._choice.cost

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of device memory that a call of the compiled ``steps`` on packed arrays needs besides them (and W).

        Of a stencil 0 for one pass; a second field for the levels between passes; two fields with padded rows where
        rows of the shape are not a multiple of 16 bytes and there are at least three passes.  Of an update those arrays
        that passes write besides what is given back (see ``calls/update.py``).  Of a product partial sums, where
        ``splits`` > 1; with ``nm_gather`` and ``nm_decode`` an x whose rows are no multiples of 16 bytes, in rows that
        are.
        """
        return 0 if self._library else self._plan(self.steps).workspace_nbytes

    def explain(self) -> Explanation:
        """Why this schedule: its terms and what binds it, what was rejected and why, what would change the choice.

        A string, which also has ``data``, ``json()``, ``roofline()`` and ``save(path)``.
        """
        from sparsegen.explain.kinds import explain  # the pages and pictures, which a call never needs

        return explain(self, self._choice, self._target, None if self._library else self._plan(self.steps))

    def __repr__(self) -> str:
        size, how = "x".join(map(str, self.shape)), str(self.schedule)
        size += f" batch={self.batch}" if self.batch else ""
        if self.problem.grid is None:
            return f"<{self._calls.kind} {size} {self.problem.dtype} on {self.backend}: {how}>"
        if pitch := self._plan(self.steps).padded:
            how += f", workspace pitch {pitch}"
        return f"<{self._calls.kind} {self.problem.name} {size} steps={self.steps} on {self.backend}: {how}>"

    def _repr_html_(self) -> str:
        from sparsegen.explain.units import seconds

        rows = {
            "computes": self.problem.name if self.problem.grid else str(self.problem.what),
            "size": " × ".join(map(str, self.shape)), "type": self.problem.dtype,
            **({"batch": self.batch} if self.batch else {}),
            **({"time steps": self.steps} if self.problem.grid else {}),
            "schedule": self.schedule, "for": self.device.name, "runs on": self.backend,
            "predicted": f"{seconds(self.cost.time)} a launch, bound by {self.cost.binds}",
        }  # fmt: skip
        return facts(self._calls.kind, rows.items())

    def _main(self) -> Program:
        return self._plan(self.steps).main

    def _exported(self, name: str) -> Files:
        plan, calls, arch = self._plan(self.steps), self._calls, self._target.profile.arch
        return exported(plan, name, calls, calls.origins(self.schedule), self._notes, arch)

    def weights(self) -> dict[str, Any]:
        """Of a product the arrays of W as an exported file takes them: by name, on the host, flat; else nothing."""
        with located(user_loc()):
            return self._calls.fixed_host(self.schedule)

    def _plan(self, steps: int, variant: Hashable = None, scalars: Scalars | None = None) -> Plan:
        """``variant``: of the arrays of a call; None for arrays packed by rows.  ``scalars``: those of a call; some
        where there is none."""
        if self._library is not None:
            raise ScheduleError(
                "a dense product is the library's own: it has no program of ours",
                hint="compile with another schedule, as sg.schedules(product) lists them",
            )
        plan = self._plans.get(steps, variant)
        return plan.of(self._calls.scalars(self._calls.some_scalars(steps), steps) if scalars is None else scalars)

    # -------------------------------------------------------------------------------------------- running it
    def __call__(
        self, /, *args: Any, out: Any = None, steps: int | None = None, stream: object = None, **named: Any
    ) -> Any:
        """The result for the arrays of a call, in ``out`` or new arrays like the first input.

        A stencil, ``k(u, out, steps, stream)``: the field after ``steps`` time steps (default: the compiled number).
        An update: an array for each field and coefficient, by position or by name; for a field of several levels a
        tuple, newest first; by name a number, or an array of one a time step, for each scalar.  Back comes for each
        field an array, or a tuple of its newest levels; of several fields a tuple of these; ``out`` has the same form.
        With sources and receivers (:meth:`sparsegen.Update.with_sites`) each source's signal [steps, points] is given
        by name, and back comes a tuple: the fields' results, and a record [steps, points] for each group of receivers.
        Of a batch every array has the items first, signals and records too, but those of ``shared`` coefficients and
        signals; scalars are the same for all.
        A product, ``k(x, out, bias=..., scale=..., residual=...)``: y [M, n] for x [K, n],
        in x's order; x, ``out`` and ``residual`` are packed by rows or by columns (the transpose of a packed [n, K]
        array, as a linear layer has it), ``residual`` in the order of ``out``; ``bias`` and ``scale`` have an element a
        row of W; ``scale`` may also be one number, or an array of one element.  Of several matrices a tuple comes back:
        parts of one such y.  Of experts ``counts`` or ``offsets`` say which columns are whose.

        Arrays are of NumPy, torch, CuPy, pycuda, or anything with ``__cuda_array_interface__`` or DLPack, of the
        kernel's shape and dtype; fields have their last axis packed, rows possibly with a pitch, and what lies between
        rows is not written.  Inputs are never written, and no ``out`` may overlap them, nor another ``out``.  Device
        arrays are used where they are (code for another pitch or order is compiled at the first call), host arrays are
        copied to the GPU and back once.  ``stream``: an integer handle or a stream object (``cuda`` only; default: the
        current stream of the first array's library); on device arrays the call is asynchronous.

        ArrayError, before anything is written, for an array that does not fit; KernelFault, from the emulator, for a
        program that does what no GPU allows.  UnstableWarning, once, for a step ``dt`` that is larger than a linear
        scheme bears with the coefficients of the first call.
        """
        try:
            fast = self._fast
            if fast is not None and steps is None and stream is None:
                found = fast(args, out, named)
                if found is not None:
                    return found
            return self._call(args, named, {"out": out, "steps": steps, "stream": stream})
        except SparsegenError as error:
            if error.loc is None:
                error.loc = user_loc()
            raise

    def _call(self, args: tuple[Any, ...], named: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        values, chosen = self._calls.values(args, named, options)
        steps, stream = chosen.get("steps"), chosen["stream"]
        count = self.steps if steps is None else positive(steps, "steps")
        calls = self._calls.at(count)
        inputs = calls.views(values)
        scalars = calls.scalars(values, count)
        if not self._watch.done:
            self._watch.called(values, next(iter(inputs.values())).layout, stream)
        made = self._new(inputs, count) if chosen["out"] is None else chosen["out"]
        results = {name: calls.arguments[name](a) for name, a in calls.results(made).items()}
        calls.apart(inputs, results)
        if self.backend != "cuda":
            self._on_host(inputs, results, count, stream, scalars)
            return calls.back(made)
        self._on_gpu({**inputs, **results}, count, stream, scalars)
        plain = scalars is None and calls is self._calls and (self._library is not None or not self._plan(count).rows)
        learn = plain and count == self.steps and len(results) == 1 and self._learnt < _LAYOUTS_LEARNT
        first = next(iter(inputs.values())).layout
        if learn and first.device_index is not None and first.library == "torch":
            self._learn(args, named, inputs, results)
        return calls.back(made)

    def _new(self, inputs: Views, steps: int) -> Any:
        """New arrays for a result of so many time steps."""
        calls = self._calls.at(steps)
        device = next(iter(inputs.values())).layout.device_index
        free, where = host_room, HOST
        if device is not None and self._library is None:
            free, where = (lambda: self._executor(device, None).runtime.memory()), DEVICE
        with room_for({"result": sum(a.nbytes for a in calls.outputs.values())}, free, where):
            return calls.new(inputs)

    def _on_host(
        self, inputs: Views, results: Views, steps: int, stream: object, scalars: Scalars | None = None
    ) -> None:
        calls = self._calls.at(steps)
        if stream is not None:
            raise DeviceError(
                f"stream={stream!r}, but this kernel runs on the {self.backend}",
                hint="leave stream away, or compile with backend='cuda'",
            )
        given, new = _host(inputs), _host(results)
        needed = {calls.labels.get(name, name): a.nbytes for name, a in {**given, **new}.items()}
        if self.backend == "reference":
            with room_for(needed | calls.reference_room(), host_room, HOST):
                for name, a in calls.reference(_with(given, scalars), steps).items():
                    new[name][...] = a
            return
        if self._library is not None:
            raise ArrayError(
                f"schedule='dense' is the product of torch or CuPy on a GPU, this kernel runs on the {self.backend}",
                hint="compile with another schedule, as sg.schedules(product) lists them, or with backend='cuda' and "
                "torch or CuPy arrays",
            )
        plan = self._plan(steps, calls.variant({**inputs, **results}, copied=True), scalars)
        with room_for(needed | {"workspace": plan.workspace_nbytes}, host_room, HOST):
            emulator.run_plan(plan, given | calls.fixed_host(self.schedule), new, calls.work(plan.passes), calls.cells)

    def _on_gpu(self, views: Views, steps: int, stream: object, scalars: Scalars | None = None) -> None:
        first = next(iter(views.values()))
        if first.layout.device_index is not None or self._library is not None:
            self._prepared(views, steps, stream, scalars)()
            return
        handle = launch_stream(first, stream)
        plan = self._plan(steps, self._calls.variant(views, copied=True), scalars)
        given, new = ({n: views[n] for n in names} for names in (self._calls.inputs, self._calls.outputs))
        executor = self._executor(self._target.gpu or 0, handle)
        executor.run_host(plan, _host(given), _host(new), self._calls.labels, handle)

    def _prepared(
        self, views: Views, steps: int, stream: object = None, scalars: Scalars | None = None
    ) -> Callable[[], None]:
        """What enqueues the work on device arrays; ArrayError where an address does not suit the plan."""
        first = next(iter(views.values()))
        handle = launch_stream(first, stream)
        if self._library is not None:
            return partial(self._library.run, views, handle)
        plan = self._device_plan(views, steps, scalars)
        executor = self._executor(first.layout.device_index or 0, handle)
        return partial(executor.run, plan, {name: view.pointer for name, view in views.items()}, handle, first)

    def _device_plan(self, views: Views, steps: int, scalars: Scalars | None = None) -> Plan:
        """The plan for device arrays; ArrayError where an address does not suit it."""
        plan = self._plan(steps, self._calls.variant(views), scalars)
        for name, view in views.items():
            if view.pointer % plan.alignment[name]:
                raise ArrayError(
                    f"{self._calls.arguments[name].name} starts at address {view.pointer:#x}; this schedule moves "
                    f"{plan.alignment[name]} bytes at once and needs a multiple of {plan.alignment[name]}",
                    hint="pass a copy (a.clone() in torch): fresh allocations are aligned",
                )
        return plan

    def _executor(self, device: int, stream: int | None) -> Executor:
        found = self._default
        if not stream and found is not None and found[0] == device:
            return found[1]
        key = (device, executor_kind(device, stream))
        with self._lock:
            if key not in self._executors:
                fixed = partial(self._calls.fixed, self.schedule)
                self._executors[key] = Executor(*key, self._builds, self.cost.time, fixed)
            if not stream:
                self._default = (device, self._executors[key])
            return self._executors[key]

    def _learn(self, args: tuple[Any, ...], named: Mapping[str, Any], inputs: Views, results: Views) -> None:
        """Make the short way for calls like one that has been done."""
        views, first = {**inputs, **results}, next(iter(inputs.values()))
        ((name, result),) = results.items()
        if self._library is not None:
            self._learnt += 1
            multiply, turned = self._library.on_torch(first.layout.device_index or 0), self._calls.turned(inputs)
            self._shorten(fast_call(library_call(args, named, inputs, (name, result), turned, multiply)))
            return
        plan = self._device_plan(views, self.steps)
        executor = self._executor(first.layout.device_index or 0, launch_stream(first))
        if (single := executor.single(plan)) is None:
            return
        self._learnt += 1
        self._shorten(
            fast_call(
                Call(
                    args, named, inputs, (name, result), plan.alignment, *single, executor.fixed,
                    {name: space.nbytes for name, space in plan.workspaces.items()}, executor.kept(plan),
                    self._calls.turned(inputs), executor.runtime.name == "driver",
                )
            )
        )  # fmt: skip

    def _shorten(self, known: FastCall | None) -> None:
        """Take the short way from now on, if there is one."""
        self._fast = self._fast if known is None else self._calls.short(known)

    run = run

    # -------------------------------------------------------------------------------------------- judging it
    def counts(self) -> counting.Counts:
        """Instruction and byte counts, for each launch and in all, of a call of the compiled steps on packed arrays.

        From the emulator: one block of each kind of a launch, times how many there are, in seconds for any size.
        Exact, but for what the places of W's zeros decide (bank conflicts of the decode, bytes and sectors of the
        copies of values) if W has more than 2^24 elements: an estimate from a part of the blocks, see ``sampled``.
        """
        with located(user_loc()):
            return counting.counts(self._plan(self.steps), self._calls.deciding(self.schedule))

    def check(self, /, *args: Any, **named: Any) -> Report:
        """Run one pass of every program of this kernel on the emulator with all checkers on.

        Host arrays as for a call (default, and for what a product needs besides x: random numbers).  The report has
        ``errors`` (empty if all is well; each with line and remedy), ``notes`` (also of sums of these arrays that wrap
        in an int32 result), and ``raise_if_errors()``.  All passes run the same programs, so one of each says all that
        a run can show, for this shape.
        """
        with located(user_loc()):
            plan, calls = self._plan(self.steps), self._calls
            needed = {calls.labels.get(n, n): a.nbytes for n, a in calls.arguments.items()}
            with room_for(needed | {"copies": sum(needed.values())}, host_room, HOST):
                given = _host(self._some(args, named))
                if args or named:  # of another order perhaps
                    out = {name: describe(np.empty(a.shape, a.dtype)) for name, a in calls.outputs.items()}
                    views = {**{name: describe(a) for name, a in given.items()}, **out}
                    plan = self._plan(self.steps, calls.variant(views, copied=True))
                tables = calls.fixed_host(self.schedule)
                report = emulator.check(plan, given | tables, partial(calls.reference, _with(given, plan.scalars)))
                report.notes.extend(calls.remarks(given))
                return report

    def bench(self, /, *args: Any, repeats: int = 10, steps: int | None = None, **named: Any) -> measure.BenchResult:
        """Time a call: median, spread, rate in GS/s (of a product bandwidth of W's format) and share of the model's
        bound.

        Host or device arrays as for a call (default, and for what a product needs besides x: random numbers; of a
        stencil other ones for each repeat).  On ``cuda`` with events on the device, after one warm-up; elsewhere wall
        time of the host, and the result says so.
        """
        with located(user_loc()):
            count = self.steps if steps is None else positive(steps, "steps")
            error = ProductError if self.problem.grid is None else StencilError
            given = self._some(args, named) if args or named else None
            return measure.bench(self, given, positive(repeats, "repeats", error), count)

    def stability(self, /, **coefs: Any) -> Stability:
        """Whether errors grow from step to step, by von Neumann: :func:`sparsegen.growth` of what it computes.

        ``coefs``: a number or an array for each coefficient and scalar; if a scalar ``dt`` is not given, its largest
        stable value is found.  StencilError for formulas that are not linear.
        """
        return growth(self.problem.described, **coefs)

    def random(self, seed: int = 0) -> dict[str, Any]:
        """Random host arrays for a call by the names of its parameters, and some numbers for those that are numbers, as
        in ``k(**k.random())``."""
        with located(user_loc()):
            arrays = self._calls.by_parameter(self._calls.random(positive(seed, "seed", least=0)))
            return {**arrays, **self._calls.some_scalars(self.steps)}

    def _some(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, ArrayView]:
        """The inputs that are given, and random ones in place of those that may be left out."""
        calls = self._calls
        if not args and not named:
            return {name: describe(a) for name, a in calls.random().items()}
        values, _ = calls.values(args, named, {})
        return calls.filled(calls.views(values, some=True))


def _build(calls: Calls, arch: str, notes: tuple[str, ...], program: Program) -> Build:
    """A program on its way to the GPU; ``notes``: what the head of a source says besides the notes on the program."""
    return Build(program, arch, str(calls.problem), [*notes, *calls.notes(program)])


def _with(arrays: dict[str, Any], scalars: Scalars | None) -> dict[str, Any]:
    """Arrays, and the scalars of the steps by their role."""
    return arrays if scalars is None else {**arrays, SCALARS: scalars}


def _host(views: Views) -> dict[str, Any]:
    return {name: host_array(view) for name, view in views.items()}


#: The names that kernels of updates and of products have in the public API.
UpdateKernel: TypeAlias = Kernel
SpmmKernel: TypeAlias = Kernel
AttentionKernel: TypeAlias = Kernel
