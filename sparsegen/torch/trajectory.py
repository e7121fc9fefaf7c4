"""What gradients of time steps need of a kernel: its adjoint, and the states on the way for those by coefficients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from threading import Lock
from typing import Any, cast
from weakref import WeakValueDictionary

import numpy as np
import torch

from sparsegen.adjoint.derivative import derivatives
from sparsegen.adjoint.transpose import Table
from sparsegen.backends.reference.boundary import pad
from sparsegen.calls.grid import GridCalls
from sparsegen.compiler import compile
from sparsegen.dsl.update import Update
from sparsegen.ir.errors import ProductError
from sparsegen.ir.formula import Offset
from sparsegen.kernel import Kernel
from sparsegen.memo import Memo

_lock, _numbers = Lock(), count(1)
_known: WeakValueDictionary[int, Trajectory] = WeakValueDictionary()
#: Tensors of all levels of all fields, in the order of what a kernel gives back.
State = list[Any]


class Trajectory:
    """A kernel with its adjoint, as operators know it: by ``handle``, as long as something holds it.

    ``parameters`` and ``fields``: names of a call's parameters and of the fields of its result, each with its levels.

    StencilError and the like for a kernel that has no adjoint.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.adjoint, self.calls = kernel, kernel.adjoint(), calls_of(kernel)
        self.parameters, self.fields = self.calls.parameters, self.calls.fields
        names = [name for name, levels in self.parameters.items() for _ in levels]
        #: Where each level of a state, and each coefficient, stands among the tensors of a call.
        self.places = [at for field in self.fields for at, name in enumerate(names) if name == field]
        self.coefs = {at: name for at, name in enumerate(names) if name not in self.fields}
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

    def nested(self, state: Iterable[Any]) -> dict[str, Any]:
        """For each field a tensor, or a tuple of its levels."""
        left = iter(state)
        levels = {name: [next(left) for _ in arrays] for name, arrays in self.fields.items()}
        return {name: tuple(each) if len(each) > 1 else each[0] for name, each in levels.items()}

    def run(self, kernel: Kernel, state: State, coefs: Mapping[str, Any], steps: int) -> State:
        """The state after so many steps of this kernel, or of one of its fields and some of its coefficients."""
        values = {**self.nested(state), **coefs}
        made = kernel(**{name: values[name] for name in calls_of(kernel).parameters}, steps=steps)
        return list(_flat(made))

    # -------------------------------------------------------------------------------------------- by coefficients
    def gradients(self, inputs: Sequence[Any], grads: State, wanted: Sequence[int]) -> list[Any]:
        """The gradients by the levels of a state, then those by the tensors ``wanted``, which are coefficients."""
        coefs, left = self.given(inputs), self.kernel.steps
        every = math.isqrt(left - 1) + 1
        kept = [self.state(inputs)]
        for _ in range(0, left - every, every):
            kept.append(self.run(self.kernel, kept[-1], coefs, every))
        sums = {self.coefs[at]: _zeros(inputs[at]) for at in wanted}
        while kept:
            states = [kept.pop()]
            while len(kept) * every + len(states) < left:
                states.append(self.run(self.kernel, states[-1], coefs, 1))
            left = len(kept) * every
            for state in reversed(states):
                by_new = list(self._by_new(grads))
                for name, total in sums.items():
                    for change in self._changes.get(name):
                        total += change.back(self._product(change, state, coefs, by_new))
                grads = self.run(self.adjoint, grads, coefs, 1)
        return [*grads, *(sums[self.coefs[at]].to(inputs[at].dtype) for at in wanted)]

    def _changed(self, coef: str) -> list[_Change]:
        found = derivatives(self.kernel.update, coef)
        return [_Change(self.kernel, offset, what) for offset, what in found.items()]

    def _product(self, change: _Change, state: State, coefs: Mapping[str, Any], by_new: list[Any]) -> Any:
        """In each cell the sum over fields of what a coefficient changes times the gradient by the new value."""
        total = _zeros(by_new[0])
        if change.kernel is None:
            for grad, number in zip(by_new, change.numbers, strict=True):
                total.add_(grad.to(total.dtype), alpha=number)
            return total
        changed = self._newest(self.run(change.kernel, state, coefs, 1))
        for grad, value in zip(by_new, changed, strict=True):
            total.addcmul_(grad.to(total.dtype), value.to(total.dtype))
        return total

    def _newest(self, state: State) -> Iterator[Any]:
        """The newest level of each field."""
        at = 0
        for levels in self.fields.values():
            yield state[at]
            at += len(levels)

    def _by_new(self, grads: State) -> Iterator[Any]:
        """The gradients by the newest levels, with zeros in frozen cells, which get no new values."""
        for grad, sides in zip(self._newest(grads), self.kernel.update.sides, strict=True):
            frozen = any(side.kind == "frozen" for pair in sides for side in pair)
            yield grad * self._masks.get(sides, grad.device, grad.dtype) if frozen else grad

    def _mask(self, sides: Any, device: Any, dtype: Any) -> Any:
        free = Table("free", sides, self.kernel.update.radius).make(self.kernel.shape)
        return torch.from_numpy(free).to(device, dtype)


class _Change:
    """What each field's new value changes with a coefficient that is read at ``offset``: what ``kernel`` makes of the
    newest levels, or ``numbers`` where it is the same in all cells."""

    def __init__(self, like: Kernel, offset: Offset, what: Update) -> None:
        self.offset, self.shape, self.sides = offset, like.shape, like.update.coef_sides
        nodes = [what.code[place] for place in what.results]
        self.numbers, self.kernel = list[float](), None
        if all(node[0] == "const" for node in nodes):
            self.numbers = [cast("float", node[1]) for node in nodes]
        else:
            self.kernel = compile(what, like.shape, device=like.device, backend=like.backend)

    def back(self, part: Any) -> Any:
        """What cells have, added up where they read the coefficient."""
        for axis, x in enumerate(self.offset):
            if x:
                n, (low, high) = self.shape[axis], self.sides[axis]
                around = pad(np.arange(n), (abs(x),), (((low.kind, 0.0), (high.kind, 0.0)),))
                index = torch.from_numpy(around[abs(x) + x :][:n]).to(part.device)
                part = torch.zeros_like(part).index_add_(axis, index, part)
        return part


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


def _zeros(like: Any) -> Any:
    """Zeros to sum in: of 16 bits in f32."""
    return torch.zeros_like(like, dtype=torch.float32 if like.dtype.itemsize < 4 else like.dtype)
