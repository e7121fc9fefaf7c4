"""A general update, as an immutable value: any formula of several fields, time levels and coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any, Final, cast

import numpy as np

from sparsegen.boundary import BoundarySpec, check_sides, collapse, resolve
from sparsegen.callsite import user_loc
from sparsegen.dsl.operands import Parameter
from sparsegen.dsl.show import read_text
from sparsegen.dsl.sites import Receiver, Sites, Source, resolved
from sparsegen.dsl.stencil import DTYPES, Stencil, Stepped, check_fits, check_name
from sparsegen.ir import formula, types
from sparsegen.ir.boundary import Side, Sides, describe
from sparsegen.ir.errors import BoundaryError, Loc, StencilError
from sparsegen.ir.op_update import reach

KEYWORDS: Final = ("out", "steps", "stream", "repeats")
"""Keywords of a kernel's methods, which no parameter may be called."""
STEP: Final = "dt"
"""The scalar that the time advances by."""
MAX_LEVELS: Final = 8
"""Time levels of a field at most."""


@dataclass(frozen=True, eq=False, repr=False)
class Update:
    """One time step of every field at once: ``new[i] = formula(reads around i)``, all fields read at the old times.

    ``parameters`` are those of the function, in its order.  A field of n levels is read at its n newest times; its
    result is one more, and the oldest is dropped.  ``code`` and ``results`` are the formula and, for each field, its
    new value in it.  ``sides`` is the boundary of each field, in its order; it holds at every time step.  A coefficient
    does not change; outside the domain it is read by the first field's boundary: ``periodic`` wraps, ``neumann``
    mirrors, and with ``frozen`` and ``dirichlet`` the edge cell's value holds on.  ``sites`` are sources and receivers
    (:meth:`with_sites`).

    Two updates are equal when they compute the same thing; ``name`` (after which the kernel is called, see
    :class:`sparsegen.Stencil`), ``loc`` and ``stepped`` (the time step of its derivatives) do not count.
    """

    parameters: tuple[Parameter, ...]
    code: formula.Code
    results: tuple[int, ...]
    dtype: str
    sides: tuple[Sides, ...]
    name: str = "update"
    loc: Loc | None = None
    stepped: Stepped | None = None
    sites: tuple[Sites, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.name, self.loc)
        _check_parts(self)
        if self.dtype not in DTYPES:
            raise StencilError(
                f"{self.name} cannot have the dtype {self.dtype!r}", loc=self.loc, hint=f"one of {', '.join(DTYPES)}"
            )
        sums = types.cell_type(types.DTYPES[self.dtype]).name
        for node in self.code:
            if node[0] == "const":
                constant = cast("float", node[1])
                check_fits(constant, f"the constant {constant!r}", sums, StencilError, self.loc)
        for value in {side.value for sides in self.sides for pair in sides for side in pair}:
            check_fits(value, f"dirichlet({value!r})", self.dtype, BoundaryError, self.loc)
        for parameter in self.parameters:
            if parameter.name in KEYWORDS:
                raise StencilError(
                    f"a parameter of {self.name} is called {parameter.name}, as a keyword of every kernel's call is",
                    loc=self.loc,
                    hint=f"give it another name than {', '.join(KEYWORDS)}",
                )
        coefs = sorted(set(self.coefs) - {name for name, _, _ in formula.reads(self.code)})
        numbers = [p.name for p in self.numbers if p.name not in formula.scalars(self.code)]
        # the time is counted by dt, also where no formula takes it
        numbers = [name for name in numbers if name != "dt" or not any(p.number == "time" for p in self.numbers)]
        for unread, what in ((coefs, "coefficient"), (numbers, "scalar")):
            if unread:
                raise StencilError(
                    f"{self.name} never reads its {what} {unread[0]}", loc=self.loc, hint="leave it away"
                )

    @property
    def fields(self) -> tuple[tuple[str, int], ...]:
        """Name and time levels of each field."""
        return tuple((p.name, p.levels) for p in self.parameters if p.field)

    @property
    def coefs(self) -> tuple[str, ...]:
        """Names of the coefficients."""
        return tuple(p.name for p in self.parameters if p.coef)

    @property
    def numbers(self) -> tuple[Parameter, ...]:
        """The parameters that are numbers of each time step, as calls give them."""
        return tuple(p for p in self.parameters if p.number)

    @property
    def sources(self) -> tuple[Sites, ...]:
        """Groups of points at which a step adds numbers."""
        return tuple(group for group in self.sites if group.source)

    @property
    def receivers(self) -> tuple[Sites, ...]:
        """Groups of points at which a step records a field."""
        return tuple(group for group in self.sites if not group.source)

    def with_sites(self, **groups: Source | Receiver) -> Update:
        """The same with sources and receivers, by their names: ``acoustic.with_sites(shot=sg.Source(...))``.

        A call takes a signal for each source by name, unless it has one of its own, and gives back what receivers have
        recorded behind the fields.  StencilError for names that are taken, and fields that there are not.
        """
        taken = (*KEYWORDS, *(p.name for p in self.parameters), *(group.name for group in self.sites))
        if self.dtype == "u8":
            raise StencilError(f"{self.name} has fields of bytes, in which there are no sites", loc=user_loc(),
                               hint="describe it in f32")  # fmt: skip
        more = resolved(groups, [name for name, _ in self.fields], taken, self.ndim, user_loc())
        return replace(self, sites=(*self.sites, *more))

    @property
    def ndim(self) -> int:
        """Number of axes: 1, 2 or 3."""
        return len(self.sides[0])

    @cached_property
    def radius(self) -> tuple[int, ...]:
        """The farthest read of a field on each axis (cells): how far ``frozen`` reaches in."""
        return tuple(max(ends) for ends in reach(self.code, dict(self.fields), self.ndim))

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """Cells that each axis must have at least: as many as the reads of fields and coefficients are wide."""
        names = [p.name for p in self.parameters if not p.number]
        return tuple(2 * max(ends) + 1 for ends in reach(self.code, names, self.ndim))

    @property
    def coef_sides(self) -> Sides:
        """Where coefficients are read outside: ``frozen`` stands for the edge cell's value."""
        frozen = Side("frozen")
        return tuple(
            (frozen if low.kind == "dirichlet" else low, frozen if high.kind == "dirichlet" else high)
            for low, high in self.sides[0]
        )

    @property
    def boundary(self) -> BoundarySpec | dict[str, BoundarySpec]:
        """The boundary in its shortest form, as a user would write it."""
        if len(set(self.sides)) == 1:
            return collapse(self.sides[0])
        return {name: collapse(sides) for (name, _), sides in zip(self.fields, self.sides, strict=True)}

    @property
    def expr(self) -> Any:
        """The formula in sympy: an expression, or a tuple of one for each of several fields."""
        shown = to_sympy(self.code)
        found = tuple(shown[place] for place in self.results)
        return found[0] if len(found) == 1 else found

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Update) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.parameters, self._ordered, self.dtype, self.sides, self.sites

    @cached_property
    def _ordered(self) -> tuple[formula.Code, tuple[int, ...]]:
        return formula.ordered(self.code, self.results)

    def __str__(self) -> str:
        fields = ", ".join(name if n == 1 else f"{name} ({n} levels)" for name, n in self.fields)
        given = (*self.coefs, *(p.name for p in self.numbers), *(group.name for group in self.sites))
        coefs = f" with {', '.join(given)}" if given else ""
        if len(set(self.sides)) == 1:
            bounds = describe(self.sides[0])
        else:
            named = zip(self.fields, self.sides, strict=True)
            bounds = "; ".join(f"{name} {describe(sides)}" for (name, _), sides in named)
        return (
            f"{self.name}: update of {fields}{coefs}, radius {'x'.join(map(str, self.radius))}, {self.dtype}, {bounds}"
        )

    def __repr__(self) -> str:
        return f"<Update {self}>"


def _check_parts(update: Update) -> None:
    """StencilError or BoundaryError for parts that do not make an update, as when it was put together by hand."""
    wrong: str | None = "its parts have other types than the decorator gives them"
    with suppress(TypeError, ValueError, IndexError, AttributeError, KeyError):
        good = isinstance(update.dtype, str) and all(
            isinstance(part, tuple) for part in (update.parameters, update.code, update.results, update.sides)
        )
        named = good and all(isinstance(p, Parameter) and str.isidentifier(p.name) for p in update.parameters)
        levels = {p.name: p.levels for p in update.parameters if not p.number}
        named = named and {p.name for p in update.parameters if p.number} >= set(formula.scalars(update.code))
        if named and all(1 <= n <= MAX_LEVELS for n in levels.values()) and 1 <= update.ndim <= 3:
            wrong = formula.problem(update.code, update.results, levels, update.ndim)
            if not len(update.fields) == len(update.results) == len(update.sides):
                wrong = f"{len(update.fields)} fields, {len(update.results)} results, {len(update.sides)} boundaries"
    if wrong is not None:
        raise StencilError(f"{update.name} is no update: {wrong}", loc=update.loc, hint="decorate a def: @sg.stencil")
    for sides in update.sides:
        check_sides(sides, update.ndim, update.loc)


def resolve_fields(spec: Any, names: tuple[str, ...], ndim: int, loc: Loc | None) -> tuple[Sides, ...]:
    """The boundary of each field: ``spec`` is one for all, or ``{name: boundary}`` with every field named."""
    if not (isinstance(spec, Mapping) and spec and all(isinstance(key, str) for key in spec)):
        return (resolve(spec, ndim, loc),) * len(names)
    for wrong in (*(n for n in spec if n not in names), *(n for n in names if n not in spec)):
        what = "is no field" if wrong in spec else "has no boundary"
        raise BoundaryError(
            f"boundary: {wrong} {what} (fields: {', '.join(names)})",
            loc=loc,
            hint="name each field, or give one for all",
        )
    return tuple(resolve(spec[name], ndim, loc) for name in names)


def to_sympy(code: formula.Code) -> list[Any]:
    """Every node of a formula in sympy: reads as symbols (``u[0, -1]``), conditions as relations."""
    sympy: Any = import_module("sympy")
    meaning: dict[str, Any] = {
        "neg": lambda a: -a, "abs": sympy.Abs, "sqrt": sympy.sqrt, "exp": sympy.exp, "log": sympy.log,
        "sin": sympy.sin, "cos": sympy.cos, "tanh": sympy.tanh, "pow": sympy.Pow,
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b, "div": lambda a, b: a / b, "min": sympy.Min, "max": sympy.Max,
        "lt": sympy.StrictLessThan, "le": sympy.LessThan, "eq": sympy.Eq, "ne": sympy.Ne,
        "and": sympy.And, "or": sympy.Or, "not": sympy.Not,
        "where": lambda c, a, b: sympy.Piecewise((a, c), (b, True)),
    }  # fmt: skip
    shown: list[Any] = []
    for node in code:
        if node[0] == "read":
            shown.append(sympy.Symbol(read_text(*formula.read(node)), real=True))
        elif node[0] == "scalar":
            shown.append(sympy.Symbol(str(node[1]), real=True))
        elif node[0] == "const":
            value = float(node[1])  # type: ignore[arg-type]
            shown.append(sympy.Integer(int(value)) if value.is_integer() else sympy.Float(value))
        else:
            shown.append(meaning[str(node[0])](*(shown[a] for a in formula.operands(node))))
    return shown


def of_stencil(stencil: Stencil) -> Update:
    """A linear stencil as the update that it is: its weights are constants, summed in row-major order.

    StencilError where a frozen side keeps more cells than the weights that are not zero reach.
    """
    ends = zip(stencil.reach, stencil.radius, stencil.sides, strict=True)
    if any(max(reach) < radius and "frozen" in {side.kind for side in pair} for reach, radius, pair in ends):
        raise StencilError(f"a frozen side of {stencil.name} keeps more cells than its weights reach",
                           loc=stencil.loc, hint="drop the outer zeros of the weights")  # fmt: skip
    graph, total = formula.Graph(), -1
    for at in np.argwhere(stencil.weights != 0.0):
        offset = tuple(int(i) - radius for i, radius in zip(at, stencil.radius, strict=True))
        weight = graph.const(float(stencil.weights[tuple(at)]))
        product = graph.add("mul", weight, graph.add("read", "u", 0, offset))
        total = product if total < 0 else graph.add("add", total, product)
    code = tuple(graph.nodes)
    return Update((Parameter("u"),), code, (total,), stencil.dtype, (stencil.sides,), stencil.name, stencil.loc)
