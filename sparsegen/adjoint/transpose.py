"""The transpose of a linear time step, as a step of its own.

A new value that reads the cell at offset d with weight w gives w to that cell when transposed: each cell reads at -d.
What happens at borders:

- *periodic* and *dirichlet*: the same, with zeros outside for dirichlet.  Nothing else is needed.
- *neumann*: a cell outside mirrors one inside.  Transposed, what is read inside has flipped weights, and what is read
  outside, of the mirrored cell, has them as they are.  Where both are equal, as of weights that are symmetric along the
  axis, nothing else is needed; else each cell is told how near it is to the border, by an array for the axis.
- *frozen*: the cells within the radius keep their values and are given to nobody: transposed, they are read as zeros,
  and keep their own value besides what others give them.  An array says which cells are not frozen.

A field of several levels becomes as many fields of one level: the step moves a level to the next, its transpose moves
each back.

What sources add to a field is recorded there, and what receivers record is added: each takes the other's place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsegen.adjoint.algebra import Algebra, named
from sparsegen.adjoint.linear import Linear
from sparsegen.dsl.operands import Parameter
from sparsegen.dsl.stencil import Stencil
from sparsegen.dsl.update import KEYWORDS, Update
from sparsegen.ir.boundary import Side, Sides
from sparsegen.ir.errors import BoundaryError
from sparsegen.ir.formula import Offset, live

_ZERO = Side("dirichlet", 0.0)
#: A level of a field.
_Level = tuple[str, int]


@dataclass(frozen=True)
class Table:
    """An array that the transposed step reads besides those of a call: of each cell whether it is not frozen, or how
    near it is to the mirrors of an ``axis``."""

    name: str
    sides: Sides
    radius: tuple[int, ...]
    axis: int | None = None

    @property
    def about(self) -> str:
        """What it is, in words."""
        if self.axis is None:
            return "0 in frozen cells and 1 in all others"
        return f"how near cells are to the mirrors of axis {self.axis}"

    def make(self, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Its values on a grid; by a mirror the radius and 1 less in each farther cell, below 0 at the high end."""
        if self.axis is None:
            return self._free(shape)
        n, r = shape[self.axis], self.radius[self.axis]
        at = np.arange(n)
        low, high = (side.kind == "neumann" for side in self.sides[self.axis])
        near = np.maximum(r - at, 0) * low - np.maximum(r - (n - 1 - at), 0) * high
        along = [n if axis == self.axis else 1 for axis in range(len(shape))]
        return np.broadcast_to(near.reshape(along), shape).astype(np.float64)

    def _free(self, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        free = np.ones(shape)
        for axis, (pair, r) in enumerate(zip(self.sides, self.radius, strict=True)):
            for side, kept in zip(pair, (slice(0, r), slice(shape[axis] - r, None)), strict=True):
                if side.kind == "frozen":
                    free[(slice(None),) * axis + (kept,)] = 0.0
        return free


@dataclass(frozen=True)
class Transposed:
    """The transposed step: ``what`` has a field for each of ``levels``, then the coefficients, then the ``tables``.

    A step that needs no table and no coefficient is a stencil, ``what`` as an update or not.
    """

    what: Stencil | Update
    levels: tuple[_Level, ...]
    tables: tuple[Table, ...]


def transpose(of: Any) -> Transposed:
    """That of a stencil or an update.

    StencilError for an update that is not linear; BoundaryError for one whose fields have other kinds of sides.
    """
    linear, sites = Linear.of(of), () if isinstance(of, Stencil) else of.sites
    made = _Transposing(linear, [group.name for group in sites]).made()
    if isinstance(of, Stencil) and not made.tables:
        weights = np.flip(of.weights)  # along mirrors they are their own mirror image, or there would be a table
        return Transposed(Stencil(weights, of.dtype, linear_sides(of.sides), made.what.name, of.loc), made.levels, ())
    if not isinstance(made.what, Update) or not sites:
        return made
    return replace(made, what=replace(made.what, sites=tuple(group.turned for group in sites)))


def linear_sides(sides: Sides) -> Sides:
    """The boundary of the transposed step: zeros outside where values or frozen cells were."""
    return tuple((_adjoint(low), _adjoint(high)) for low, high in sides)


def _adjoint(side: Side) -> Side:
    return side if side.kind in ("periodic", "neumann") else _ZERO


class _Transposing:
    """One transposition: the graph of the new step, and the tables that its nodes ask for."""

    def __init__(self, linear: Linear, taken: Iterable[str]) -> None:
        """``taken``: names that are no parameters' but may be none of its own either."""
        self.of, self.graph = linear, Algebra()
        self.sides = _common(linear)
        self.mirrors = [tuple(side.kind == "neumann" for side in pair) for pair in self.sides]
        self.tables: dict[tuple[int | None, Sides], Table] = {}
        self.taken = {*KEYWORDS, *taken, *(name for name, _ in linear.fields), *(p.name for p in linear.given)}
        self.names: dict[_Level, str] = {}
        for name, count in linear.fields:
            self.names[name, 0] = name
            self.names |= {(name, level): self._name(f"{name}_{level}") for level in range(1, count)}
        self._moved: dict[tuple[Offset, frozenset[int]], dict[int, int]] = {}

    def _name(self, wanted: str) -> str:
        """A name that no parameter has."""
        while wanted in self.taken:
            wanted += "_"
        self.taken.add(wanted)
        return wanted

    def _table(self, sides: Sides, axis: int | None) -> str:
        if (axis, sides) not in self.tables:
            name = self._name("free" if axis is None else f"border{axis}")
            self.tables[axis, sides] = Table(name, sides, self.of.radius, axis)
        return self.tables[axis, sides].name

    def made(self) -> Transposed:
        """The whole step."""
        linear = self.of
        places = tuple(self._result(level) for level in self.names)
        code, results = live(self.graph.code, places)
        read = named(code)
        fields = tuple(Parameter(name) for name in self.names.values())
        given = tuple(p for p in linear.given if p.name in read)
        tables = tuple(table for table in self.tables.values() if table.name in read)
        what = Update(
            (*fields, *given, *(Parameter(table.name, coef=True) for table in tables)), code, results, linear.dtype,
            (self.sides,) * len(fields), f"{linear.name}_adjoint", linear.loc,
        )  # fmt: skip
        return Transposed(what, tuple(self.names), tables)

    def _result(self, level: _Level) -> int:
        """The new value of a level: what all sums that it is in give it, and its move from the next level."""
        parts = [self._kept(level[0])] if not level[1] else []
        parts += self._given(level)
        after = (level[0], level[1] + 1)
        if after in self.names:
            parts.append(self._read(self.names[after], self._centre))
        total = self.graph.const(0.0)
        for part in parts:
            total = self.graph.make("add", total, part)
        return total

    @property
    def _centre(self) -> Offset:
        return (0,) * len(self.sides)

    def _read(self, name: str, offset: Offset) -> int:
        return self.graph.add("read", name, 0, offset)

    def _kept(self, name: str) -> int:
        """What frozen cells of a field keep: its value less that of cells that are not frozen."""
        whole = self._read(self.names[name, 0], self._centre)
        return self.graph.make("sub", whole, self._free(name, self._centre))

    def _free(self, name: str, offset: Offset) -> int:
        """The adjoint of a field's new value, with zeros for frozen cells, which no sum is written to."""
        sides = self.of.sides[list(dict(self.of.fields)).index(name)]
        value = self._read(self.names[name, 0], offset)
        if not any(side.kind == "frozen" for pair in sides for side in pair):
            return value
        return self.graph.make("mul", self._read(self._table(sides, None), offset), value)

    def _given(self, level: _Level) -> Iterator[int]:
        """The products that a level's new value is the sum of."""
        for (name, _), row in zip(self.of.fields, self.of.rows, strict=True):
            found: dict[Offset, dict[frozenset[int], int]] = {}
            for (field, at, d), weight in row.items():
                if (field, at) == level:
                    for outside in self._subsets(d):
                        offset = tuple(x if axis in outside else -x for axis, x in enumerate(d))
                        found.setdefault(offset, {})[outside] = weight
            for offset in sorted(found):
                yield self.graph.make("mul", self._weight(offset, found[offset]), self._free(name, offset))

    def _subsets(self, offset: Offset) -> Iterator[frozenset[int]]:
        """The sets of axes along which a read at ``offset`` may lie beyond a mirror."""
        axes = self._beyond(offset)
        yield from map(frozenset, chain.from_iterable(combinations(axes, n) for n in range(len(axes) + 1)))

    def _beyond(self, offset: Offset) -> list[int]:
        ends = zip(offset, self.mirrors, strict=True)
        return [axis for axis, (x, (low, high)) in enumerate(ends) if (x < 0 and low) or (x > 0 and high)]

    def _weight(self, offset: Offset, found: dict[frozenset[int], int]) -> int:
        """The weight of what is read at ``offset``: chosen by the axes along which that lies beyond a mirror."""

        def chosen(axes: list[int], outside: frozenset[int]) -> int:
            if not axes:
                known = outside in found
                return self._coefficient(offset, outside, found[outside]) if known else self.graph.const(0.0)
            axis, *more = axes
            inner, outer = chosen(more, outside), chosen(more, outside | {axis})
            if inner == outer:
                return inner
            return self.graph.make("where", self._outside(axis, offset[axis]), outer, inner)

        return chosen(self._beyond(offset), frozenset())

    def _outside(self, axis: int, x: int) -> int:
        """Whether the cell ``x`` cells farther along an axis lies beyond its mirror."""
        near, r = self._read(self._table(self.sides, axis), self._centre), self.of.radius[axis]
        limit = self.graph.const(float(r + x if x < 0 else x - r))
        return self.graph.add("lt", limit, near) if x < 0 else self.graph.add("lt", near, limit)

    def _coefficient(self, offset: Offset, outside: frozenset[int], place: int) -> int:
        """A coefficient of the cell that is read at ``offset``, itself mirrored along the axes ``outside``."""

        def to(_: str, e: Offset) -> Offset:
            return tuple(x - y if axis in outside else x + y for axis, (x, y) in enumerate(zip(offset, e, strict=True)))

        known = self._moved.setdefault((offset, outside), {})
        return self.graph.moved(self.of.code, place, to, known)


def _common(linear: Linear) -> Sides:
    """The sides of the transposed step, alike for all fields; BoundaryError where there are none."""
    found = [linear_sides(sides) for sides in linear.sides]
    for (name, _), sides in zip(linear.fields, found, strict=True):
        if sides != found[0]:
            raise BoundaryError(
                f"{linear.name} has no adjoint: the boundaries of {linear.fields[0][0]} and {name} differ in kind",
                loc=linear.loc,
                hint="give all fields periodic sides, or neumann ones, or others, at each end of each axis: dirichlet "
                "and frozen may stand side by side",
            )
    of = {name: sides for (name, _), sides in zip(linear.fields, linear.sides, strict=True)}
    for (name, _), row in zip(linear.fields, linear.rows, strict=True):
        for field, _, offset in row:
            for x, ends, own in zip(offset, of[field], of[name], strict=True):
                if x and ends[x > 0].kind == "frozen" and own[x > 0].kind != "frozen":
                    raise BoundaryError(
                        f"{linear.name} has no adjoint: {name} reads beyond {field}'s frozen side, where its edge cell "
                        "stands for others",
                        loc=linear.loc,
                        hint=f"give {name} a frozen side there, or {field} dirichlet(v)",
                    )
    return found[0]
