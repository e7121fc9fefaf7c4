"""A compiled sparse product: call it on arrays, look at every level of it, check it, count it, time it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.arrays import ArrayView, check_together, describe, empty_like, host_array, launch_stream
from sparsegen.callsite import user_loc
from sparsegen.compiler import located, positive
from sparsegen.execute import access_bytes
from sparsegen.inspection import Build
from sparsegen.ir.errors import ArrayError, Loc, ProductError, ScheduleError, SparsegenError
from sparsegen.looking import Looking
from sparsegen.memory import DEVICE, HOST, host_room, room_for
from sparsegen.products import host
from sparsegen.products.arguments import Operand, order, orders, packed, variant
from sparsegen.products.compile import SpmmChoice
from sparsegen.products.cuda import SpmmBuilds, SpmmExecutor
from sparsegen.products.dense import DenseProduct
from sparsegen.products.fast import FastCall, fast_call
from sparsegen.products.pipelines import IN, OUT, Programs
from sparsegen.products.product import Product
from sparsegen.products.schedule import DENSE
from sparsegen.target import Target

if TYPE_CHECKING:
    from sparsegen.backends.emulator.report import Report
    from sparsegen.counting import Counts
    from sparsegen.explain import Explanation
    from sparsegen.pipelines import Program
    from sparsegen.products.bench import SpmmBench
    from sparsegen.products.cost import SpmmCost
    from sparsegen.products.schedule import SpmmSchedule

#: How often a kernel learns other layouts for its short way: callers that alternate gain nothing by it.
_LAYOUTS_LEARNT = 16


class SpmmKernel(Looking):
    """What :func:`sparsegen.compile` gives back for a product.  Every method may be called from any thread.

    ``product``, ``shape`` (M, K, n), ``device`` (the profile), ``backend`` and ``schedule`` say what it was made of.
    """

    def __init__(self, product: Product, target: Target, choice: SpmmChoice, loc: Loc | None) -> None:
        self.product, self.loc = product, loc
        self.shape = (*product.w.shape, product.n)
        self._target, self._choice = target, choice
        self.dtype = np.dtype(product.w.kind.numpy())
        self._operands = product.epilogue.operands
        names = ("x", "out", *self._operands)
        self._expect = {name: Operand(name, product, self.dtype, target.backend) for name in names}
        self._lock = Lock()
        self._executors: dict[tuple[int, str], SpmmExecutor] = {}
        self._fast: FastCall | None = None
        self._learnt = 0
        self._aligned: dict[int, dict[str, int]] = {}
        self._dense = DenseProduct(product)
        self._programs = Programs(product, choice.schedule, target.profile)
        notes = (f"Schedule: {choice.schedule}", f"For: {target.profile.name}")
        self._builds = SpmmBuilds(target.profile, str(product), notes, product.n)
        if self.schedule != DENSE:
            self._main()  # lowered now, so that a program that cannot be made is refused by compile

    # -------------------------------------------------------------------------------------------- what it is
    @property
    def schedule(self) -> SpmmSchedule:
        """Every choice that was made; ``str`` of it is a line that ``compile`` takes back."""
        return self._choice.schedule

    @property
    def cost(self) -> SpmmCost:
        """The predicted cost of one product: time in seconds, terms, formula."""
        return self._choice.cost

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of device memory that a call needs besides its arrays and W: partial sums, where ``splits`` > 1."""
        if self.schedule == DENSE:
            return 0
        return sum(int(size * dtype.itemsize) for dtype, size in host.workspace(self._main()).values())

    def explain(self) -> Explanation:
        """Why this schedule: its terms and what binds it, what was rejected and why, and the dense product's time.

        A string, which also has ``data``, ``json()``, ``roofline()`` and ``save(path)``.
        """
        from sparsegen.products.explain import explain

        return explain(self, self._choice, self._target)

    def __repr__(self) -> str:
        size = "x".join(map(str, self.shape))
        return f"<SpmmKernel {size} {self.product.w.dtype} on {self.backend}: {self.schedule}>"

    # -------------------------------------------------------------------------------------------- looking at it
    def _main(self) -> Program:
        if self.schedule == DENSE:
            raise ScheduleError(
                "a dense product is the library's own: it has no program of ours", hint="compile with schedule='bitmap'"
            )
        return self._programs.get(packed(self.product, self.dtype))

    def _build(self) -> Build:
        return self._builds.get(self._main())

    def export(self, path: str | Path) -> Path:
        """Write a self-contained CUDA file with a C launcher for x and y packed by rows, ``spmm_step(...)``.

        Its arguments are the arrays of the kernel, in its order, and a stream; W's arrays are those of its format, and
        the counter of a workspace must be zero before the first call.  All must be aligned to 16 bytes.  Returns the
        path; ArrayError if it cannot be written.
        """
        with located(user_loc()):
            return self._write(path, self._build().export_step)

    # -------------------------------------------------------------------------------------------- running it
    def __call__(
        self,
        x: Any,
        out: Any = None,
        *,
        bias: Any = None,
        scale: Any = None,
        residual: Any = None,
        stream: object = None,
    ) -> Any:
        """The product with x [K, n], in ``out`` or a new array like ``x``, [M, n] in x's order.

        x, ``out`` and ``residual`` are packed by rows or by columns (the transpose of a packed [n, K] array, as a
        linear layer has it), ``residual`` in the order of ``out``; ``bias`` and ``scale`` have an element a row of W.
        All are of W's dtype: NumPy, torch, CuPy, pycuda, or anything with ``__cuda_array_interface__`` or DLPack.
        Device arrays are used where they are (code for another order is compiled at the first call), host arrays are
        copied to the GPU and back once.  ``out`` must not overlap the others.  ``stream``: an integer handle or a
        stream object (``cuda`` only; default: the current stream of the array's library); on device arrays the call is
        asynchronous.

        ArrayError, before anything is written, for an array that does not fit; KernelFault, from the emulator, for a
        program that does what no GPU allows.
        """
        try:
            given = {"bias": bias, "scale": scale, "residual": residual}
            fast = self._fast
            if fast is not None and stream is None:
                found = fast(x, out, given)
                if found is not None:
                    return found
            return self._call(x, out, given, stream)
        except SparsegenError as error:
            if error.loc is None:
                error.loc = user_loc()
            raise

    def _call(self, x: Any, out: Any, given: Mapping[str, Any], stream: object) -> Any:
        for name, a in given.items():
            if (a is None) != (name in self._operands):
                continue
            if a is None:
                raise ArrayError(
                    f"{name} is missing: the product was described with {name}=True",
                    hint=f"pass {name}=..., of shape {self._expect[name].shape}",
                )
            raise ArrayError(
                f"{name} is given, but the product was described without",
                hint=f"compile sg.spmm(W, n={self.product.n}, {name}=True), or leave it away",
            )
        source = self._expect["x"](x)
        views = {name: self._expect[name](given[name]) for name in self._operands}
        both = len(orders(source.layout)) == 2  # of a single row or column: what is added to it decides
        made = self._new(views.get("residual", source) if both else source) if out is None else out
        target = self._expect["out"](made)
        check_together([("x", source), *views.items()], ("out", target))
        if "residual" in views and order(views["residual"].layout) != order(target.layout):
            raise ArrayError(
                f"residual is packed by {order(views['residual'].layout)}s, out by {order(target.layout)}s",
                hint="pass a residual in the order of out (of x, if no out is given)",
            )
        arrays = {IN: source, OUT: target, **views}
        if self.backend == "cuda":
            self._on_gpu(arrays, stream)
        else:
            self._on_host(arrays, stream)
        return made

    def _new(self, x: ArrayView) -> Any:
        """A new array for a result, in x's order."""
        device = x.layout.device_index
        free, where = host_room, HOST
        if device is not None and self.schedule != DENSE:
            free, where = lambda: self._executor(device, None).runtime.memory(), DEVICE
        m, _, n = self.shape
        with room_for({"result": m * n * self.dtype.itemsize}, free, where):
            return empty_like(x, (n, m)).T if order(x.layout) == "column" else empty_like(x, (m, n))

    def _on_host(self, arrays: Mapping[str, ArrayView], stream: object) -> None:
        self._no_stream(stream)
        fields = {role: host_array(view) for role, view in arrays.items()}
        needed = {"operands": sum(a.nbytes for a in fields.values())}
        if self.backend == "reference":
            m, k, _ = self.shape
            with room_for(needed | {"W as a dense matrix in f32": 4 * m * k}, host_room, HOST):
                fields[OUT][...] = host.reference(self.product, fields)
            return
        if self.schedule == DENSE:
            raise ArrayError(
                f"schedule='dense' is the product of torch or CuPy on a GPU, this kernel runs on the {self.backend}",
                hint="compile with schedule='bitmap', or with backend='cuda' and torch or CuPy arrays",
            )
        program = self._programs.get(variant(arrays[IN], arrays[OUT], anywhere=True))
        with room_for(needed | {"workspace": self.workspace_nbytes}, host_room, HOST):
            host.run_emulator(self.product, program, fields)

    def _on_gpu(self, arrays: Mapping[str, ArrayView], stream: object) -> None:
        x, out = arrays[IN], arrays[OUT]
        handle = launch_stream(x, stream)
        if self.schedule == DENSE:
            self._dense.run(x, out, {name: arrays[name] for name in self._operands}, handle)
            return
        device = x.layout.device_index
        if device is None:
            program = self._programs.get(variant(x, out, anywhere=True))
            fields = {role: host_array(view) for role, view in arrays.items()}
            self._executor(self._target.gpu or 0, handle).product_host(program, fields, handle)
            return
        program = self._programs.get(variant(x, out))
        alignment = self._alignment(program, arrays)
        executor = self._executor(device, handle)
        executor.run_product(program, {role: view.pointer for role, view in arrays.items()}, handle, x)
        if x.layout.library == "torch" and self._learnt < _LAYOUTS_LEARNT and executor.runtime.name == "driver":
            self._learnt += 1
            self._fast = fast_call(
                x, out, {name: arrays[name] for name in executor.operands},
                tuple(name for name in ("bias", "scale", "residual") if name not in self._operands), alignment,
                executor.launch(program), executor.matrix, executor.spaces if self.workspace_nbytes else None,
            )  # fmt: skip

    def _alignment(self, program: Program, arrays: Mapping[str, ArrayView]) -> dict[str, int]:
        """Bytes that each address must be a multiple of; ArrayError for one that is not."""
        needed = self._aligned.get(id(program))
        if needed is None:
            needed = self._aligned[id(program)] = {role: access_bytes(program.warp, role) for role in arrays}
        for role, view in arrays.items():
            if view.pointer % needed[role]:
                name = {IN: "x"}.get(role, role)
                raise ArrayError(
                    f"{name} starts at address {view.pointer:#x}; this schedule moves {needed[role]} bytes at once and "
                    f"needs a multiple of {needed[role]}",
                    hint="pass a copy (a.clone() in torch): fresh allocations are aligned",
                )
        return needed

    def _executor(self, device: int, stream: int | None) -> SpmmExecutor:
        from sparsegen.execute_cuda import executor_kind

        key = (device, executor_kind(device, stream))
        with self._lock:
            if key not in self._executors:
                self._executors[key] = SpmmExecutor(*key, self._builds, self.cost.time, self.product, self._main())
            return self._executors[key]

    # -------------------------------------------------------------------------------------------- judging it
    def counts(self) -> Counts:
        """Instruction and byte counts of a call on arrays packed by rows.

        Up to ``counting.MAX_CELLS`` elements of W from the emulator, and exact.  Beyond by formula: exact but for what
        the places of the zeros decide (bank conflicts of the decode, bytes and sectors of the copies of values), which
        is expected for zeros that lie anywhere, rounded.
        """
        from sparsegen.counting import emulated

        with located(user_loc()):
            program = self._main()
            if emulated(math.prod(self.product.w.shape)):
                return host.counts(self.product, program, host.random_arrays(self.product))
            return host.expected(self.product, self.schedule, self.device, packed(self.product, self.dtype))

    def check(self, x: Any = None) -> Report:
        """Run the product on the emulator with all checkers on.

        ``x``: a host array (default, and for the other operands: random numbers).  The report has ``errors`` (empty if
        all is well; each with line and remedy), ``notes``, and ``raise_if_errors()``.
        """
        with located(user_loc()):
            arrays = host.random_arrays(self.product)
            if x is not None:
                arrays[IN] = host_array(self._expect["x"](x))
            self._main()
            program = self._programs.get(variant(describe(arrays[IN]), describe(arrays[OUT]), anywhere=True))
            return host.check(self.product, program, arrays)

    def bench(self, x: Any = None, repeats: int = 10) -> SpmmBench:
        """Time a call: median, spread, bandwidth of W's format, and share of the model's bound.

        ``x``: a host or device array (default, and for the other operands: random numbers).  On ``cuda`` with events
        on the device, after one warm-up; elsewhere wall time of the host, and the result says so.
        """
        from sparsegen.products.bench import bench

        with located(user_loc()):
            return bench(self, None if x is None else self._expect["x"](x), positive(repeats, "repeats", ProductError))


__all__ = ["SpmmKernel"]
