"""Calls of a sampled product's kernels: which arrays are taken, and the matrix that comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from sparsegen.arrays import Expect, describe, empty_like
from sparsegen.backends.cuda.runtime import Runtime
from sparsegen.backends.reference.sddmm import run
from sparsegen.calls.base import Calls, HostArrays, Views
from sparsegen.calls.product import orders
from sparsegen.formats.library import library_of
from sparsegen.ir.errors import ArrayError
from sparsegen.ir.types import s4
from sparsegen.memo import Memo
from sparsegen.pipelines import Program
from sparsegen.plan import OUT, Part, Plan, Step
from sparsegen.problems.sddmm import SddmmProblem, Variant, aligned
from sparsegen.products.sampled_lists import values_of
from sparsegen.products.sddmm import is_matrix, vector_rows
from sparsegen.products.weights import addresses, host_arrays
from sparsegen.quantization import pack4, unpack4
from sparsegen.run.fast import FastCall
from sparsegen.views import ArrayLayout, ArrayView

#: The order along k of each input.
_ALONG = {"a": "row", "b": "column"}


class Factor(Expect):
    """a or b: integers, packed by rows or columns; ``halved``: the same with two integers of 4 bits to a byte."""

    __slots__ = ("_halved",)

    def __init__(
        self, name: str, shape: Sequence[int], dtype: Any, *, backend: str, halved: Factor | None = None
    ) -> None:
        super().__init__(name, shape, dtype, backend=backend)
        self._halved = halved

    def check(self, layout: ArrayLayout) -> None:
        """Return for a layout that a kernel takes, else raise ArrayError."""
        packed = self._halved is not None and layout.problem is None and layout.dtype == self._halved.dtype
        super(Factor, self._halved if packed and self._halved is not None else self).check(layout)

    def _other_dtype(self, layout: ArrayLayout) -> tuple[str, str]:
        also = ", or pack such an array with sg.pack4" if self._halved is not None else ""
        return f"{self.name} has dtype {layout.dtype}, not {self.dtype}", f"convert it{also}; nothing is cast"

    def _other_shape(self, layout: ArrayLayout) -> tuple[str, str]:
        remedy = "a is [M, k] and b [k, N]; of 4 bits, packed along k, sg.pack4(a) and sg.pack4(b.T).T"
        if layout.shape == self.shape[::-1]:
            remedy = f"pass {self.name}.T: {remedy}"
        return f"{self.name} has shape {layout.shape}, it must be {self.shape}", remedy

    def _order(self, layout: ArrayLayout) -> None:
        if not orders(layout):
            raise ArrayError(
                f"{self.name} has strides {layout.strides} (bytes): rows or columns must follow one another without "
                "gaps",
                hint="copy it: np.ascontiguousarray(a), or a.contiguous() in torch",
            )


class SddmmCalls(Calls):
    """``k(a, b, out)``; the result, and ``out``, are matrices of int32 in the product's pattern."""

    kind: ClassVar[str] = "SddmmKernel"
    positional = ("a", "b", "out")
    OPTIONS: ClassVar[tuple[str, ...]] = ("out", "stream")
    problem: SddmmProblem

    def __init__(self, problem: SddmmProblem, backend: str) -> None:
        m, k, n = problem.shape

        def factor(name: str, depth: int, dtype: Any, halved: Factor | None = None) -> Factor:
            shape = (m, depth) if name == "a" else (depth, n)
            return Factor(name, shape, dtype, backend=backend, halved=halved)

        pairs = {name: factor(name, k // 2, np.uint8) if problem.what.kind is s4 else None for name in _ALONG}
        inputs = {name: factor(name, k, problem.kind.numpy(), halved) for name, halved in pairs.items()}
        values = Expect("out", (problem.what.stored,), np.int32, writable=True, backend=backend)
        super().__init__(problem, inputs, {OUT: values})

    # -------------------------------------------------------------------------------------------- arrays of a call
    def given(self, values: Mapping[str, Any], *, some: bool = False) -> dict[str, Any]:
        return {name: values[name] for name in self.inputs}

    def views(self, values: Mapping[str, Any], *, some: bool = False) -> dict[str, ArrayView]:
        """Also ArrayError for a packed array beside one that is not."""
        found = super().views(values, some=some)
        a, b = (found[name].layout.dtype for name in self.inputs)
        if a != b:
            raise ArrayError(f"a has dtype {a}, b {b}", hint="pack both with sg.pack4, or neither")
        return found

    def results(self, made: Any) -> dict[str, Any]:
        what = self.problem.what
        if not is_matrix(made, what):
            raise ArrayError(
                f"out is {type(made).__qualname__}, not a result of such a product: {what.result.name} of int32, "
                f"{'x'.join(map(str, what.pattern.shape))}",
                hint="pass what a call has given back, or leave it away",
            )
        return {OUT: made.arrays["values"]}

    def new(self, views: Views) -> Any:
        lib, _ = library_of(views["a"])
        made = empty_like(views["a"], self.outputs[OUT].shape, np.int32)
        return self.problem.what.matrix(lib, made)

    def short(self, known: FastCall) -> FastCall:
        what = self.problem.what

        def call(args: tuple[Any, ...], out: Any, named: Mapping[str, Any]) -> Any:
            if out is not None and not is_matrix(out, what):
                return None
            values = known(args, None if out is None else out.values, named)
            if values is None or out is not None:
                return None if values is None else out
            return what.matrix(library_of(describe(values))[0], values)

        return call

    # -------------------------------------------------------------------------------------------- what a call runs
    def variant(self, views: Views, *, copied: bool = False) -> Variant:
        found, vecs = list[str](), list[int]()
        for name, along in _ALONG.items():
            layout = views[name].layout
            how = along if along in orders(layout) else orders(layout)[0]
            run = layout.shape[1 if how == "row" else 0] * layout.dtype.itemsize
            found.append(how)
            vecs.append(aligned(run, 0 if copied else views[name].pointer))
        kind = self.problem.what.kind
        held = kind if views["a"].layout.dtype != np.int8 or kind is not s4 else self.problem.kind
        return Variant(str(held), *found, *vecs)  # type: ignore[arg-type]

    def plan(self, programs: Memo[Program], schedule: Any, steps: int, variant: Any) -> Plan:
        program = programs.get(1, variant or self.problem.packed)
        given = (*self.arguments, *self._lists(schedule))
        return Plan((Part((Step.of(program, {name: name for name in given}),)),), given, program)

    def _lists(self, schedule: Any) -> dict[str, Any]:
        return dict(schedule.rules.lists(self.problem.facts, schedule))

    def fixed(self, schedule: Any, runtime: Runtime) -> dict[str, int]:
        return addresses(self.problem.what.pattern, self._lists(schedule), runtime)

    def fixed_host(self, schedule: Any) -> HostArrays:
        return host_arrays(self.problem.what.pattern, self._lists(schedule))

    def origins(self, schedule: Any) -> dict[str, str]:
        return {name: one.about for name, one in self._lists(schedule).items()}

    def notes(self, program: Program) -> list[str]:
        op: Any = next(f for f in program.op.funcs)
        return [f"a is packed by {op.a_order}s, b by {op.b_order}s; the result is in {self.problem.format}."]

    # -------------------------------------------------------------------------------------------- numbers
    @property
    def cells(self) -> int:
        m, _, n = self.problem.shape
        return m * n

    def reference(self, arrays: Mapping[str, Any], steps: int) -> HostArrays:
        """The product, exact modulo 2^32."""
        a, b = (np.asarray(arrays[name]) for name in self.inputs)
        if self.problem.what.kind is s4 and a.dtype == np.uint8:
            a, b = unpack4(a), unpack4(np.ascontiguousarray(b.T)).T
        w = self.problem.what.pattern.to_host()
        columns = w.arrays["idx"].astype(np.int64)
        found = run(a, b, vector_rows(w) * w.height, columns, w.height)
        return {OUT: values_of(w, found, self.problem.facts.stride)}

    def reference_room(self) -> dict[str, int]:
        m, k, n = self.problem.shape
        return {"a and b in 64 bits": 8 * (m + n) * k}

    def random(self, seed: int = 0) -> HostArrays:
        """Numbers of the whole range; a by rows, b by columns, of 4 bits packed."""
        rng, kind = np.random.default_rng(seed), self.problem.what.kind
        m, k, n = self.problem.shape
        low, high = kind.range
        a, bt = (rng.integers(low, high + 1, (rows, k)).astype(self.dtype) for rows in (m, n))
        return {"a": pack4(a), "b": pack4(bt).T} if kind is s4 else {"a": a, "b": bt.T}

    def work(self, passes: int) -> str:
        m, k, n = self.problem.shape
        return f"a sampled product of {m}x{k}x{n}; faster: a smaller one"
