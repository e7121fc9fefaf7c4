"""What gradients of time steps need of a kernel: its adjoint, and the states on the way for those by coefficients and
scalars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count
from threading import Lock
from typing import Any, cast
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import torch

from sparsegen.adjoint.derivative import derivatives
from sparsegen.adjoint.transpose import Table
from sparsegen.arguments import real
from sparsegen.backends.reference.boundary import pad
from sparsegen.calls.grid import GridCalls
from sparsegen.calls.numbers import given, of_each
from sparsegen.calls.update import identity
from sparsegen.compiler import compile
from sparsegen.dsl.operands import Parameter
from sparsegen.dsl.update import STEP, Update
from sparsegen.ir.errors import ProductError
from sparsegen.ir.formula import Offset
from sparsegen.ir.op_sites import record
from sparsegen.kernel import Kernel
from sparsegen.memo import Memo

_lock, _numbers = Lock(), count(1)
_known: WeakValueDictionary[int, Trajectory] = WeakValueDictionary()
#: Tensors of all levels of all fields, in the order of what a kernel gives back.
State = list[Any]
#: What each scalar is in each time step.
Numbers = Mapping[str, npt.NDArray[Any]]


class Trajectory:
    """A kernel with its adjoint, as operators know it: by ``handle``, as long as something holds it.

    ``parameters`` and ``fields``: names of a call's parameters and of the fields of its result, each with its levels.

    StencilError and the like for a kernel that has no adjoint.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.adjoint, self.calls = kernel, _unwatched(kernel.adjoint()), calls_of(kernel)
        self.parameters, self.fields = self.calls.parameters, self.calls.fields
        names = [name for name, levels in self.parameters.items() for _ in levels]
        #: Where each level of a state, and each coefficient, stands among the tensors of a call.
        self.places = [at for field in self.fields for at, name in enumerate(names) if name == field]
        self.coefs = {at: name for at, name in enumerate(names) if name not in self.fields}
        what = kernel.update
        sites = what.sites if isinstance(what, Update) else ()
        #: And where the signals of sources and the scalars do; the groups of receivers.
        self.signals = dict(enumerate((group.name for group in sites if group.source), len(names)))
        self.receivers = [group.name for group in sites if not group.source]
        numbers = [name for name in self.calls.named if name not in self.signals.values()]
        self.scalars = dict(enumerate(numbers, len(names) + len(self.signals)))
        #: What all items of a batch share.
        self.shared = kernel.problem.batch.shared if kernel.problem.batch else ()
        self._changes = Memo(self._changed)
        self._masks = Memo(self._mask)
        with _lock:
            self.handle = next(_numbers)
            _known[self.handle] = self

    @staticmethod
    def of(handle: int) -> Trajectory:
        """That of a handle; ProductError if there is none."""
        if (found := _known.get(handle)) is None:
            raise ProductError(
                f"there is no plan {handle}", hint="it lives as long as what stencil_op gave back: keep that alive"
            )
        return found

    def state(self, inputs: Sequence[Any]) -> State:
        """The levels among the tensors of a call."""
        return [inputs[at] for at in self.places]

    def given(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """The coefficients among the tensors of a call."""
        return {name: inputs[at] for at, name in self.coefs.items()}

    def rows(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """The signals among the tensors of a call."""
        return {name: inputs[at] for at, name in self.signals.items()}

    def records(self, like: Any) -> list[Any]:
        """New tensors for what receivers record."""
        made = [self.calls.outputs[record(name)] for name in self.receivers]
        return [like.new_empty(of.shape, dtype=getattr(torch, of.dtype.name)) for of in made]

    def parted(self, made: Sequence[Any], names: Iterable[str] | None = None) -> tuple[State, dict[str, Any]]:
        """What a kernel gives back: the levels, and what it has recorded (default: at the receivers) by name."""
        count = len(self.places)
        return list(made[:count]), dict(zip(self.receivers if names is None else names, made[count:], strict=True))

    def by_inputs(self, levels: State, signals: Mapping[str, Any]) -> list[Any]:
        """The gradients by levels and by signals, of those that items share the sum over items."""
        return [*levels, *(a.sum(0) if name in self.shared else a for name, a in signals.items())]

    @property
    def _asked(self) -> tuple[Parameter, ...]:
        """The parameters that are scalars, in the order of a call's tensors."""
        return self.kernel.update.numbers if self.scalars else ()

    def tensors(self, values: Mapping[str, Any]) -> list[Any]:
        """A tensor for each scalar, of one number or of one for each step; ArrayError for one that is missing."""
        update, steps, found = self.kernel.update, self.kernel.steps, []
        for p in self._asked:
            value = given(update, p, values)
            if not isinstance(value, (torch.Tensor, int, float)):  # a plain number may be a symbol of a graph
                value = of_each(p, value, steps) if (number := real(value)) is None else number
            found.append(value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64))
        return found

    def numbers(self, inputs: Sequence[Any]) -> Numbers:
        """What the scalars among the tensors of a call are in each of its steps."""
        values = {name: inputs[at] for at, name in self.scalars.items()}
        found = self.calls.each_step(values, self.kernel.steps)
        return {name: found[name] for name in self.scalars.values()}

    def nested(self, state: Iterable[Any]) -> dict[str, Any]:
        """For each field a tensor, or a tuple of its levels."""
        left = iter(state)
        levels = {name: [next(left) for _ in arrays] for name, arrays in self.fields.items()}
        return {name: tuple(each) if len(each) > 1 else each[0] for name, each in levels.items()}

    def run(
        self, kernel: Kernel, state: State, coefs: Mapping[str, Any], numbers: Numbers, rows: Mapping[str, Any],
        first: int = 0, last: int | None = None,
    ) -> list[Any]:  # fmt: skip
        """The state after the steps from one to another (default: all) of this kernel, or of one of its fields and some
        of its coefficients, and what is recorded; ``numbers`` and ``rows``: the scalars and signals of all steps."""
        last, calls = self.kernel.steps if last is None else last, calls_of(kernel)
        values = {**self.nested(state), **coefs, **{name: a[first:last] for name, a in numbers.items()}}
        values |= {name: a[..., first:last, :].contiguous() for name, a in rows.items()}
        given = {name: values[name] for name in (*calls.parameters, *calls.named)}
        return list(_flat(kernel(**given, steps=last - first)))

    # -------------------------------------------------------------------------------------------- by coefficients
    def gradients(self, inputs: Sequence[Any], grads: State, wanted: Sequence[int]) -> list[Any]:
        """The gradients by the levels of a state and by signals, then those by the tensors ``wanted``, which are
        coefficients and scalars."""
        coefs, numbers, left = self.given(inputs), self.numbers(inputs), self.kernel.steps
        every, rows = math.isqrt(left - 1) + 1, self.rows(inputs)
        grads, heard = self.parted(grads)
        there = {name: list[Any]() for name in self.signals.values()}
        kept = [self.state(inputs)]
        for first in range(0, left - every, every):
            kept.append(self._after(kept[-1], coefs, numbers, rows, first, first + every))
        sums = {self.coefs[at]: _zeros(inputs[at]) for at in wanted if at in self.coefs}
        by_step = {name: _no_sums(grads[0], left) for name in self._followed(inputs, wanted)}
        while kept:
            states = [kept.pop()]
            first = len(kept) * every
            while first + len(states) < left:
                step = first + len(states) - 1
                states.append(self._after(states[-1], coefs, numbers, rows, step, step + 1))
            left = first
            for step, state in reversed(list(enumerate(states, first))):
                if self.signals or self.receivers:
                    grads, found_there = self._at_sites(grads, heard, step)
                    for name, row in found_there.items():
                        there[name].append(row)
                by_new = list(self._by_new(grads))
                for name in (*sums, *by_step):
                    for change in self._changes.get(name):
                        part = self._product(change, state, coefs, numbers, step, by_new)
                        if name in sums:
                            back = change.back(part)
                            sums[name] += back.sum(0) if name in self.shared else back
                        else:
                            by_step[name][step] += part.sum(dtype=torch.float64)
                grads = self.run(self._alone.adjoint, grads, coefs, numbers, {}, step, step + 1)
        for clock in self._clocks(inputs):
            if STEP in by_step:  # the time of a step is the sum of the steps before it
                by_step[STEP] += by_step[clock].flip(0).cumsum(0).flip(0) - by_step[clock]
        found = sums | by_step
        by_signals = {name: torch.cat(parts[::-1], -2) for name, parts in there.items()}
        given = (_summed(found[(self.coefs | self.scalars)[at]], inputs[at]) for at in wanted)
        return [*self.by_inputs(grads, by_signals), *given]

    def _after(
        self, state: State, coefs: Mapping[str, Any], numbers: Numbers, rows: Mapping[str, Any], first: int, last: int
    ) -> State:
        """The state after the steps from one to another."""
        return self.parted(self.run(self.kernel, state, coefs, numbers, rows, first, last))[0]

    @cached_property
    def _alone(self) -> _Alone:
        return _Alone(self.kernel, self.adjoint)

    def _at_sites(self, grads: State, heard: Mapping[str, Any], step: int) -> tuple[State, dict[str, Any]]:
        """The gradients by what a step has made, with those that come from its records; and those by its signals."""
        rows = {name: a[..., step : step + 1, :].contiguous() for name, a in heard.items()}
        made = list(_flat(self._alone.at_sites(*self._newest(grads), **rows)))
        newest, count = iter(made), len(self.fields)
        grads = [next(newest) if not level else grad for grad, level in zip(grads, self._levels(), strict=True)]
        return grads, dict(zip(self.signals.values(), made[count:], strict=True))

    def _levels(self) -> Iterator[int]:
        """The time level of each tensor of a state."""
        for levels in self.fields.values():
            yield from range(len(levels))

    def _followed(self, inputs: Sequence[Any], wanted: Sequence[int]) -> set[str]:
        """The scalars by whose number in each step gradients are worked out."""
        names = {self.scalars[at] for at in wanted if at in self.scalars}
        return names | (set(self._clocks(inputs)) if STEP in names else set())

    def _clocks(self, inputs: Sequence[Any]) -> list[str]:
        """The times that advance by ``dt``: those of which a call says no more than where they begin."""
        places = {name: at for at, name in self.scalars.items()}
        return [p.name for p in self._asked if p.number == "time" and not inputs[places[p.name]].ndim]

    def _changed(self, coef: str) -> list[_Change]:
        found = derivatives(self.kernel.update, coef)
        return [_Change(self.kernel, offset, what) for offset, what in found.items()]

    def _product(
        self, change: _Change, state: State, coefs: Mapping[str, Any], numbers: Numbers, step: int, by_new: list[Any]
    ) -> Any:
        """In each cell the sum over fields of what a coefficient changes times the gradient by the new value."""
        total = _zeros(by_new[0])
        if change.kernel is None:
            for grad, number in zip(by_new, change.numbers, strict=True):
                total.add_(grad.to(total.dtype), alpha=number)
            return total
        changed = self._newest(self.run(change.kernel, state, coefs, numbers, {}, step, step + 1))
        for grad, value in zip(by_new, changed, strict=True):
            total.addcmul_(grad.to(total.dtype), value.to(total.dtype))
        return total

    def _newest(self, state: State) -> Iterator[Any]:
        """The newest level of each field."""
        for value, level in zip(state, self._levels(), strict=True):
            if not level:
                yield value

    def _by_new(self, grads: State) -> Iterator[Any]:
        """The gradients by the newest levels, with zeros in frozen cells, which get no new values."""
        for grad, sides in zip(self._newest(grads), self.kernel.update.sides, strict=True):
            frozen = any(side.kind == "frozen" for pair in sides for side in pair)
            yield grad * self._masks.get(sides, grad.device, grad.dtype) if frozen else grad

    def _mask(self, sides: Any, device: Any, dtype: Any) -> Any:
        free = Table("free", sides, self.kernel.update.radius).make(self.kernel.shape)
        return torch.from_numpy(free).to(device, dtype)


class _Alone:
    """The parts of a step back of a kernel with sites, each as a kernel of one step: ``at_sites`` is what happens at
    the sites to the newest levels, ``adjoint`` the rest."""

    def __init__(self, kernel: Kernel, adjoint: Kernel) -> None:
        what, self.adjoint = kernel.update, adjoint
        if isinstance(what, Update) and what.sites:
            self.adjoint = _unwatched(_like(kernel, replace(what, sites=())).adjoint())
            still = identity(what, *(name for name, _ in what.fields))
            self.at_sites = _like(kernel, replace(still, sites=tuple(group.turned for group in what.sites)))


class _Change:
    """What each field's new value changes with a coefficient that is read at ``offset``: what ``kernel`` makes of the
    newest levels, or ``numbers`` where it is the same in all cells."""

    def __init__(self, like: Kernel, offset: Offset, what: Update) -> None:
        self.offset, self.shape, self.sides = offset, like.shape, like.update.coef_sides
        self.first = 0 if like.batch is None else 1  # axis of a field among those of a tensor
        nodes = [what.code[place] for place in what.results]
        self.numbers, self.kernel = list[float](), None
        if all(node[0] == "const" for node in nodes):
            self.numbers = [cast("float", node[1]) for node in nodes]
        else:
            self.kernel = _like(like, what)

    def back(self, part: Any) -> Any:
        """What cells have, added up where they read the coefficient."""
        for axis, x in enumerate(self.offset):
            if x:
                n, (low, high) = self.shape[axis], self.sides[axis]
                around = pad(np.arange(n), (abs(x),), (((low.kind, 0.0), (high.kind, 0.0)),))
                index = torch.from_numpy(around[abs(x) + x :][:n]).to(part.device)
                part = torch.zeros_like(part).index_add_(self.first + axis, index, part)
        return part


def _like(kernel: Kernel, what: Update) -> Kernel:
    """A kernel of one step of another update, with what it reads of coefficients given and shared as this one's are."""
    batch = kernel.problem.batch
    shared = tuple(name for name in batch.shared if name in what.coefs) if batch else ()
    made = compile(
        replace(what, stepped=None), kernel.shape, device=kernel.device, backend=kernel.backend, batch=kernel.batch,
        shared=shared,
    )  # fmt: skip
    return _unwatched(made)


def _unwatched(kernel: Kernel) -> Kernel:
    """A kernel that does not warn of its time step: it is the compiler's own, the user's kernel has done so."""
    kernel._watch.done = True
    return kernel


def calls_of(kernel: Kernel) -> GridCalls:
    """How a kernel of time steps is called."""
    return cast("GridCalls", kernel._calls)


def _flat(made: Any) -> Iterator[Any]:
    """The tensors of what a call gives back."""
    if isinstance(made, torch.Tensor):
        yield made
    else:
        for each in made:
            yield from _flat(each)


def _no_sums(like: Any, count: int) -> Any:
    """So many sums over all cells, yet zero."""
    return torch.zeros(count, dtype=torch.float64, device=like.device)


def _summed(found: Any, like: Any) -> Any:
    """A gradient as what it is by: of one number for all steps the sum of those of each."""
    return (found.sum() if found.ndim > like.ndim else found).to(like.device, like.dtype)


def _zeros(like: Any) -> Any:
    """Zeros to sum in: of 16 bits in f32."""
    return torch.zeros_like(like, dtype=torch.float32 if like.dtype.itemsize < 4 else like.dtype)
