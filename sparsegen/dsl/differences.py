"""Coefficients of central differences, exact: sympy's ``finite_diff_weights`` divided by powers of the spacing.

Spacings and time steps are rationals: a float stands for the number that it is.
"""

from __future__ import annotations

import math
import numbers
import operator
from fractions import Fraction
from functools import cache
from importlib import import_module
from typing import Any, Final

from sparsegen.arguments import real
from sparsegen.dsl.refuse import fault
from sparsegen.dsl.stencil import MAX_RADIUS
from sparsegen.ir.errors import Loc, StencilError

Offset = tuple[int, ...]
#: Coefficients, sympy rationals, by the offset of the cell that they multiply.
Coefficients = dict[Offset, Any]

NAMES: Final = "xyz"
"""The axes by name: x is the last axis of an array, y the one before, z the one before that."""


def positive_number(value: Any, what: str, loc: Loc | None) -> Any:
    """A sympy Rational from a number above 0; StencilError for anything else."""
    sympy: Any = import_module("sympy")
    number = None if isinstance(value, bool) else real(value)
    if number is None or not 0 < number < math.inf:
        raise StencilError(f"{what} is {value!r}", loc=loc, hint="it is a finite number above 0, as in 0.1")
    if isinstance(value, (numbers.Rational, sympy.Rational)):
        return sympy.Rational(int(value.numerator), int(value.denominator))
    return sympy.Rational(*number.as_integer_ratio())


def spacing_of(value: Any, name: str, loc: Loc | None) -> Any:
    """The spacing of a parameter: None, a number for all axes, or a tuple with a number for each."""
    if value is None:
        return None
    if not isinstance(value, (tuple, list)):
        return positive_number(value, f"the spacing of {name}", loc)
    given: list[Any] = list(value)
    if not 1 <= len(given) <= 3:
        raise StencilError(
            f"the spacing of {name} has {len(given)} numbers",
            loc=loc,
            hint="give one for each axis, of which there are 1, 2 or 3, in the order of the array's",
        )
    return tuple(positive_number(one, f"the spacing of {name} on axis {axis}", loc) for axis, one in enumerate(given))


def derivative(along: str, order: Any, at: Any, spacing: tuple[Any, ...]) -> Coefficients:
    """The derivative along axes by their names, as in ``"x"``, ``"xx"`` and ``"xy"``, or ``"laplace"``.

    ``order`` is that of the error in the spacing, ``at`` where the derivative is taken (cells along its axis).
    StencilError at the user's line for what there is not.
    """
    count = _order(order)
    half = _place(along, at)
    if along == "laplace":
        total: Coefficients = {}
        for name in NAMES[: len(spacing)]:
            for offset, number in derivative(2 * name, count, 0, spacing).items():
                total[offset] = total.get(offset, 0) + number
        return total
    found: Coefficients = {(): import_module("sympy").Integer(1)}
    for axis, width in enumerate(spacing):
        degree = along.count(NAMES[len(spacing) - 1 - axis])
        line = central(degree, count, half) if degree else {0: 1}
        found = {
            (*offset, d): known * number / width**degree
            for offset, known in found.items()
            for d, number in line.items()
        }
    return found


@cache
def central(degree: int, order: int, at: Fraction) -> dict[int, Any]:
    """Coefficients of a first or second derivative on cells one apart, symmetric about ``at``, zeros left out."""
    sympy: Any = import_module("sympy")
    count = order + degree - 1
    count += count % 2 != (at == 0)  # as many points on either side: with the middle one if that is a cell
    first = math.ceil(at - Fraction(count - 1, 2))
    points = [sympy.Integer(first + i) for i in range(count)]
    if max(abs(first), abs(first + count - 1)) > MAX_RADIUS:
        far = max(abs(first), count + first - 1)
        raise fault(
            f"a derivative of order {order} reads {far} cells away, over the limit of {MAX_RADIUS}",
            "ask for a lower order",
        )
    weights = sympy.finite_diff_weights(degree, points, sympy.Rational(at.numerator, at.denominator))[degree][-1]
    return {int(point): weight for point, weight in zip(points, weights, strict=True) if weight != 0}


def _order(order: Any) -> int:
    try:
        count = 0 if isinstance(order, bool) else operator.index(order)
    except TypeError:
        count = 0
    if count < 2 or count % 2:
        raise fault(
            f"a derivative of order {order!r}",
            "the order of a central difference is an even number: order=2, 4, 6, 8, ...",
        )
    return count


def _place(along: str, at: Any) -> Fraction:
    number = None if isinstance(at, bool) else real(at)
    if number not in (-0.5, 0.0, 0.5):
        raise fault(f"a derivative at {at!r}", "it is taken at the cell, or half way: at=-0.5 or at=+0.5")
    if number and len(set(along)) > 1:
        raise fault(
            f"{'laplace' if along == 'laplace' else f'd{along}'} is taken at={at!r}, but along which axis?",
            "join derivatives along one axis, as in u.dx(at=0.5).dy(at=0.5)",
        )
    return Fraction(number)


__all__ = ["NAMES", "Coefficients", "Offset", "central", "derivative", "positive_number", "spacing_of"]
