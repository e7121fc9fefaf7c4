"""The boundaries a user names: ``periodic``, ``frozen``, ``neumann``, ``dirichlet(v)``, for all sides or each.

What each kind means is written once, in :mod:`sparsegen.ir.boundary`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from sparsegen.arguments import real
from sparsegen.callsite import located, user_loc
from sparsegen.ir.boundary import Side, Sides
from sparsegen.ir.errors import BoundaryError, Loc

periodic = Side("periodic")
frozen = Side("frozen")
neumann = Side("neumann")

BoundarySpec: TypeAlias = "Side | Mapping[int, Side | tuple[Side, Side]]"
"""One kind for every side, or ``{axis: kind}`` / ``{axis: (low, high)}`` with every axis named."""

_HINT = (
    "sg.periodic, sg.frozen, sg.neumann or sg.dirichlet(v); "
    "per axis and side {0: (sg.frozen, sg.neumann), 1: sg.periodic}"
)


def dirichlet(value: float) -> Side:
    """Cells outside hold ``value`` (finite, in the unit of the field) at every time step."""
    with located(user_loc()):
        number = None if isinstance(value, (bool, np.bool_)) else real(value)
        if number is None:
            raise BoundaryError(
                f"dirichlet needs a real number that fits a float, not {value!r}",
                hint="as in sg.dirichlet(0.0); one value holds all along the border",
            )
        return Side("dirichlet", number)


def resolve(spec: Any, ndim: int, loc: Loc | None = None) -> Sides:
    """The (low, high) sides of each of ``ndim`` axes; ``loc`` is the line that errors name (default: the caller's).

    ``spec`` is a :data:`BoundarySpec` (typed loosely, because it is the user's), and every fault in it is a
    :class:`BoundaryError`: an axis left out or not there, a thing that is no boundary, periodic at one end only.
    """
    with located(loc or user_loc()):
        if not isinstance(spec, Mapping):
            side = _side(spec, "boundary")
            return ((side, side),) * ndim
        axes = list(range(ndim))
        named: dict[Any, Any] = dict(cast("Any", spec))
        for key in named:
            if isinstance(key, bool) or key not in axes:
                raise BoundaryError(
                    f"boundary names axis {key!r}, but a {ndim}-D stencil has the axes {', '.join(map(str, axes))}",
                    hint="number the axes from 0, slowest (outermost) first",
                )
        if missing := [axis for axis in axes if axis not in named]:
            raise BoundaryError(
                f"boundary does not name axis {', '.join(map(str, missing))} of a {ndim}-D stencil",
                hint=f"add {missing[0]}: sg.periodic (or another kind) to the boundary",
            )
        return tuple(_pair(named[axis], axis) for axis in axes)


def check_sides(sides: Any, ndim: int, loc: Loc | None) -> None:
    """BoundaryError unless ``sides`` are a (low, high) pair of sides for each of ``ndim`` axes."""
    pairs = isinstance(sides, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in sides)
    if not pairs or len(sides) != ndim or not all(isinstance(side, Side) for pair in sides for side in pair):
        raise BoundaryError(
            f"the boundary of a {ndim}-D stencil is {sides!r}",
            loc=loc,
            hint=f"give {ndim} (low, high) pairs of sg.periodic and the like, one an axis",
        )


def collapse(sides: Sides) -> BoundarySpec:
    """The shortest spec that means ``sides``: ``resolve(collapse(sides), len(sides)) == sides``."""
    if len({side for pair in sides for side in pair}) == 1:
        return sides[0][0]
    return {axis: low if low == high else (low, high) for axis, (low, high) in enumerate(sides)}


def _pair(given: Any, axis: int) -> tuple[Side, Side]:
    what = f"boundary of axis {axis}"
    if not isinstance(given, (tuple, list)):
        side = _side(given, what)
        return side, side
    ends = cast("Sequence[Any]", given)
    if len(ends) != 2:
        raise BoundaryError(f"{what} has {len(ends)} sides: {ends!r}", hint="one kind for both ends, or (low, high)")
    low, high = _side(ends[0], f"low {what}"), _side(ends[1], f"high {what}")
    if (low.kind == "periodic") != (high.kind == "periodic"):
        raise BoundaryError(
            f"axis {axis} is periodic at one end only: ({low}, {high})",
            hint=f"make both ends periodic ({axis}: sg.periodic), or neither",
        )
    return low, high


def _side(given: Any, what: str) -> Side:
    if isinstance(given, Side):
        return given
    if given is dirichlet:
        raise BoundaryError(f"{what}: dirichlet without its value", hint="as in sg.dirichlet(0.0)")
    wrong = "does not say which axis it is for" if isinstance(given, (tuple, list)) else "is no boundary"
    raise BoundaryError(f"{what} is {given!r}, which {wrong}", hint=_HINT)
