"""A warning of a time step that is larger than a linear scheme bears: where it is compiled, or called, with that step.

A scheme is judged as :mod:`sparsegen.stability` does, in a few wave numbers.  What the equation itself lets grow is
told from what the time step does: it grows at nearly the same rate in steps that are a thousandth as long.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from sparsegen.adjoint.linear import Linear
from sparsegen.arguments import real
from sparsegen.arrays import describe, host_array
from sparsegen.callsite import warn
from sparsegen.dsl.operands import Parameter
from sparsegen.dsl.stencil import Stepped
from sparsegen.dsl.update import STEP, Update
from sparsegen.ir.errors import SparsegenError
from sparsegen.stability import rough
from sparsegen.views import ArrayLayout

#: Growth in a step that is not worth a warning.
_SLACK: Final = 1e-6
#: How often a step is halved in search of a stable one, and then the distance to one that is not.
_HALVED, _NARROWED = 8, 14
#: How much shorter a step is by which the growth of the equation itself is known.
_SHORT: Final = 2.0**-10


class UnstableWarning(RuntimeWarning):
    """A time step is larger than the largest that is stable: errors will grow until nothing else is left."""


class Watch:
    """What is known of a kernel's time step; nothing is left to be judged when it is ``done``."""

    def __init__(self, described: Any) -> None:
        stepped: Stepped | None = getattr(described, "stepped", None)
        #: The step that the derivatives were made with; None where calls give it.
        self._given = None if stepped is None else stepped.dt
        self._free: Callable[[], Any] = (lambda: described) if stepped is None else stepped.free
        scalar = isinstance(described, Update) and any(p.name == STEP for p in described.numbers)
        self.done = stepped is None and not scalar
        self._scheme: Linear | None = None
        self._coefs: dict[str, Any] | None = None
        self._stable = 0.0

    def compiled(self) -> None:
        """Judge a step that is known, of a scheme that depends on nothing else."""
        if self._given is not None and not self._needs():
            self._judge(self._given, {})

    def called(self, values: Mapping[str, Any], like: ArrayLayout, stream: object) -> None:
        """Judge the step of a call; coefficients and other scalars are those of the first one.

        ``values``: what parameters are given; ``like``: the layout of one of the arrays.
        """
        step = self._given if self._given is not None else _ends(values[STEP])[1]
        if not self._stable < step < math.inf or not _readable(like, stream):
            return
        if self._coefs is None:
            try:
                self._coefs = {p.name: _ends(values[p.name]) for p in self._needs() if not p.mask}
            except (AttributeError, KeyError, TypeError, ValueError, SparsegenError):  # no least and largest number
                self.done = True
        if self._coefs is not None:
            self._judge(step, self._coefs)

    def _needs(self) -> list[Parameter]:
        """Coefficients and scalars that the growth depends on besides the step."""
        if self._scheme is None and not self.done:
            try:
                self._scheme = Linear.of(self._free())
            except SparsegenError:  # it is not linear, or none of its derivatives is in time
                self.done = True
        return [] if self._scheme is None else [p for p in self._scheme.needs if p.name != STEP]

    def _judge(self, step: float, coefs: Mapping[str, Any]) -> None:
        """Warn of a step that is too large, once; remember one that is not."""
        scheme = self._scheme
        if scheme is None:
            return
        try:
            largest, factor = _largest(scheme, coefs, step)
        except (SparsegenError, OverflowError):  # coefficients that are no finite numbers
            largest, factor = math.inf, 1.0
        self._stable, self.done = step, self._given is not None or largest != step
        if 0 < largest < step:
            warn(
                f"dt={step:.6g} is beyond {largest:.4g}, the largest stable time step of {scheme.name}: errors grow "
                f"{factor:.4g} times in each",
                UnstableWarning,
            )


def _largest(scheme: Linear, coefs: Mapping[str, Any], step: float) -> tuple[float, float]:
    """The largest stable time step up to ``step``, 0 where none is found, and the growth in ``step``."""

    def grown(step: float) -> float:
        return rough(scheme, {**coefs, STEP: step})

    rate = 2 * math.log(grown(step * _SHORT)) / (step * _SHORT)

    def stable(step: float) -> bool:
        return grown(step) <= math.exp(rate * step) + _SLACK

    halvings = next((n for n in range(_HALVED) if stable(step / 2**n)), None)
    if not halvings:
        return (step if halvings == 0 else 0.0), grown(step)
    low, high = step / 2**halvings, step / 2 ** (halvings - 1)
    for _ in range(_NARROWED):
        middle = (low + high) / 2
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low, grown(step)


def _ends(value: Any) -> tuple[float, float]:
    """The least and the largest of a number, or of an array where it lies."""
    if (number := real(value)) is not None:
        return number, number
    if isinstance(value, (list, tuple)):
        value = np.asarray(value, float)
    array = value if describe(value).layout.device_kind != "host" else host_array(describe(value))
    return float(array.min()), float(array.max())


def _readable(like: ArrayLayout, stream: object) -> bool:
    """Whether arrays can be looked at now: those of a GPU not while a graph is captured, or for another stream."""
    if like.device_kind == "host":
        return True
    if stream is not None or like.library not in ("torch", "cupy"):
        return False
    cuda: Any = sys.modules[like.library].cuda
    if like.library == "torch":
        return not cuda.is_current_stream_capturing()
    return not cuda.get_current_stream().is_capturing()
