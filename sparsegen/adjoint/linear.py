"""The linear part of a time step: for each field's new value a coefficient of every cell that it reads.

A coefficient is a number, or a formula of the update's own coefficients.  What does not depend on a field is left out
(constants, sources, the values of dirichlet sides), so that of an affine step the linear part remains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsegen.adjoint.algebra import Algebra, named
from sparsegen.dsl.operands import Parameter
from sparsegen.dsl.show import read_text
from sparsegen.dsl.stencil import Stencil
from sparsegen.dsl.update import Update
from sparsegen.ir import formula
from sparsegen.ir.boundary import Sides
from sparsegen.ir.errors import Loc, StencilError
from sparsegen.ir.formula import Code, Read

#: Cells that a new value is a sum over, each with the place of its coefficient.
Row = dict[Read, int]


@dataclass(frozen=True)
class Linear:
    """A linear step: ``rows`` has the sum of each of ``fields`` (name, time levels), coefficients are nodes of
    ``code``; ``given`` are the parameters that are no fields.  ``radius``: how many cells a frozen side keeps."""

    fields: tuple[tuple[str, int], ...]
    given: tuple[Parameter, ...]
    code: Code
    rows: tuple[Row, ...]
    sides: tuple[Sides, ...]
    radius: tuple[int, ...]
    dtype: str
    name: str
    loc: Loc | None

    @staticmethod
    def of(what: Any) -> Linear:
        """That of a stencil or an update; StencilError for an update that is not linear in its fields."""
        return _of_stencil(what) if isinstance(what, Stencil) else _of_update(what)

    @property
    def needs(self) -> tuple[Parameter, ...]:
        """The coefficients and scalars that multiply fields, or that what does is made of."""
        code, _ = formula.live(self.code, tuple(place for row in self.rows for place in row.values()))
        read = named(code)
        return tuple(p for p in self.given if p.name in read)


def _of_stencil(what: Stencil) -> Linear:
    graph, row = Algebra(), Row()
    for at in np.argwhere(what.weights != 0.0):
        offset = tuple(int(i) - r for i, r in zip(at, what.radius, strict=True))
        row["u", 0, offset] = graph.const(float(what.weights[tuple(at)]))
    about = (what.radius, what.dtype, what.name, what.loc)
    return Linear((("u", 1),), (), graph.code, (row,), (what.sides,), *about)


def _of_update(what: Update) -> Linear:
    forms, graph = _Forms(what), Algebra()
    found = list(forms.all(graph))
    rows = tuple(found[place].terms for place in what.results)
    fields = {name for name, _ in what.fields}
    given = tuple(p for p in what.parameters if p.name not in fields)
    about = (what.radius, what.dtype, what.name, what.loc)
    return Linear(what.fields, given, graph.code, rows, what.sides, *about)


@dataclass(frozen=True)
class _Form:
    """A value as ``sum of terms + rest``; ``rest`` has no field in it and is None for zero."""

    terms: Row
    rest: int | None = None


class _Forms:
    """Follows an update's formula node by node."""

    def __init__(self, what: Update) -> None:
        self.what, self.names = what, {name for name, _ in what.fields}

    def all(self, graph: Algebra) -> Iterator[_Form]:
        """The form of each node, with coefficients in ``graph``."""
        found: list[_Form] = []
        for node in self.what.code:
            args = [found[a] for a in formula.operands(node)]
            found.append(self._form(graph, node, args))
            yield found[-1]

    def _form(self, graph: Algebra, node: formula.Node, args: list[_Form]) -> _Form:
        op = str(node[0])
        if op == "read" and formula.read(node)[0] in self.names:
            return _Form({formula.read(node): graph.const(1.0)})
        if not any(a.terms for a in args):  # of numbers and coefficients alone
            return _Form({}, graph.make(op, *map(_rest(graph), args)) if args else graph.add(*node))
        if op in ("add", "sub"):
            return _each(graph, args, lambda a, b: graph.make(op, a, b))
        if op == "neg":
            return _each(graph, args, lambda a: graph.make("neg", a))
        if op == "mul" and not all(a.terms for a in args):
            factor, of = args if args[1].terms else reversed(args)
            by = _rest(graph)(factor)
            return _each(graph, [of], lambda a: graph.make("mul", by, a))
        if op == "div" and not args[1].terms:
            by = _rest(graph)(args[1])
            return _each(graph, args[:1], lambda a: graph.make("div", a, by))
        if op == "where" and not args[0].terms:
            condition = _rest(graph)(args[0])
            return _each(graph, args[1:], lambda a, b: graph.make("where", condition, a, b))
        raise self._fault(op, args)

    def _fault(self, op: str, args: list[_Form]) -> StencilError:
        of = ", ".join(read_text(*next(iter(a.terms))) for a in args if a.terms)
        called = {"mul": "a product", "div": "a quotient", "pow": "a power"}.get(op, f"{op!r}")
        return StencilError(
            f"{self.what.name} is not linear: {called} is taken of {of}",
            loc=self.what.loc,
            hint="only formulas that are linear in their fields have an adjoint and a growth; linearise it: what "
            "multiplies a field is a number or a coefficient, c: sg.Coef, which may hold a state to linearise about",
        )


def _rest(graph: Algebra) -> Callable[[_Form], int]:
    return lambda form: graph.const(0.0) if form.rest is None else form.rest


def _each(graph: Algebra, args: list[_Form], make: Callable[..., int]) -> _Form:
    """The form whose coefficients, and rest, are made of those of others; what is zero is left out."""
    zero = graph.const(0.0)
    reads = dict.fromkeys(read for a in args for read in a.terms)
    terms = {read: make(*(a.terms.get(read, zero) for a in args)) for read in reads}
    rest = make(*map(_rest(graph), args))
    return _Form({read: place for read, place in terms.items() if place != zero}, None if rest == zero else rest)
