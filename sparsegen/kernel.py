"""A compiled stencil: call it on arrays, look at every level of it, check it, count it, time it."""

from __future__ import annotations

import math
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.arrays import ArrayLayout, ArrayView, Expect, check_together, empty_like, host_array, launch_stream
from sparsegen.callsite import user_loc
from sparsegen.compiler import Choice, grid, located, positive
from sparsegen.execute import Pitch, Plan, Programs, run_reference
from sparsegen.fastcall import FastCall, fast_call
from sparsegen.inspection import Build, BuildCache
from sparsegen.ir.errors import ArrayError, Loc, SparsegenError
from sparsegen.looking import Looking, Plans
from sparsegen.memory import DEVICE, HOST, host_room, room_for
from sparsegen.rows import MAX_CELLS
from sparsegen.target import Target

if TYPE_CHECKING:
    from sparsegen.backends.emulator.report import Report
    from sparsegen.cost.stencil import Cost
    from sparsegen.counting import Counts
    from sparsegen.dsl.stencil import Stencil
    from sparsegen.execute_cuda import CudaExecutor
    from sparsegen.explain import Explanation
    from sparsegen.measure import BenchResult
    from sparsegen.pipelines import Program
    from sparsegen.schedule import StencilSchedule

#: How often a kernel learns another pair of layouts for its short way: callers that alternate gain nothing by it.
_LAYOUTS_LEARNT = 16


class FieldArgument(Expect):
    """An argument of a kernel: on the side where the back end works, and within reach of its indices."""

    __slots__ = ("_backend",)

    def __init__(self, name: str, shape: tuple[int, ...], dtype: Any, backend: str, *, writable: bool = False) -> None:
        super().__init__(name, shape, dtype, writable=writable)
        self._backend = backend

    def _check(self, layout: ArrayLayout) -> None:
        super()._check(layout)
        pitch = layout.pitch  # of host arrays packed copies are made
        if layout.device_kind != "host" and -(-layout.span // pitch) * pitch > MAX_CELLS * self.itemsize:
            raise ArrayError(
                f"{self.name} has rows {layout.pitch} bytes apart, so that it ends beyond element {MAX_CELLS}: "
                "indices are 32 bits wide",
                hint="pass a packed copy: np.ascontiguousarray(a), or a.contiguous() in torch",
            )
        if layout.device_kind != "host" and len(layout.shape) == 3 and layout.strides[0] != layout.shape[1] * pitch:
            raise ArrayError(
                f"{self.name} has planes {layout.strides[0]} bytes apart, {layout.shape[1]} rows of {pitch} bytes: "
                "planes must follow one another",
                hint="pass a packed copy: np.ascontiguousarray(a), or a.contiguous() in torch",
            )
        if layout.device_kind != "host" and self._backend != "cuda":
            raise ArrayError(
                f"{self.name} is on {layout.where()}, but this kernel runs on the {self._backend}",
                hint="compile with backend='cuda', or copy the array to the host",
            )


class Kernel(Looking):
    """What :func:`sparsegen.compile` gives back.  Immutable to its user; every method may be called from any thread.

    ``stencil``, ``shape``, ``steps``, ``device`` (the profile), ``backend`` and ``schedule`` say what it was made of.
    """

    def __init__(
        self, stencil: Stencil, shape: tuple[int, ...], steps: int, target: Target, choice: Choice, loc: Loc | None
    ) -> None:
        from sparsegen.ir.types import DTYPES

        self.stencil, self.shape, self.steps, self.loc = stencil, shape, steps, loc
        self._target, self._choice = target, choice
        self.dtype = np.dtype(DTYPES[stencil.dtype].numpy())
        self._input = FieldArgument("u", shape, self.dtype, target.backend)
        self._output = FieldArgument("out", shape, self.dtype, target.backend, writable=True)
        self._lock = Lock()
        self._plans = Plans[Plan]()
        self._executors: dict[tuple[int, str], CudaExecutor] = {}
        self._default: tuple[int, CudaExecutor] | None = None
        self._fast: FastCall | None = None
        self._learnt = 0
        self._programs = Programs(stencil.gridded, grid(shape), choice.schedule, target.profile)
        size = "x".join(map(str, shape))
        notes = (f"Schedule: {choice.schedule}", f"For: {target.profile.name}")
        self._builds = BuildCache(target.profile, f"{stencil} on {size}", notes, shape[-1])
        self._plan(steps)  # lowered now, so that a program that cannot be made is refused by compile

    # -------------------------------------------------------------------------------------------- what it is
    @property
    def schedule(self) -> StencilSchedule:
        """Every choice that was made; ``str`` of it is a line that ``compile`` takes back."""
        return self._choice.schedule

    @property
    def cost(self) -> Cost:
        """The predicted cost of one pass (``cost.steps_per_launch`` time steps): time in seconds, terms, formula."""
        return self._choice.cost

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of device memory that a call of the compiled ``steps`` on packed arrays needs besides them; 0 for one
        pass.

        A second field for the levels between passes; two fields with padded rows where rows of the shape are not a
        multiple of 16 bytes and there are at least three passes.
        """
        return self._plan(self.steps).workspace_nbytes

    @property
    def _nbytes(self) -> int:
        """Bytes of a packed field."""
        return math.prod(self.shape) * int(self.dtype.itemsize)

    def explain(self) -> Explanation:
        """Why this schedule: its terms and what binds it, what was rejected and why, what would change the choice.

        A string, which also has ``data``, ``json()``, ``roofline()`` and ``save(path)``.
        """
        from sparsegen.explain.stencil import explain

        return explain(self, self._choice, self._target, self._plan(self.steps))

    def __repr__(self) -> str:
        size = "x".join(map(str, self.shape))
        how = str(self.schedule)
        if pitch := self._plan(self.steps).padded:
            how += f", workspace pitch {pitch}"
        return f"<Kernel {self.stencil.name} {size} steps={self.steps} on {self.backend}: {how}>"

    # -------------------------------------------------------------------------------------------- looking at it
    def export(self, path: str | Path) -> Path:
        """Write a self-contained CUDA file with a C launcher, ``NAME_run(in, out, workspace, passes, stream)``.

        For packed arrays, which the levels between passes alternate with; one pass does ``schedule.steps`` time steps.
        Returns the path; ArrayError if it cannot be written.
        """
        return self._write(path, self._builds.get(self._programs.get(self.schedule.steps)).export)

    def _main(self) -> Program:
        return self._plan(self.steps).main

    def _build(self) -> Build:
        program = self._main()
        return self._builds.get(program)

    def _plan(self, steps: int, pitch: Pitch | None = None) -> Plan:
        """``pitch``: of input and output; None for packed arrays."""
        return self._plans.get((steps, pitch), lambda: self._programs.plan(steps, pitch))

    # -------------------------------------------------------------------------------------------- running it
    def __call__(self, u: Any, out: Any = None, steps: int | None = None, stream: object = None) -> Any:
        """The field after ``steps`` time steps (default: the compiled number), in ``out`` or a new array like ``u``.

        ``u``: NumPy, torch, CuPy, pycuda, or anything with ``__cuda_array_interface__`` or DLPack; of the kernel's
        shape and dtype, its last axis packed, its rows possibly with a pitch; never written.  Device arrays are used
        where they are (code for another pitch is compiled at the first call), host arrays are copied to the GPU and
        back once.  ``out`` must not overlap ``u``; what lies between its rows is not written.  ``stream``: an integer
        handle or a stream object (``cuda`` only; default: the current stream of the array's library); on device arrays
        the call is asynchronous.

        ArrayError, before anything is written, for an array that does not fit; KernelFault, from the emulator, for a
        program that does what no GPU allows.
        """
        try:
            fast = self._fast
            if fast is not None and steps is None and stream is None and fast(u, out):
                return out
            source = self._input(u)
            count = self.steps if steps is None else positive(steps, "steps")
            if out is None:
                out = self._result(source)
            target = self._output(out)
            check_together((("u", source),), ("out", target))
            if self._target.backend == "cuda":
                self._on_gpu(source, target, count, stream)
            else:
                self._on_host(source, target, count, stream)
        except SparsegenError as error:
            if error.loc is None:
                error.loc = user_loc()
            raise
        return out

    def _result(self, source: ArrayView) -> Any:
        """A new array like the input."""
        device = source.layout.device_index
        if device is None:
            with room_for({"result": self._nbytes}, host_room, HOST):
                return empty_like(source)
        with room_for({"result": self._nbytes}, lambda: self._executor(device, None).runtime.memory(), DEVICE):
            return empty_like(source)

    def _on_host(self, source: ArrayView, target: ArrayView, steps: int, stream: object) -> None:
        self._no_stream(stream)
        u, out = host_array(source), host_array(target)
        needed = {"input": u.nbytes, "output": out.nbytes}
        if self.backend == "reference":
            with room_for(needed | {"steps": 2 * u.nbytes}, host_room, HOST):
                run_reference(self.stencil, u, out, steps)
            return
        from sparsegen.execute_emulator import run_emulator

        plan = self._plan(steps)
        with room_for(needed | {"workspace": plan.workspace_nbytes}, host_room, HOST):
            run_emulator(plan, u, out)

    def _on_gpu(self, source: ArrayView, target: ArrayView, steps: int, stream: object) -> None:
        handle = launch_stream(source, stream)
        device = source.layout.device_index
        if device is None:
            host_u, host_out = host_array(source), host_array(target)
            self._executor(self._target.gpu or 0, handle).run_host(self._plan(steps), host_u, host_out, handle)
            return
        plan = self._device_plan(source, target, steps)
        found = self._default
        executor = found[1] if not handle and found and found[0] == device else self._executor(device, handle)
        executor.run(plan, source.pointer, target.pointer, handle, source)
        if steps == self.steps and source.layout.library == "torch" and self._learnt < _LAYOUTS_LEARNT:
            launch = executor.single(plan)
            if launch is not None:
                self._learnt += 1
                self._fast = fast_call(source, target, plan.alignment, launch, executor.runtime.name == "driver")

    def _device_plan(self, source: ArrayView, target: ArrayView, steps: int) -> Plan:
        """The plan for device arrays with their pitches; ArrayError where an address does not suit it."""
        if source.layout.contiguous and target.layout.contiguous:
            plan = self._plan(steps)
        else:
            size = self.dtype.itemsize
            plan = self._plan(steps, (source.layout.pitch // size, target.layout.pitch // size))
        for name, view, needed in zip(("u", "out"), (source, target), plan.alignment, strict=True):
            if view.pointer % needed:
                raise ArrayError(
                    f"{name} starts at address {view.pointer:#x}; this schedule moves {needed} bytes at once and needs "
                    f"a multiple of {needed}",
                    hint="pass a copy (a.clone() in torch): fresh allocations are aligned",
                )
        return plan

    def _executor(self, device: int, stream: int | None) -> CudaExecutor:
        from sparsegen.execute_cuda import CudaExecutor, executor_kind

        key = (device, executor_kind(device, stream))
        with self._lock:
            if key not in self._executors:
                self._executors[key] = CudaExecutor(*key, self._builds, self.cost.time)
            if not stream:
                self._default = (device, self._executors[key])
            return self._executors[key]

    # -------------------------------------------------------------------------------------------- judging it
    def counts(self) -> Counts:
        """Exact instruction and byte counts, for each launch and in all, for the compiled shape and steps.

        Up to ``counting.MAX_CELLS`` cells from the emulator, beyond by formula: the same numbers, in a second or so.
        ScheduleError for a larger field whose levels between passes have padded rows, which no formula counts.
        """
        from sparsegen.counting import counts

        with located(user_loc()):
            return counts(self._plan(self.steps), self._programs)

    def check(self, u: Any = None) -> Report:
        """Run one pass of every program of this kernel on the emulator with all checkers on.

        ``u``: a host field (default: random numbers).  The report has ``errors`` (empty if all is well; each with line
        and remedy), ``notes``, and ``raise_if_errors()``.  All passes run the same programs, so one of each says all
        that a run can show, for this shape.
        """
        from sparsegen.counting import check

        with located(user_loc()):
            plan, nbytes = self._plan(self.steps), self._nbytes
            with room_for({"input": nbytes, "output": nbytes, "copies": 2 * nbytes}, host_room, HOST):
                field = self._random() if u is None else host_array(self._input(u))
                return check(plan, field)

    def bench(self, u: Any = None, repeats: int = 10, steps: int | None = None) -> BenchResult:
        """Time a call: median, spread, rate in GS/s and share of the model's bound.

        On ``cuda`` with events on the device, after one warm-up, with new random input for each repeat unless ``u`` (a
        host or device array) is given; elsewhere wall time of the host, and the result says so.
        """
        from sparsegen.measure import bench

        with located(user_loc()):
            count = self.steps if steps is None else positive(steps, "steps")
            return bench(self, None if u is None else self._input(u), positive(repeats, "repeats"), count)

    def _random(self, seed: int = 0) -> Any:
        return np.random.default_rng(seed).random(self.shape).astype(self.dtype)
