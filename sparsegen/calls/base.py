"""How a kernel is called: which arrays it takes, what it makes of them, and the plan that a call runs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sparsegen.arrays import Expect, check_together, empty_like
from sparsegen.backends.cuda.runtime import Runtime
from sparsegen.backends.emulator.report import Finding
from sparsegen.cost.devices import DeviceProfile
from sparsegen.ir.errors import ArrayError
from sparsegen.memo import Memo
from sparsegen.pipelines import Program, lower
from sparsegen.plan import Plan
from sparsegen.problem import Problem
from sparsegen.run.fast import FastCall
from sparsegen.views import ArrayView

Views = Mapping[str, ArrayView]
HostArrays = dict[str, npt.NDArray[Any]]


def wrapped(exact: npt.NDArray[Any], remedy: str) -> list[Finding]:
    """A note on the sums that 32 bits do not hold, which a result has modulo 2^32."""
    beyond = (exact < -(2.0**31)) | (exact >= 2.0**31)
    if not beyond.any():
        return []
    worst = np.unravel_index(int(np.abs(exact).argmax()), exact.shape)
    what = f"{int(beyond.sum())} of {exact.size} sums wrap, modulo 2^32: the largest is {int(exact[worst])}"
    return [
        Finding("overflow", f"{what}, at {[int(i) for i in worst]}; int32 ends at {2**31 - 1}", remedy, buffer="out")
    ]


class Calls(ABC):
    """The calls of one problem's kernels.  Immutable.

    Arrays have names: those of the roles that programs give them.  ``inputs`` and ``outputs``: what a call reads, and
    what it gives back, each with its check.
    """

    #: What ``repr`` calls a kernel.
    kind: ClassVar[str]
    #: Names of what may be passed by position, and of what must be named.
    positional: tuple[str, ...]
    named: tuple[str, ...] = ()
    #: Whether its time steps are made from the last one to the first.
    backwards: ClassVar[bool] = False
    #: Options of a call, which may be passed by position where ``positional`` has them.
    OPTIONS: ClassVar[tuple[str, ...]] = ("out", "steps", "stream")

    def __init__(self, problem: Problem, inputs: Mapping[str, Expect], outputs: Mapping[str, Expect]) -> None:
        self.problem, self.inputs, self.outputs = problem, dict(inputs), dict(outputs)
        self.arguments = {**self.inputs, **self.outputs}
        self.dtype = np.dtype(problem.kind.numpy())
        #: What arrays are called where memory does not suffice, if not by their names.
        self.labels: dict[str, str] = {}

    def at(self, steps: int) -> Calls:
        """The calls of so many time steps: themselves, unless arrays have a row for each."""
        return self

    # -------------------------------------------------------------------------------------------- arrays of a call
    def values(
        self, args: Sequence[Any], named: Mapping[str, Any], options: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What each parameter is given, and the options of a call; ArrayError for what fits no parameter."""
        parameters = [name for name in (*self.positional, *self.named) if name not in self.OPTIONS]
        listed, title = ", ".join(parameters), self.problem.name
        values = dict(zip(self.positional, args, strict=False))
        for name in (*named, *(name for name, value in options.items() if value is not None)):
            if name in values or (name not in parameters and name not in self.OPTIONS):
                why = "is given twice" if name in values else f"is no parameter of {title}"
                raise ArrayError(f"{name} {why}", hint=f"pass each of {listed} once")
        values.update(named)
        missing = [n for n in self.positional if n not in values and n not in self.OPTIONS]
        if missing or len(args) > len(self.positional):
            what = (
                f"no array for {', '.join(missing)}"
                if missing
                else f"{len(args)} arrays for {len(parameters)} parameters"
            )
            raise ArrayError(f"{title}: {what}", hint=f"pass {listed}")
        chosen = {name: values.pop(name) if name in values else options.get(name) for name in self.OPTIONS}
        return values, chosen

    @abstractmethod
    def given(self, values: Mapping[str, Any], *, some: bool = False) -> dict[str, Any]:
        """The arrays of parameters by their own names; ArrayError where one does not belong, or is missing.

        ``some``: what a measurement can do without may be missing.
        """

    def scalars(self, values: Mapping[str, Any], steps: int) -> npt.NDArray[Any] | None:
        """The numbers of each of so many time steps, [steps, count], from what parameters are given; None where a
        problem has none.  ArrayError for one that is missing or of another length."""
        return None

    def each_step(self, values: Mapping[str, Any], steps: int) -> dict[str, npt.NDArray[Any]]:
        """What each parameter that is a number is in each of so many time steps."""
        return {}

    def between(self, numbers: Mapping[str, npt.NDArray[Any]], first: int, last: int) -> dict[str, npt.NDArray[Any]]:
        """What a call of the steps from ``first`` to before ``last`` is given of the numbers of all."""
        return {name: a[first:last] for name, a in numbers.items()}

    def some_scalars(self, steps: int) -> dict[str, Any]:
        """What a measurement of so many time steps takes for parameters that are numbers."""
        return {}

    def by_parameter(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """What each parameter is given when these are the inputs."""
        return {self.inputs[name].name: a for name, a in arrays.items()}

    def views(self, values: Mapping[str, Any], *, some: bool = False) -> dict[str, ArrayView]:
        """The view of every given array; ArrayError for one that does not fit."""
        return {name: self.arguments[name](a) for name, a in self.given(values, some=some).items()}

    @abstractmethod
    def results(self, made: Any) -> dict[str, Any]:
        """The arrays of a result by their own names; ArrayError for one of another form."""

    @abstractmethod
    def new(self, views: Views) -> Any:
        """New arrays for a result, in the form that a call gives back, like the inputs."""

    def parted(self, made: Any) -> tuple[Any, dict[str, Any]]:
        """What is given back of the fields, and what each group of receivers has recorded."""
        return made, {}

    def back(self, made: Any) -> Any:
        """What a call gives back of a result."""
        return made

    def short(self, known: FastCall) -> FastCall:
        """The short way through a call, which ends with the array of a result, in the form that a call gives back."""
        return known

    def turned(self, views: Views) -> bool:
        """Whether the arrays of a result are packed by columns."""
        return False

    def empty(self, like: ArrayView, output: Expect, turned: bool = False) -> Any:
        """A new array for a result, of the library of another."""
        kind = None if like.layout.dtype == output.dtype else output.dtype
        return empty_like(like, output.shape[::-1], kind).T if turned else empty_like(like, output.shape, kind)

    def apart(self, inputs: Views, results: Views) -> None:
        """ArrayError for arrays on different devices, and for results that overlap an input or each other."""
        seen = [(self.arguments[name].name, view) for name, view in inputs.items()]
        for name, view in results.items():
            check_together(seen, (self.arguments[name].name, view))
            seen.append((self.arguments[name].name, view))

    # -------------------------------------------------------------------------------------------- what a call runs
    def program(self, schedule: Any, device: DeviceProfile, steps: int, variant: Any) -> Program:
        """The program of so many steps a pass for a variant; ScheduleError if the schedule cannot."""
        return lower(self.problem, schedule, device, steps, variant)

    @abstractmethod
    def variant(self, views: Views, *, copied: bool = False) -> Hashable:
        """What of the arrays' layouts the code depends on, None for arrays that are packed by rows.

        ``copied``: they are packed at aligned addresses first.
        """

    @abstractmethod
    def plan(self, programs: Memo[Program], schedule: Any, steps: int, variant: Hashable) -> Plan:
        """What a call of ``steps`` time steps on arrays of a variant runs (None: packed by rows)."""

    def fixed(self, schedule: Any, runtime: Runtime) -> dict[str, int]:
        """Addresses on a GPU of arrays that no call brings."""
        return {}

    def fixed_host(self, schedule: Any) -> HostArrays:
        """The same arrays on the host."""
        return {}

    def deciding(self, schedule: Any) -> HostArrays:
        """Arrays whose contents decide what a call does: what its instructions are counted with."""
        return self.fixed_host(schedule)

    def origins(self, schedule: Any) -> dict[str, str]:
        """What each of them is and how it comes about, for who makes it elsewhere."""
        return {}

    @abstractmethod
    def notes(self, program: Program) -> list[str]:
        """What the head of a source says of a program."""

    # -------------------------------------------------------------------------------------------- numbers
    @property
    def cells(self) -> int:
        """Cells of a field, of all items of a batch, or elements of a matrix."""
        return math.prod(self.problem.stacked)

    @abstractmethod
    def reference(self, arrays: Mapping[str, Any], steps: int) -> HostArrays:
        """Every result in plain NumPy; ``arrays`` has the scalars of the steps too, by their role."""

    def remarks(self, arrays: Mapping[str, Any]) -> list[Finding]:
        """What a check notes of the numbers of a call, however right its result is."""
        return []

    @abstractmethod
    def reference_room(self) -> dict[str, int]:
        """Bytes that the reference needs besides the arrays of a call, and what for."""

    @abstractmethod
    def random(self, seed: int = 0) -> HostArrays:
        """Every input, random numbers."""

    def filled(self, views: Views) -> dict[str, ArrayView]:
        """``views`` with an array for each input that a measurement may leave out."""
        return dict(views)

    @abstractmethod
    def work(self, passes: int) -> str:
        """What takes long on the emulator, and what would not."""
