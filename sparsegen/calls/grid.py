"""Calls of kernels on grids: fields whose rows may lie apart, one or several time levels of each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np

from sparsegen.arrays import Expect
from sparsegen.calls import masks
from sparsegen.calls.base import Calls, HostArrays, Views
from sparsegen.ir.errors import ArrayError
from sparsegen.ir.types import DTYPES
from sparsegen.problem import Problem

#: An array's name and its time level, 0 the newest.
Levels = tuple[str, ...]


class GridCalls(Calls):
    """Arrays by parameter and level.

    ``parameters``: the arrays of each parameter, newest level first; ``fields``: those of each result, in the same way.
    Of a batch all have the items as their first axis, but those of the coefficients that items share.
    """

    #: Element types that such a problem may be described in.
    dtypes: ClassVar[tuple[str, ...]]
    #: Parameters that are masks.
    masks: tuple[str, ...] = ()

    def __init__(
        self, problem: Problem, backend: str, parameters: Mapping[str, Levels], fields: Mapping[str, Levels]
    ) -> None:
        self.parameters, self.fields = dict(parameters), dict(fields)
        self.positional = tuple(parameters)
        dtype, alone = DTYPES[problem.dtype].numpy(), len(fields) == 1

        def check(name: str, shown: str, levels: Levels, writable: bool) -> Expect:
            where = f"{shown}[{levels.index(name)}]" if len(levels) > 1 else shown
            if writable:
                where = "out" if alone and len(levels) == 1 else f"out of {where}"
            described = [DTYPES[name].numpy().name for name in self.dtypes]
            shape = problem.shape if name in problem.shared else problem.stacked
            return Expect(where, shape, dtype, writable=writable, backend=backend, described=described)

        def checks(arrays: Mapping[str, Levels], writable: bool) -> dict[str, Expect]:
            return {name: check(name, of, levels, writable) for of, levels in arrays.items() for name in levels}

        super().__init__(problem, checks(parameters, False), checks(fields, True))

    # -------------------------------------------------------------------------------------------- arrays of a call
    def values(
        self, args: Sequence[Any], named: Mapping[str, Any], options: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Masks are numbers of the kernel's type from here on."""
        values, chosen = super().values(args, named, options)
        for name in self.masks:
            values[name] = masks.numbers(values[name], name, self.dtype, chosen["stream"])
        return values, chosen

    def given(self, values: Mapping[str, Any], *, some: bool = False) -> dict[str, Any]:
        return {
            array: a
            for name, levels in self.parameters.items()
            for array, a in zip(levels, _levels(values[name], name, len(levels)), strict=True)
        }

    def by_parameter(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """An array for each parameter, or a tuple of its levels."""
        found = {name: tuple(arrays[level] for level in levels) for name, levels in self.parameters.items()}
        return {name: levels if len(levels) > 1 else next(iter(levels)) for name, levels in found.items()}

    def results(self, made: Any) -> dict[str, Any]:
        return self.of_fields(made)

    def of_fields(self, made: Any) -> dict[str, Any]:
        """The arrays of the fields of a result by their own names."""
        names = ", ".join(self.fields)
        each = (made,) if len(self.fields) == 1 else _levels(made, f"out (of {names})", len(self.fields))
        return {
            array: a
            for (name, levels), value in zip(self.fields.items(), each, strict=True)
            for array, a in zip(levels, _levels(value, f"out of {name}", len(levels)), strict=True)
        }

    def new(self, views: Views) -> Any:
        """An array for each field, or a tuple of its levels; of several fields a tuple."""
        like = next(iter(views.values()))

        def one(levels: Levels) -> Any:
            made = tuple(self.empty(like, self.outputs[name]) for name in levels)
            return made if len(made) > 1 else next(iter(made))

        made = tuple(one(levels) for levels in self.fields.values())
        return made if len(made) > 1 else next(iter(made))

    # -------------------------------------------------------------------------------------------- what a call runs
    def variant(self, views: Views, *, copied: bool = False) -> Hashable:
        """Elements from row to row of every array, inputs before results."""
        if copied or all(view.layout.contiguous for view in views.values()):
            return None
        return tuple(views[name].layout.pitch // self.dtype.itemsize for name in self.arguments)

    # -------------------------------------------------------------------------------------------- numbers
    def reference_room(self) -> dict[str, int]:
        """Two fields for each input."""
        return {"steps": 2 * len(self.inputs) * self.cells * self.dtype.itemsize}

    def random(self, seed: int = 0) -> HostArrays:
        """Numbers from 0 to 1; of masks 0 and 1; bytes from 0 to 255."""
        rng = np.random.default_rng(seed)
        if self.dtype.kind == "u":
            return {name: rng.integers(0, 256, a.shape, self.dtype) for name, a in self.inputs.items()}
        regions = {array for name in self.masks for array in self.parameters[name]}
        made = {
            name: masks.random(rng, a.shape) if name in regions else rng.random(a.shape)
            for name, a in self.inputs.items()
        }
        return {name: a.astype(self.dtype) for name, a in made.items()}

    def work(self, passes: int) -> str:
        size = "x".join(map(str, self.problem.stacked))
        return f"{passes} passes over {size} cells; faster: a smaller shape or fewer steps"

    def reference(self, arrays: Mapping[str, Any], steps: int) -> HostArrays:
        """Every result, item by item."""
        problem = self.problem
        if problem.batch is None:
            return self.one(arrays, steps)
        apart = self.inputs.keys() - set(problem.shared)
        every = [
            self.one({name: a[i] if name in apart else a for name, a in arrays.items()}, steps)
            for i in range(problem.items)
        ]
        return {name: np.stack([made[name] for made in every]) for name in every[0]}

    @abstractmethod
    def one(self, arrays: Mapping[str, Any], steps: int) -> HostArrays:
        """The results of one item in plain NumPy."""


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
