"""The numbers that a call of an update gives for its time steps: scalars, and the time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparsegen.arguments import real
from sparsegen.dsl.operands import Parameter
from sparsegen.dsl.update import STEP, Update
from sparsegen.ir.errors import ArrayError
from sparsegen.ir.formula import scalars
from sparsegen.ir.types import DTYPES, cell_type

Numbers = npt.NDArray[Any]
#: What a measurement takes for a scalar that it is not given.
_SOME: Final = 0.1


def some(update: Update, steps: int) -> dict[str, Any]:
    """What a measurement takes that is not given any."""
    times = np.arange(steps) * _SOME
    counted = any(p.name == STEP for p in update.numbers)
    return {
        p.name: times if p.number == "time" else _SOME for p in update.numbers if p.number == "scalar" or not counted
    }


def each(
    update: Update, values: Mapping[str, Any], steps: int, needed: Collection[str] | None = None
) -> dict[str, Numbers]:  # fmt: skip
    """What each parameter that is a number is in each of so many time steps, in f64.

    ``values``: what parameters are given; ``needed``: those that must be, if not all.  The time of a step is the sum of
    ``dt`` of those before it, from where the call begins.  ArrayError for a scalar that is missing, no number, or an
    array of another length.
    """
    found: dict[str, Numbers] = {}
    asked = [p for p in update.numbers if needed is None or p.name in needed or p.name in values]
    times = [p for p in asked if p.number == "time"]
    for p in update.numbers:
        if p.number == "scalar" and (p in asked or (times and p.name == STEP)):
            found[p.name] = of_each(p, given(update, p, values), steps)
    return {**found, **{p.name: _times(update, p, values, steps, found.get(STEP)) for p in times}}


def table(update: Update, found: Mapping[str, Numbers], steps: int) -> Numbers | None:
    """The scalars of each time step that the formula has, [steps, count], in the order in which kernels take them,
    rounded to the type of its sums; where all are numbers one row stands for all steps.  None where it has none.

    ``found``: what :func:`each` gives.
    """
    if not (names := scalars(update.code)):
        return None
    dtype = cell_type(DTYPES[update.dtype]).numpy()
    one = all(found[name].strides == (0,) for name in names)
    with np.errstate(over="ignore"):
        rows = np.stack([found[name][: 1 if one else None] for name in names], axis=1).astype(dtype)
    return np.broadcast_to(rows, (steps, len(names)))


def given(update: Update, p: Parameter, values: Mapping[str, Any]) -> Any:
    """What a parameter that is a number is given; the time begins at 0 where nobody says otherwise.  ArrayError for one
    that is missing."""
    if p.name in values:
        return values[p.name]
    if p.number == "time" and any(of.name == STEP for of in update.numbers):
        return 0.0
    names = ", ".join(f"{each.name}=..." for each in update.numbers)
    raise ArrayError(f"{update.name}: no number for {p.name}", hint=f"pass it by name, as in k(..., {names})")


def alike(names: Sequence[str], dtype: npt.DTypeLike, values: Mapping[str, Any], steps: int) -> Numbers | None:
    """The :func:`table` of these scalars where all are plain numbers, in a few microseconds; None where one is not."""
    row = [values.get(name) for name in names]
    if any(type(number) is not float and type(number) is not int for number in row):
        return None
    try:
        with np.errstate(over="ignore"):
            held = np.array(row, dtype)
    except OverflowError:  # an integer that is no float
        return None
    rows: Numbers = np.ndarray((steps, len(row)), held.dtype, held, strides=(0, held.itemsize))
    return rows


def _times(update: Update, p: Parameter, values: Mapping[str, Any], steps: int, dt: Numbers | None) -> Numbers:
    """The time of each step."""
    if dt is None:
        times = given(update, p, values)
        if real(times) is not None:
            raise ArrayError(
                f"{p.name}={times}: {update.name} has no scalar dt that the time advances by",
                hint=f"pass an array with the time of each of the {steps} steps, or give the update dt: sg.Scalar",
            )
        return of_each(p, times, steps, f"an array with the time of each of the {steps} steps")
    start = given(update, p, values)
    if (first := real(start)) is not None:
        return first + np.concatenate(([0.0], np.cumsum(dt)[:-1]))
    return of_each(p, start, steps, f"where it begins, or an array with the time of each of the {steps} steps")


def of_each(p: Parameter, given: Any, steps: int, wanted: str = "") -> Numbers:
    """The number of each time step, in f64, from one for all or an array; ArrayError, which says what is ``wanted``,
    for anything else."""
    if (number := real(given)) is not None:
        return np.broadcast_to(np.float64(number), (steps,))
    try:
        found = np.asarray(given if not hasattr(given, "detach") else given.detach().cpu())
    except Exception:  # whatever a library raises for what is no array of its
        found = np.empty(0, object)
    if found.dtype.kind not in "fiu" or found.shape != (steps,):
        what = f"an array of shape {list(found.shape)}" if found.dtype.kind in "fiu" else repr(given)
        wanted = wanted or f"one number, or an array of {steps}, one a time step"
        raise ArrayError(f"{p.name} is {what}", hint=f"pass {wanted}")
    return found.astype(np.float64)
