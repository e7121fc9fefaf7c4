"""The functions of a formula, ``sg.sqrt``, ``exp``, ``log``, ``pow``, ``min``, ...: of numbers they give numbers.

Of values they mean what NumPy's do, cell by cell: NaN outside their domain, infinite where a result is too large.  What
is wrong with plain numbers is a StencilError.  To type checkers all results are values of a formula.
"""

from __future__ import annotations

import builtins
import math
from typing import Any, Final, cast

import numpy as np

from sparsegen.arguments import real
from sparsegen.dsl.operands import Accessor, Condition, Read, Value
from sparsegen.dsl.refuse import fault

#: What plain numbers a function takes, where it does not take all.
_DOMAIN: Final = {
    "sqrt": "take the root of a number that is not negative", "exp": "take the exponential of a number below 709",
    "log": "take the logarithm of a number above 0", "sin": "give it a finite angle (radians)",
    "cos": "give it a finite angle (radians)",
    "pow": "raise a number above 0, or any other than 0 to a whole power; the result must be below 1e308",
}  # fmt: skip


def sqrt(a: Value | float) -> Value:
    """The square root of a value; NaN (or, of a number, StencilError) below 0."""
    return _function("sqrt", a)


def exp(a: Value | float) -> Value:
    """e to the power of a value; infinite (or, of a number, StencilError) where it is too large for the type."""
    return _function("exp", a)


def log(a: Value | float) -> Value:
    """The natural logarithm; NaN below 0 and -inf at 0 (or, of a number, StencilError)."""
    return _function("log", a)


def sin(a: Value | float) -> Value:
    """The sine of an angle in radians."""
    return _function("sin", a)


def cos(a: Value | float) -> Value:
    """The cosine of an angle in radians."""
    return _function("cos", a)


def tanh(a: Value | float) -> Value:
    """The hyperbolic tangent, between -1 and 1."""
    return _function("tanh", a)


def pow(a: Value | float, b: Value | float) -> Value:
    """``a`` to the power ``b``; ``a ** b`` does the same.  NaN where ``a`` is negative and ``b`` is not whole.

    A power that is a whole number of at most 64 is made of products, 0.5 is the square root.
    """
    if _traced(a):
        return _only(a) ** b
    return a ** _only(b) if _traced(b) else _folded("pow", a, b)


def clip(a: Value | float, low: Value | float, high: Value | float) -> Value:
    """``min(max(a, low), high)``: where ``a`` is not a number (NaN) it is ``low``.

    Bounds may be values; StencilError for numbers of which the lower is the larger.
    """
    for value in (a, low, high):
        if not _traced(value):
            _number(value, "clip")
    if not (_traced(low) or _traced(high)) and cast("float", low) > cast("float", high):
        raise fault(f"sg.clip between {low!r} and {high!r}", "give the lower bound first: sg.clip(a, low, high)")
    return min(max(a, low), high)


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
    if isinstance(condition, Accessor):
        condition.refuse("used as a condition without offsets")
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


def _function(op: str, a: Any) -> Value:
    """A function of one value or number."""
    if not _traced(a):
        return _folded(op, a)
    value = _only(a)
    return Read(value.trace, value.trace.graph.add(op, value.place))


def _folded(op: str, *given: Any) -> Value:
    """A function of plain numbers."""
    numbers = [_number(a, op) for a in given]
    try:
        return cast("Value", getattr(math, op)(*numbers))
    except (ValueError, OverflowError):
        raise fault(f"sg.{op} of {', '.join(map(repr, given))}, which is no finite number", _DOMAIN[op]) from None


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


__all__ = ["abs", "clip", "cos", "exp", "log", "max", "min", "pow", "sin", "sqrt", "tanh", "where"]
