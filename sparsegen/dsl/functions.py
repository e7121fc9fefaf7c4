"""The functions of a formula, ``sg.sqrt``, ``abs``, ``min``, ``max``, ``where``: of numbers they give numbers.

To type checkers all results are values of a formula.
"""

from __future__ import annotations

import builtins
import math
from typing import Any, cast

import numpy as np

from sparsegen.arguments import real
from sparsegen.dsl.operands import Accessor, Condition, Read, Value, fault


def sqrt(a: Value | float) -> Value:
    """The square root of a value; NaN (or, of a number, StencilError) below 0."""
    if not _traced(a):
        if (number := _number(a, "sqrt")) < 0:
            raise fault(f"sg.sqrt of {a!r}", "take the root of a number that is not negative")
        return cast("Value", math.sqrt(number))
    value = _only(a)
    return Read(value.trace, value.trace.graph.add("sqrt", value.place))


def abs(a: Value | float) -> Value:
    """The value without its sign; the builtin ``abs`` does the same."""
    if _traced(a):
        return builtins.abs(_only(a))
    _number(a, "abs")
    return cast("Value", builtins.abs(a))


def min(*values: Value | float) -> Value:
    """The least of two or more values; one that is not a number (NaN) counts only if all are."""
    return _extreme("min", values)


def max(*values: Value | float) -> Value:
    """The greatest of two or more values; one that is not a number (NaN) counts only if all are."""
    return _extreme("max", values)


def where(condition: Condition | bool, a: Value | float, b: Value | float) -> Value:
    """``a`` in the cells in which the condition holds (a comparison; ``&``, ``|``, ``~`` join such), else ``b``."""
    if isinstance(condition, (bool, np.bool_)):
        return cast("Value", a if condition else b)
    if not isinstance(condition, Condition):
        what = f"the condition of sg.where is {condition}, which is no comparison"
        raise fault(what, "compare reads, as in sg.where(u[0, 0] > 0, a, b)")
    at = Read(condition.trace, condition.place)
    choices = (at.place_of(v, "choice") for v in (a, b))
    return Read(condition.trace, condition.trace.graph.add("where", condition.place, *choices))


def _traced(a: Any) -> bool:
    return isinstance(a, (Read, Accessor, Condition))


def _number(a: Any, function: str) -> float:
    """A plain number that a function of formulas is given; StencilError for anything else."""
    if (number := real(a)) is None:
        raise fault(f"sg.{function} of {a!r}, which is no real number", "give it reads u[...], or numbers")
    return number


def _only(a: Any) -> Read:
    if not isinstance(a, Read):
        a.refuse("used as a number")
    assert isinstance(a, Read)
    return a


def _extreme(op: str, values: tuple[Any, ...]) -> Value:
    if len(values) < 2:
        raise fault(f"sg.{op} of {len(values)} values", f"give two or more: sg.{op}(a, b)")
    first = next((v for v in values if _traced(v)), None)
    if first is None:
        for value in values:
            _number(value, op)
        return cast("Value", getattr(builtins, op)(*values))
    graph, place = _only(first).trace.graph, None
    for value in values:
        other = first.place_of(value, "value")
        place = other if place is None else graph.add(op, place, other)
    assert place is not None
    return Read(first.trace, place)


__all__ = ["abs", "max", "min", "sqrt", "where"]
