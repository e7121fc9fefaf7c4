"""Derivatives while a function is traced: values made of reads around the cell, by the spacing of the grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparsegen.callsite import user_loc
from sparsegen.dsl.derivable import given
from sparsegen.dsl.differences import NAMES, Coefficients, Offset, derivative, positive_number
from sparsegen.dsl.operands import Parameter, Read
from sparsegen.dsl.refuse import fault
from sparsegen.dsl.show import read_text
from sparsegen.dsl.stencil import MAX_RADIUS
from sparsegen.dsl.walls import Neighbour
from sparsegen.ir import formula
from sparsegen.ir.errors import Loc, StencilError


class Late(Read):
    """A value that joins the formula when it is first used, so that calling it can make another one of it."""

    def __init__(self, make: Callable[[], Read]) -> None:
        self._make, self._loc = make, user_loc()

    def __getattr__(self, name: str) -> Any:
        if name not in ("trace", "place", "terms"):
            raise AttributeError(name)
        try:
            value = self._make()
        except StencilError as error:
            error.loc = self._loc  # where it was written, not where it is used
            raise
        self.trace, self.place, self.terms = value.trace, value.place, value.terms
        return getattr(self, name)


class Derivative(Late):
    """A derivative in space of order 2; calling it gives one of another order, or half a cell away."""

    def __init__(self, of: Read, along: str) -> None:
        super().__init__(lambda: difference(of, along, 2, 0))
        self._of, self._along = of, along

    def __call__(self, order: int = 2, at: float = 0.0) -> Read:
        """``order``: of the error in the spacing, even; ``at``: where it is taken, -0.5, 0 or 0.5 cells on its axis."""
        return difference(self._of, self._along, order, at)


class TimeDerivative(Late):
    """A derivative in time, by the field's dt; calling it gives one by another step, a number or a value."""

    def __init__(self, by: Callable[[Any], Read]) -> None:
        super().__init__(lambda: by(None))
        self._by = by

    def __call__(self, step: Any) -> Read:
        """``step``: the time step, a number above 0 or a value of the formula."""
        return self._by(step)


def difference(of: Read, along: str, order: Any, at: Any) -> Read:
    """The derivative of a value; a linear one has exact coefficients."""
    spacing = _spacing(of)
    if beyond := [name for name in along if along != "laplace" and name not in NAMES[: len(spacing)]]:
        raise fault(
            f"d{along} of {of}, which has {len(spacing)} ax{'i' if len(spacing) == 1 else 'e'}s and no {beyond[0]}",
            "x is the last axis of an array, y the one before, z the one before that",
        )
    return combined(of, derivative(along, order, at, spacing))


def combined(of: Read, coefficients: Coefficients) -> Read:
    """The sum of a value at cells around times their coefficients.

    Cells of equal coefficients are summed first, the nearest first and the cell itself last, and what the nearest have
    is multiplied at the end.
    """
    groups: dict[Any, list[Offset]] = {}
    for offset in sorted(coefficients, key=lambda d: (not any(d), sum(map(abs, d)), [-abs(i) for i in d], d)):
        if coefficients[offset] != 0:
            groups.setdefault(abs(coefficients[offset]), []).append(offset)
    factor = next(iter(groups))
    total: Read | None = None
    for size, offsets in groups.items():
        added = [moved(of, d) for d in offsets if coefficients[d] > 0]
        taken = [moved(of, d) for d in offsets if coefficients[d] < 0]
        part: Read = sum(added[1:], added[0]) if added else sum(taken[1:], taken[0])
        for value in taken if added else ():
            part = part - value
        part = part * (size / factor)
        if total is None:
            total = part if added else -part
        else:
            total = total + part if added else total - part
    assert total is not None
    scaled: Read = total * factor
    return scaled


def moved(value: Read, by: Offset) -> Read:
    """A value of the cell ``by`` cells away: the same formula with all its reads moved, or what walls let it see."""
    if isinstance(value, Neighbour):
        return value.at(by)
    if not any(by):
        return value
    trace = value.trace
    code, (root,) = formula.live(tuple(trace.graph.nodes), (value.place,))
    places: list[int] = []
    for node in code:
        if node[0] == "read":
            name, level, offset = formula.read(node)
            to = tuple(a + b for a, b in zip(offset, by, strict=True))
            if max(map(abs, to)) > MAX_RADIUS:
                raise fault(
                    f"a derivative of {value} reads {read_text(name, level, to)}, over the limit of {MAX_RADIUS} cells",
                    "ask for a lower order",
                )
            places.append(trace.read(name, level, to).place)
        else:
            args = formula.operands(node)
            places.append(trace.graph.add(node[0], *([places[a] for a in args] if args else node[1:])))
    if value.terms is None:
        return Read(trace, places[root])
    offsets = {symbol: offset for offset, symbol in trace.symbols.items()}
    terms: dict[Any, Any] = {}
    for symbol, number in value.terms.items():
        terms[trace.symbols[tuple(a + b for a, b in zip(offsets[symbol], by, strict=True))]] = number
    return Read(trace, places[root], terms)


def time_derivative(name: str, at: Callable[[int], Read], usual: Callable[[], Any]) -> TimeDerivative:
    """``dt``, ``dtc`` or ``dt2`` of a cell; ``at``: its value so many levels later; ``usual``: the field's step."""

    def by(step: Any) -> Read:
        step = usual() if step is None else step
        if not isinstance(step, Read):
            step = positive_number(step, "the time step", user_loc())
        if name == "dt2":
            rate: Read = (at(1) - 2 * at(0) + at(-1)) / (step * step)
        elif name == "dtc":
            rate = (at(1) - at(-1)) / (2 * step)
        else:
            rate = (at(1) - at(0)) / step
        return rate

    return TimeDerivative(by)


def _spacing(of: Read) -> tuple[Any, ...]:
    """The spacing of the grid that a value's reads are on."""
    trace = of.trace
    code, _ = formula.live(tuple(trace.graph.nodes), (of.place,))
    axes, found = len(trace.first[0][2]) if trace.first else 1, dict[Any, str]()
    for name in dict.fromkeys(name for name, _, _ in formula.reads(code)):
        spacing = given(trace, "spacing", name)
        found.setdefault(spacing if spacing is None or isinstance(spacing, tuple) else (spacing,) * axes, name)
    if None in found or not found:
        name = found.get(None, trace.parameters[0].name)
        raise fault(
            f"a derivative of {of}, but {name} has no spacing",
            f"give the distance between cells on each axis: {name}: sg.Field(spacing=({', '.join(['0.1'] * axes)},))",
        )
    if len(found) > 1:
        raise fault(
            f"a derivative of {of}, but {' and '.join(found.values())} have other spacings",
            "give the spacing to the first field alone: all others take it",
        )
    return next(iter(found))


def check_axes(parameters: Sequence[Parameter], axes: int | None, loc: Loc | None) -> None:
    """StencilError where spacings are of other numbers of axes than one another, or than the reads."""
    for parameter in parameters:
        if isinstance(parameter.spacing, tuple):
            found = len(parameter.spacing)
            axes = found if axes is None else axes
            if found != axes:
                raise StencilError(
                    f"the spacing of {parameter.name} has {found} numbers, but there are {axes} axes",
                    loc=loc,
                    hint="give one for each axis, in the order of the array's",
                )
