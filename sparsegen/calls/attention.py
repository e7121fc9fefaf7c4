"""Calls of sparse attention's kernels: q, k and v, and of integers their scales."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from sparsegen.arguments import real
from sparsegen.arrays import Expect, describe, empty_like, host_array
from sparsegen.backends.cuda.runtime import Runtime
from sparsegen.backends.reference.attention import quantised, run
from sparsegen.calls.base import Calls, HostArrays, Views
from sparsegen.ir.errors import ArrayError
from sparsegen.memo import Memo
from sparsegen.pipelines import Program
from sparsegen.plan import OUT, Part, Plan, Step
from sparsegen.problems.attention import AttentionProblem
from sparsegen.products.weights import addresses, host_arrays
from sparsegen.views import ArrayLayout, ArrayView

#: What a call takes, and what each is called in programs.
GIVEN, SCALES = ("q", "k", "v"), ("q_scale", "k_scale", "v_scale")


def role(name: str) -> str:
    """What an input is called in programs."""
    return f"in.{name}"


class Heads(Expect):
    """q, k, v or the result: packed, [batch, heads, rows, d]."""

    __slots__ = ()

    def _other_dtype(self, layout: ArrayLayout) -> tuple[str, str]:
        other = {"int8": "describe it with quantized=True", "float16": "describe it without quantized=True"}
        remedy = other.get(layout.dtype.name, f"convert it to {self.dtype}; nothing is cast")
        return f"{self.name} has dtype {layout.dtype}, it must be {self.dtype}", remedy

    def _other_shape(self, layout: ArrayLayout) -> tuple[str, str]:
        axes = "[heads, rows, d]" if len(self.shape) == 3 else "[batch, heads, rows, d]"
        return (
            f"{self.name} has shape {layout.shape}, it must be {self.shape}: {axes}",
            "describe it with other heads, d, batch or pattern; of a batch of one leave the first axis away",
        )

    def _order(self, layout: ArrayLayout) -> None:
        if not layout.contiguous:
            raise ArrayError(
                f"{self.name} has strides {layout.strides} (bytes): it must be packed, row after row of each head",
                hint="copy it: np.ascontiguousarray(a), or a.contiguous() in torch",
            )


class Scale(Expect):
    """A positive number in an array of one f32."""

    __slots__ = ()

    def __init__(self, name: str, backend: str) -> None:
        super().__init__(name, (1,), np.float32, backend=backend)

    def _other_dtype(self, layout: ArrayLayout) -> tuple[str, str]:
        return f"{self.name} has dtype {layout.dtype}", "pass a number, or an array of one float32"

    def _other_shape(self, layout: ArrayLayout) -> tuple[str, str]:
        return f"{self.name} has shape {layout.shape}: it is one for the whole tensor", "pass a number"


class AttentionCalls(Calls):
    """``k(q, k, v, out, q_scale=..., k_scale=..., v_scale=...)``; q is the array ``in.q``."""

    kind: ClassVar[str] = "AttentionKernel"
    positional = (*GIVEN, "out")
    OPTIONS: ClassVar[tuple[str, ...]] = ("out", "stream")
    problem: AttentionProblem

    def __init__(self, problem: AttentionProblem, backend: str) -> None:
        what = problem.what
        (m, n), self.named = what.pattern.shape, SCALES if what.quantized else ()
        dtype = np.int8 if what.quantized else np.float16
        inputs: dict[str, Expect] = {
            role(name): Heads(name, (*what.lead, rows, what.d), dtype, backend=backend)
            for name, rows in zip(GIVEN, (m, n, n), strict=True)
        }
        inputs |= {role(name): Scale(name, backend) for name in self.named}
        out = Heads("out", (*what.lead, m, what.d), np.float16, writable=True, backend=backend)
        super().__init__(problem, inputs, {OUT: out})

    # -------------------------------------------------------------------------------------------- arrays of a call
    def given(self, values: Mapping[str, Any], *, some: bool = False) -> dict[str, Any]:
        found = {role(name): values[name] for name in GIVEN}
        for name in self.named:
            if (value := values.get(name)) is None:
                if some:
                    continue
                raise ArrayError(
                    f"{name} is missing: the attention was described with quantized=True",
                    hint=f"pass {name}=..., such as sg.quantize(x).scale",
                )
            found[role(name)] = self._scale(name, value, values["q"])
        return found

    def _scale(self, name: str, value: Any, q: Any) -> Any:
        """A scale as an array of one element, where q is."""
        number = (
            None if getattr(value, "dtype", None) is not None and not isinstance(value, np.generic) else real(value)
        )
        if number is None:
            return value.reshape(1) if getattr(value, "shape", None) == () else value
        _positive(name, number)
        made = self.empty(describe(q), self.inputs[role(name)])
        made[...] = number
        return made

    def views(self, values: Mapping[str, Any], *, some: bool = False) -> dict[str, ArrayView]:
        """Also ArrayError for what no integer stands for, and for scales that are not positive, on the host."""
        found = super().views(values, some=some)
        for name, view in found.items():
            if view.layout.device_kind != "host" or view.layout.dtype == np.int8:
                continue
            if name in map(role, SCALES):
                _positive(self.inputs[name].name, float(host_array(view)[0]))
            elif not (finite := np.isfinite(a := host_array(view))).all():
                at = [int(i) for i in np.argwhere(~finite)[0]]
                raise ArrayError(
                    f"{self.inputs[name].name}{at} is {float(a[tuple(at)])}, which no integer stands for",
                    hint="find out where it comes from; keys that are not to be seen belong into the pattern",
                )
        return found

    def results(self, made: Any) -> dict[str, Any]:
        return {OUT: made}

    def new(self, views: Views) -> Any:
        return self.empty(views[role("q")], self.outputs[OUT])

    def empty(self, like: ArrayView, output: Expect, turned: bool = False) -> Any:
        return empty_like(like, output.shape, output.dtype)

    # -------------------------------------------------------------------------------------------- what a call runs
    def variant(self, views: Views, *, copied: bool = False) -> None:
        return None

    def plan(self, programs: Memo[Program], schedule: Any, steps: int, variant: Any) -> Plan:
        program = programs.get(1, variant)
        given = (*self.arguments, *self._tables(schedule))
        return Plan((Part((Step.of(program, {name: name for name in given}),)),), given, program)

    def _tables(self, schedule: Any) -> Any:
        return schedule.rules.lists(self.problem.facts, schedule)

    def fixed(self, schedule: Any, runtime: Runtime) -> dict[str, int]:
        return addresses(self.problem.what.pattern, self._tables(schedule), runtime)

    def fixed_host(self, schedule: Any) -> HostArrays:
        return host_arrays(self.problem.what.pattern, self._tables(schedule))

    def origins(self, schedule: Any) -> dict[str, str]:
        return {name: one.about for name, one in self._tables(schedule).items()}

    def notes(self, program: Program) -> list[str]:
        return ["q, k, v and the result are packed: head by head, row by row."]

    # -------------------------------------------------------------------------------------------- numbers
    @property
    def cells(self) -> int:
        heads, m, n, _ = self.problem.shape
        return heads * m * n

    def reference(self, arrays: Mapping[str, Any], steps: int) -> HostArrays:
        """In f64, of the integers that q, k and v are quantised to."""
        what, host = self.problem.what, self.problem.what.pattern.to_host()
        given = [np.asarray(arrays[role(name)]) for name in GIVEN]
        if what.quantized:
            made = [(x, float(arrays[role(name)].reshape(-1)[0])) for x, name in zip(given, SCALES, strict=True)]
        else:
            made = [(n, float(scale)) for n, scale in (quantised(x, what.bits) for x in given)]
        q, k, v = (x.reshape(-1, x.shape[-2], x.shape[-1]) for x, _ in made)
        rows, columns = np.nonzero(host.to_dense())
        out = run(q, k, v, [scale for _, scale in made], rows, columns)
        return {OUT: out.astype(np.float16).reshape(self.outputs[OUT].shape)}

    def reference_room(self) -> dict[str, int]:
        m, n = self.problem.what.pattern.shape
        return {"the pattern as a mask": m * n}

    def random(self, seed: int = 0) -> HostArrays:
        """Normal numbers; as integers, so that 127 are four of their deviations."""
        rng = np.random.default_rng(seed)
        made: HostArrays = {}
        for name, a in self.inputs.items():
            drawn = rng.standard_normal(a.shape)
            if a.dtype == np.int8:
                made[name] = np.clip(np.rint(drawn * 32), -127, 127).astype(np.int8)
            else:
                made[name] = (np.full(a.shape, 1 / 32) if isinstance(a, Scale) else drawn).astype(a.dtype)
        return made

    def filled(self, views: Views) -> dict[str, ArrayView]:
        """Scales of random numbers."""
        q, extra = views[role("q")], dict[str, ArrayView]()
        for name in self.named:
            if role(name) not in views:
                made = self.empty(q, self.inputs[role(name)])
                made[...] = 1 / 32
                extra[role(name)] = describe(made)
        return {**extra, **views}

    def work(self, passes: int) -> str:
        heads, m, n, d = self.problem.shape
        return f"{heads} heads of {m} queries, {n} keys and d={d}; faster: fewer of them"


def _positive(name: str, scale: float) -> None:
    """ArrayError for a scale that is none."""
    if not (math.isfinite(scale) and scale > 0):
        raise ArrayError(f"{name} is {scale}", hint="pass a positive number, such as sg.quantize(x).scale")
