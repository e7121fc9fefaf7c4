"""The numbers that a call of an update gives for its time steps: scalars, and the time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparsegen.arguments import real
from sparsegen.dsl.operands import Parameter
from sparsegen.dsl.update import Update
from sparsegen.ir.errors import ArrayError
from sparsegen.ir.formula import scalars
from sparsegen.ir.types import DTYPES, cell_type

Numbers = npt.NDArray[Any]
#: What a measurement takes for a scalar that it is not given.
_SOME: Final = 0.1
#: The scalar that the time advances by.
STEP: Final = "dt"


def some(update: Update, steps: int) -> dict[str, Any]:
    """What a measurement takes that is not given any."""
    times = np.arange(steps) * _SOME
    counted = any(p.name == STEP for p in update.numbers)
    return {
        p.name: times if p.number == "time" else _SOME for p in update.numbers if p.number == "scalar" or not counted
    }


def each(update: Update, values: Mapping[str, Any], steps: int) -> dict[str, Numbers]:
    """What each parameter that is a number is in each of so many time steps, in f64.

    ``values``: what parameters are given.  The time of a step is the sum of ``dt`` of those before it, from where the
    call begins.  ArrayError for a scalar that is missing, no number, or an array of another length.
    """
    found: dict[str, Numbers] = {}
    for p in update.numbers:
        if p.number == "scalar":
            wanted = f"one number, or an array of {steps}, one a time step"
            found[p.name] = _of_each(p, _given(update, p, values), steps, wanted)
    times = [p for p in update.numbers if p.number == "time"]
    return {**found, **{p.name: _times(update, p, values, steps, found.get(STEP)) for p in times}}


def table(update: Update, values: Mapping[str, Any], steps: int) -> Numbers | None:
    """The scalars of each time step that the formula has, [steps, count], in the order in which kernels take them,
    rounded to the type of its sums; None where it has none."""
    if not (names := scalars(update.code)):
        return None
    found, dtype = each(update, values, steps), cell_type(DTYPES[update.dtype]).numpy()
    with np.errstate(over="ignore"):
        return np.stack([found[name] for name in names], axis=1).astype(dtype)


def _given(update: Update, p: Parameter, values: Mapping[str, Any]) -> Any:
    if p.name in values:
        return values[p.name]
    names = ", ".join(f"{each.name}=..." for each in update.numbers)
    raise ArrayError(f"{update.name}: no number for {p.name}", hint=f"pass it by name, as in k(..., {names})")


def _times(update: Update, p: Parameter, values: Mapping[str, Any], steps: int, dt: Numbers | None) -> Numbers:
    """The time of each step."""
    if dt is None:
        given = _given(update, p, values)
        if real(given) is not None:
            raise ArrayError(
                f"{p.name}={given}: {update.name} has no scalar dt that the time advances by",
                hint=f"pass an array with the time of each of the {steps} steps, or give the update dt: sg.Scalar",
            )
        return _of_each(p, given, steps, f"an array with the time of each of the {steps} steps")
    start = values.get(p.name, 0.0)
    if (first := real(start)) is not None:
        return first + np.concatenate(([0.0], np.cumsum(dt)[:-1]))
    return _of_each(p, start, steps, f"where it begins, or an array with the time of each of the {steps} steps")


def _of_each(p: Parameter, given: Any, steps: int, wanted: str) -> Numbers:
    """The number of each time step, in f64."""
    if (number := real(given)) is not None:
        return np.full(steps, number)
    try:
        found = np.asarray(given if not hasattr(given, "detach") else given.detach().cpu())
    except Exception:  # whatever a library raises for what is no array of its
        found = np.empty(0, object)
    if found.dtype.kind not in "fiu" or found.shape != (steps,):
        what = f"an array of shape {list(found.shape)}" if found.dtype.kind in "fiu" else repr(given)
        raise ArrayError(f"{p.name} is {what}", hint=f"pass {wanted}")
    return found.astype(np.float64)
