"""The functions of a formula, ``sg.sqrt``, ``abs``, ``min``, ``max``, ``where``: of numbers they give numbers."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from sparsegen.arguments import real
from sparsegen.dsl.operands import Accessor, Condition, Read, fault


def sqrt(a: Any) -> Any:
    """The square root of a value; NaN (or, of a number, StencilError) below 0."""
    if not _traced(a):
        if (number := _number(a, "sqrt")) < 0:
            raise fault(f"sg.sqrt of {a!r}", "take the root of a number that is not negative")
        return math.sqrt(number)
    value = _only(a)
    return Read(value.trace, value.trace.graph.add("sqrt", value.place))


def abs(a: Any) -> Any:
    """The value without its sign; the builtin ``abs`` does the same."""
    if _traced(a):
        return builtins.abs(_only(a))
    _number(a, "abs")
    return builtins.abs(a)


def min(*values: Any) -> Any:
    """The least of two or more values; one that is not a number (NaN) counts only if all are."""
    return _extreme("min", values)


def max(*values: Any) -> Any:
    """The greatest of two or more values; one that is not a number (NaN) counts only if all are."""
    return _extreme("max", values)


def where(condition: Any, a: Any, b: Any) -> Any:
    """``a`` in the cells in which the condition holds (a comparison; ``&``, ``|``, ``~`` join such), else ``b``."""
    if isinstance(condition, (bool, np.bool_)):
        return a if condition else b
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


def _extreme(op: str, values: tuple[Any, ...]) -> Any:
    if len(values) < 2:
        raise fault(f"sg.{op} of {len(values)} values", f"give two or more: sg.{op}(a, b)")
    first = next((v for v in values if _traced(v)), None)
    if first is None:
        for value in values:
            _number(value, op)
        return getattr(builtins, op)(*values)
    graph, place = _only(first).trace.graph, None
    for value in values:
        other = first.place_of(value, "value")
        place = other if place is None else graph.add(op, place, other)
    assert place is not None
    return Read(first.trace, place)


__all__ = ["abs", "max", "min", "sqrt", "where"]
