"""A compiled stencil: call it on arrays, look at every level of it, check it, count it, time it."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sparsegen.arrays import ArrayLayout, ArrayView, Expect, check_together, empty_like, host_array, launch_stream
from sparsegen.compiler import MAX_CELLS, Choice, located, positive
from sparsegen.execute import ROW, VECTOR, Pitch, Plan, Programs, run_reference
from sparsegen.fastcall import FastCall, fast_call
from sparsegen.inspection import Build, BuildCache, Resources, resources
from sparsegen.ir.errors import ArrayError, DeviceError, IRError, Loc, SparsegenError
from sparsegen.target import Target
from sparsegen.where import user_loc

if TYPE_CHECKING:
    from sparsegen.backends.emulator.report import Report
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.cost.stencil import Cost
    from sparsegen.counting import Counts
    from sparsegen.dsl.stencil import Stencil
    from sparsegen.execute_cuda import CudaExecutor
    from sparsegen.measure import BenchResult
    from sparsegen.pipelines import Program
    from sparsegen.schedule import StencilSchedule

Level = Literal["op", "tile", "warp"]
_PLANS_KEPT = 64
#: How often a kernel learns another pair of layouts for its short way: callers that alternate gain nothing by it.
_LAYOUTS_LEARNT = 16


class _Field(Expect):
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
        if layout.device_kind != "host" and self._backend != "cuda":
            raise ArrayError(
                f"{self.name} is on {layout.where()}, but this kernel runs on the {self._backend}",
                hint="compile with backend='cuda', or copy the array to the host",
            )


class Kernel:
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
        self._input = _Field("u", shape, self.dtype, target.backend)
        self._output = _Field("out", shape, self.dtype, target.backend, writable=True)
        self._lock = Lock()
        self._plans: dict[tuple[int, Pitch | None], Plan] = {}
        self._executors: dict[tuple[int, str], CudaExecutor] = {}
        self._default: tuple[int, CudaExecutor] | None = None
        self._fast: FastCall | None = None
        self._learnt = 0
        if choice.schedule is None:
            return
        self._programs = Programs(stencil, shape, choice.schedule, target.profile)
        size = "x".join(map(str, shape))
        notes = (f"Schedule: {choice.schedule}", f"For: {target.profile.name}")
        self._builds = BuildCache(target.profile, f"{stencil} on {size}", notes, shape[-1])
        self._plan(steps)  # lowered now, so that a program that cannot be made is refused by compile

    # -------------------------------------------------------------------------------------------- what it is
    @property
    def device(self) -> DeviceProfile:
        """The profile that schedule and code are for."""
        return self._target.profile

    @property
    def backend(self) -> str:
        """Where a call runs: ``cuda``, ``emulator`` or ``reference``."""
        return self._target.backend

    @property
    def schedule(self) -> StencilSchedule:
        """Every choice that was made; ``str`` of it is a line that ``compile`` takes back."""
        return self._chosen()

    @property
    def cost(self) -> Cost:
        """The predicted cost of one pass (``cost.steps_per_launch`` time steps): time in seconds, terms, formula."""
        self._chosen()
        assert self._choice.cost is not None
        return self._choice.cost

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of device memory that a call of the compiled ``steps`` on packed arrays needs besides them; 0 for one
        pass.

        A second field for the levels between passes; two fields with padded rows where rows of the shape are not a
        multiple of 16 bytes and there are at least three passes.
        """
        return 0 if self._choice.schedule is None else self._plan(self.steps).workspace_nbytes

    def explain(self) -> str:
        """Why this schedule: its terms and what binds it, what was rejected and why, what would change the choice."""
        from sparsegen.explain import explain

        self._chosen()
        plan = self._plan(self.steps)
        text = explain(self, self._choice, self._target, plan)
        if plan.padded:
            text += (
                f"\npitch      levels between passes lie in two fields of the workspace, rows {plan.padded} elements "
                f"apart (a multiple of {ROW} bytes): rows of {self.shape[-1]} are not a multiple of {VECTOR} bytes"
            )
        return text

    def __repr__(self) -> str:
        size = "x".join(map(str, self.shape))
        how = str(self._choice.schedule or "no schedule")
        if self._choice.schedule and (pitch := self._plan(self.steps).padded):
            how += f", workspace pitch {pitch}"
        return f"<Kernel {self.stencil.name} {size} steps={self.steps} on {self.backend}: {how}>"

    def _chosen(self) -> StencilSchedule:
        if self._choice.schedule is None:
            assert self._choice.reason is not None
            raise self._choice.reason
        return self._choice.schedule

    # -------------------------------------------------------------------------------------------- looking at it
    def ir(self, level: Level = "warp") -> str:
        """The main program (of most steps a pass) at one level, as text: ``"op"``, ``"tile"`` or ``"warp"``."""
        from sparsegen.ir.text import print_module

        if level not in ("op", "tile", "warp"):
            raise IRError(f"no level {level!r}", loc=user_loc(), hint="one of 'op', 'tile', 'warp'")
        return print_module(getattr(self._main(), level))

    def source(self) -> str:
        """The CUDA C++ of the main program."""
        with located(user_loc()):
            return self._build().source()

    def ptx(self) -> str:
        """The PTX that nvcc makes of it; ToolchainError without nvcc."""
        with located(user_loc()):
            return self._build().compiled().ptx or ""

    def sass(self) -> str:
        """The machine code as text; ToolchainError without nvcc or a disassembler."""
        with located(user_loc()):
            return self._build().sass()

    def resources(self) -> Resources:
        """Registers, spills, shared memory and occupancy of each kernel; ToolchainError without nvcc."""
        with located(user_loc()):
            return resources(self._build(), self.device.arch)

    def export(self, path: str | Path) -> Path:
        """Write a self-contained CUDA file with a C launcher, ``NAME_run(in, out, workspace, passes, stream)``.

        For packed arrays, which the levels between passes alternate with; one pass does ``schedule.steps`` time steps.
        Returns the path; ArrayError if it cannot be written.
        """
        target = Path(path)
        try:
            self._builds.get(self._programs.get(self._chosen().steps)).export(str(target))
        except OSError as error:
            raise ArrayError(
                f"cannot write {target}: {error.strerror or error}",
                loc=user_loc(),
                hint="name a file in a folder that exists",
            ) from error
        return target

    def _main(self) -> Program:
        self._chosen()
        return self._plan(self.steps).main

    def _build(self) -> Build:
        program = self._main()
        return self._builds.get(program)

    def _plan(self, steps: int, pitch: Pitch | None = None) -> Plan:
        """``pitch``: of input and output; None for packed arrays."""
        key = (steps, pitch)
        found = self._plans.get(key)
        if found is None:
            found = self._programs.plan(steps, pitch)
            with self._lock:
                if len(self._plans) >= _PLANS_KEPT:
                    self._plans.clear()
                self._plans[key] = found
        return found

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
                out = empty_like(source)
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

    def _on_host(self, source: ArrayView, target: ArrayView, steps: int, stream: object) -> None:
        if stream is not None:
            raise DeviceError(
                f"stream={stream!r}, but this kernel runs on the {self.backend}",
                hint="leave stream away, or compile with backend='cuda'",
            )
        if self.backend == "reference":
            run_reference(self.stencil, host_array(source), host_array(target), steps)
            return
        from sparsegen.execute_emulator import run_emulator

        run_emulator(self._plan(steps), host_array(source), host_array(target))

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

        From the emulator, so the shape is limited: ScheduleError beyond ``counting.MAX_CELLS`` cells.
        """
        from sparsegen.counting import counts

        with located(user_loc()):
            self._chosen()
            return counts(self._plan(self.steps), self.shape)

    def check(self, u: Any = None) -> Report:
        """Run one pass of every program of this kernel on the emulator with all checkers on.

        ``u``: a host field (default: random numbers).  The report has ``errors`` (empty if all is well; each with line
        and remedy), ``notes``, and ``raise_if_errors()``.  All passes run the same programs, so one of each says all
        that a run can show, for this shape.
        """
        from sparsegen.counting import check

        with located(user_loc()):
            self._chosen()
            field = self._random() if u is None else host_array(self._input(u))
            return check(self._plan(self.steps), field)

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
