"""The boundaries a user names: ``periodic``, ``frozen``, ``neumann``, ``dirichlet(v)``, for all sides or each.

What each kind means is written once, in :mod:`sparsegen.ir.boundary`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from sparsegen.callsite import user_loc
from sparsegen.ir.boundary import Side, Sides, describe
from sparsegen.ir.errors import BoundaryError, Loc

__all__ = [
    "BoundarySpec",
    "Side",
    "Sides",
    "collapse",
    "describe",
    "dirichlet",
    "frozen",
    "neumann",
    "periodic",
    "resolve",
]

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
    if isinstance(value, (bool, complex)):
        raise BoundaryError(
            f"dirichlet needs a real number, not {value!r}", loc=user_loc(), hint="as in sg.dirichlet(0.0)"
        )
    try:
        return Side("dirichlet", float(value))
    except BoundaryError as error:
        raise BoundaryError(error.message, loc=user_loc(), hint=error.hint) from None
    except (TypeError, ValueError, OverflowError):
        raise BoundaryError(
            f"dirichlet needs a number that fits a float, not {value!r}",
            loc=user_loc(),
            hint="as in sg.dirichlet(0.0); one value holds all along the border",
        ) from None


def resolve(spec: Any, ndim: int, loc: Loc | None = None) -> Sides:
    """The (low, high) sides of each of ``ndim`` axes; ``loc`` is the line that errors name (default: the caller's).

    ``spec`` is a :data:`BoundarySpec` (typed loosely, because it is the user's), and every fault in it is a
    :class:`BoundaryError`: an axis left out or not there, a thing that is no boundary, periodic at one end only.
    """
    loc = loc or user_loc()
    if not isinstance(spec, Mapping):
        side = _side(spec, "boundary", loc)
        return ((side, side),) * ndim
    axes = list(range(ndim))
    named: dict[Any, Any] = dict(cast("Any", spec))
    for key in named:
        if isinstance(key, bool) or key not in axes:
            raise BoundaryError(
                f"boundary names axis {key!r}, but a {ndim}-D stencil has the axes {_list(axes)}",
                loc=loc,
                hint="number the axes from 0, slowest (outermost) first",
            )
    if missing := [axis for axis in axes if axis not in named]:
        raise BoundaryError(
            f"boundary does not name axis {_list(missing)} of a {ndim}-D stencil",
            loc=loc,
            hint=f"add {missing[0]}: sg.periodic (or another kind) to the boundary",
        )
    return tuple(_pair(named[axis], axis, loc) for axis in axes)


def collapse(sides: Sides) -> BoundarySpec:
    """The shortest spec that means ``sides``: ``resolve(collapse(sides), len(sides)) == sides``."""
    if len({side for pair in sides for side in pair}) == 1:
        return sides[0][0]
    return {axis: low if low == high else (low, high) for axis, (low, high) in enumerate(sides)}


def _pair(given: Any, axis: int, loc: Loc | None) -> tuple[Side, Side]:
    if not isinstance(given, (tuple, list)):
        side = _side(given, f"boundary of axis {axis}", loc)
        return side, side
    ends = cast("Sequence[Any]", given)
    if len(ends) != 2:
        raise BoundaryError(
            f"boundary of axis {axis} has {len(ends)} sides: {ends!r}",
            loc=loc,
            hint="one kind for both ends, or (low, high)",
        )
    low, high = (
        _side(one, f"{end} boundary of axis {axis}", loc) for one, end in zip(ends, ("low", "high"), strict=True)
    )
    if (low.kind == "periodic") != (high.kind == "periodic"):
        raise BoundaryError(
            f"axis {axis} is periodic at one end only: ({low}, {high})",
            loc=loc,
            hint=f"make both ends periodic ({axis}: sg.periodic), or neither",
        )
    return low, high


def _side(given: Any, what: str, loc: Loc | None) -> Side:
    if isinstance(given, Side):
        return given
    if given is dirichlet:
        raise BoundaryError(f"{what}: dirichlet without its value", loc=loc, hint="as in sg.dirichlet(0.0)")
    if isinstance(given, (tuple, list)):
        raise BoundaryError(f"{what} is {given!r}, which does not say which axis it is for", loc=loc, hint=_HINT)
    raise BoundaryError(f"{what} is {given!r}, which is no boundary", loc=loc, hint=_HINT)


def _list(axes: list[int]) -> str:
    return ", ".join(map(str, axes))
