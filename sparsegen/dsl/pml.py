"""``sg.pml``: a step of the acoustic wave equation whose layers at the edges take waves away and throw none back.

Source: M. J. Grote, I. Sim, "Efficient PML for the wave equation", arXiv:1001.0319 (2010).  With dampings ``z`` of each
axis, which are 0 inside, the equation ``u_tt = s^2 laplace(u)`` becomes

    u_tt + (sum of z) u_t + (sum of z z) u + (product of z) p = s^2 (laplace(u) + sum of q_a along a)
    q_a,t + z_a q_a = (sum of the others - z_a) u along a + (product of the others) p along a
    p_t = u

with a field ``q`` of each axis, half way to the next cell and half a time step back, and on three axes ``p``, also half
a step back.  Differences in space are centred; those of the fields ``q`` are of order 2.

With D the difference over a time step (by dt) and M the mean of its ends, the scheme is to the letter that of ``D^2 u =
s^2 laplace(u)`` with each difference along an axis divided by ``1 + z_a M/D``.  So a wave along an edge, where two
dampings are not 0, neither grows nor decays by itself, as it should; with other means of ``u`` it would grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

from sparsegen.dsl.derivable import Derivable
from sparsegen.dsl.differences import NAMES
from sparsegen.dsl.operands import Accessor, Value
from sparsegen.dsl.refuse import fault
from sparsegen.dsl.solve import Eq, solve

if TYPE_CHECKING:
    from sparsegen.dsl.trace import Coef, Field


def pml(
    u: Field, extra: Sequence[Field], damping: Sequence[Coef], speed: Value | float, *, order: int = 2
) -> tuple[Value, ...]:
    """The new values of ``u`` and of the ``extra`` fields after a step of ``u_tt = speed^2 laplace(u)`` with layers.

    ``u`` has two levels, a spacing and a time step (its own, or ``dt: sg.Scalar``).  ``extra``: a field for each axis,
    in the order of the array's axes, and on three axes one more; all are 0 at first.  ``damping``: a coefficient for
    each axis, as :func:`sparsegen.pml_layers` makes them.  ``speed``: a value of the formula or a number, in units of
    the spacing.  ``order``: that of ``u.laplace``.

    A source is added to the first value, ``new, *more = sg.pml(...)``.  StencilError for other numbers of fields.
    """
    if not isinstance(u, Accessor):
        raise fault(f"sg.pml of {u}", "give it the field itself, as in sg.pml(u, (qy, qx), (dy, dx), speed)")
    first = u._centre().trace.first
    axes = len(first[0][2]) if first else 0
    fields, layers = (
        _of(a, n, what) for a, n, what in ((extra, axes + axes // 3, "fields"), (damping, axes, "dampings"))
    )
    here = (0,) * axes
    z = [layer[here] for layer in layers]
    lost, whole, made = _sum(z) * u.dtc, None, list[Value]()
    if axes > 1:  # M^2 u
        lost = lost + _sum([a * b for a, b in combinations(z, 2)]) * ((u.next[here] + 2 * u[here] + u.prev[here]) / 4)
    if axes == 3:
        made = [solve(Eq(fields[3].dt, u[here]), fields[3].next)]
        whole = _mean(made[0], fields[3][here])
        smooth = whole + (u.next[here] - u.prev[here]) * (u._step("pml") / 8)  # M^3 p, with p known half a step on
        lost = lost + prod(z[1:], start=z[0]) * smooth
    spread: Any = u.laplace(order=order)
    for axis in reversed(range(axes)):
        new = _flux(u, fields[axis], layers, axis, whole)
        spread = spread + _along(_mean(new, fields[axis][here]), axes, axis, -0.5)
        made.insert(0, new)
    return solve(Eq(u.dt2 + lost, speed * speed * spread), u.next), *made


def _flux(u: Any, field: Any, layers: Sequence[Any], axis: int, whole: Any) -> Value:
    """The new value of an axis' field, half way to the next cell."""
    axes = len(layers)
    here, there = (0,) * axes, tuple(int(a == axis) for a in range(axes))
    z = [_mean(layer[here], layer[there]) for layer in layers]
    own, others = z[axis], z[:axis] + z[axis + 1 :]
    driven = (_sum(others) - own if others else -own) * _along(u, axes, axis, 0.5)
    if whole is not None:
        driven = driven + others[0] * others[1] * _along(whole, axes, axis, 0.5)
    return solve(Eq(field.dt + own * _mean(field.next[here], field[here]), driven), field.next)


def _along(value: Derivable, axes: int, axis: int, at: float) -> Any:
    """The first derivative along an axis of the array."""
    return getattr(value, f"d{NAMES[axes - 1 - axis]}")(at=at)


def _mean(a: Any, b: Any) -> Any:
    return (a + b) / 2


def _sum(values: Sequence[Any]) -> Any:
    return sum(values[1:], start=values[0])


def _of(given: Any, count: int, what: str) -> Sequence[Any]:
    """So many fields or coefficients."""
    several = isinstance(given, (tuple, list)) and all(isinstance(a, Accessor) for a in given)
    if not several or len(given) != count:
        found = f"{len(given)} of them" if several else repr(given)
        more = ", and on three axes one more" if what == "fields" else ""
        raise fault(f"sg.pml takes {count} {what}, not {found}", f"give a tuple, one for each axis{more}")
    return list(given)


__all__ = ["pml"]
