"""The decorator ``stencil``: a Python function, traced into a :class:`Stencil` or a general :class:`Update`.

The function runs on the operands of :mod:`sparsegen.dsl.operands`, which build its formula or raise at the user's very
line: once, and once more, with its time step as a scalar, where that is judged (:mod:`sparsegen.unstable`).  sympy is
imported by the first trace, not with this module.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    cast,
    get_args,
    get_origin,
    overload,
)

import numpy as np

from sparsegen.boundary import BoundarySpec, periodic, resolve
from sparsegen.callsite import def_loc, names_around, raised_in, user_loc
from sparsegen.dsl.derivable import Derivable, Timed
from sparsegen.dsl.derivatives import check_axes
from sparsegen.dsl.differences import positive_number, spacing_of
from sparsegen.dsl.operands import ALLOWED, Accessor, Condition, Parameter, Read, Trace, as_float
from sparsegen.dsl.solve import Equation, check_solved
from sparsegen.dsl.stencil import Stencil, Stepped, dtype_name
from sparsegen.dsl.update import MAX_LEVELS, STEP, Update, resolve_fields
from sparsegen.ir.errors import Loc, SparsegenError, StencilError
from sparsegen.ir.formula import live


class _Readable:
    """What type checkers see of a parameter; while the function is traced an :class:`Accessor` takes its place."""

    if TYPE_CHECKING:

        def __getitem__(self, offset: int | tuple[int, ...]) -> Read: ...


if TYPE_CHECKING:

    class _Mask:
        def __getitem__(self, offset: int | tuple[int, ...]) -> Condition: ...

    class _Coef(_Readable, Derivable): ...

    class _Field(_Readable, Timed): ...
else:
    _Coef = _Field = _Mask = _Readable


@dataclass(frozen=True, init=False)
class Field(_Field):
    """Annotation of a field; ``levels`` counts the time levels it needs: ``u.prev`` is the one before ``u``.

    With ``spacing`` (the distance between cells: a number for each axis, in the order of the array's axes, or one for
    all) there are derivatives: ``u.laplace``, ``u.dx``, ``u.dxy``, ..., of order 2, or ``u.dx(order=4, at=+0.5)``;
    formulas have them too, as in ``(u[0, 0] ** 3).laplace``.  Parameters without a spacing have that of the first field
    that has one.  x is the last axis.

    With ``dt`` (the time step; or with a parameter ``dt: Scalar``) there are ``u.dt``, ``u.dtc`` and ``u.dt2``, made
    with ``u.next``, for which :func:`sparsegen.solve` solves an equation.

    ``u: Field`` and ``u: Annotated[Field, Field(levels=2)]`` are what type checkers take; ``u: Field(levels=2)`` means
    the latter.
    """

    levels: int = 1
    spacing: Any = None
    step: Any = None

    def __init__(self, levels: int = 1, spacing: Any = None, dt: Any = None) -> None:
        # Not made by dataclass: inside a function u.dt is a derivative, which type checkers see here.
        for name, value in (("levels", levels), ("spacing", spacing), ("step", dt)):
            object.__setattr__(self, name, value)

    if TYPE_CHECKING:

        @property
        def prev(self) -> Field: ...


@dataclass(frozen=True)
class Coef(_Coef):
    """Annotation of a coefficient: a field that varies from cell to cell and does not change in time.

    ``spacing``: that of its derivatives (see :class:`Field`), where it is another than the first field's.
    """

    spacing: Any = None


class Mask(_Mask):
    """Annotation of a region: an array of bool (or of 0 and 1 of any type), a cell ``True`` where it is in the region.

    ``solid[0, 0]`` is a condition, for ``sg.where``, ``&``, ``|`` and ``~``; ``u.walled(solid)`` makes walls of it.
    Calls convert the array to the kernel's type, in which it is a coefficient; given in that type it is used as it is.
    Outside the domain it is read as coefficients are.
    """


class Scalar(Read):
    """Annotation of a number that each call gives, by name: ``k(u, dt=0.1)``, or an array with one a time step."""


class Time(Read):
    """Annotation of the time at a step.

    Of an update that has a scalar ``dt`` each call gives where it begins, 0 unless said (``k(u, dt=0.1, t=2.5)``), and
    every step adds its ``dt``; else an array with the time of each step.
    """


#: One boundary for all fields, or each field's by its name.
Boundaries: TypeAlias = "BoundarySpec | Mapping[str, BoundarySpec]"


@overload
def stencil(function: Callable[..., Any], /) -> Stencil | Update: ...
@overload
def stencil(
    *, dtype: object = ..., boundary: Boundaries = ..., name: str | None = ...
) -> Callable[[Callable[..., Any]], Stencil | Update]: ...
def stencil(
    function: Any = None, /, *, dtype: object = "f64", boundary: Boundaries = periodic, name: str | None = None
) -> Any:
    """Turn a function into what a time step does: ``@stencil`` or ``@stencil(dtype=..., boundary=..., name=...)``.

    In the function ``u[dy, dx]`` is the cell ``dy`` rows down and ``dx`` columns right of the one being computed (one
    offset for 1-D, three for 3-D).  A linear combination of reads of one field with constant coefficients, which are
    rounded to ``dtype``, gives a :class:`Stencil`, which every schedule takes.

    Anything else gives an :class:`Update`: several fields (the function returns a tuple, the new value of each), time
    levels (``u: Annotated[sg.Field, sg.Field(levels=2)]`` has ``u.prev``), coefficients that vary (``c: sg.Coef``),
    regions (``solid: sg.Mask``), numbers that each call gives (``dt: sg.Scalar``, and the time, ``t: sg.Time``), and
    formulas of + - * / ``**``, comparisons, ``sg.sqrt``, ``sg.exp``, ``sg.log``, ``sg.sin``, ``sg.cos``, ``sg.tanh``,
    ``sg.pow``, ``sg.abs``, ``sg.min``, ``sg.max``, ``sg.clip``, ``sg.where``; f16 and bf16 are worked out in f32 and
    rounded once a step.  ``boundary`` is one for all fields, or ``{"u": ..., "v": ...}``; coefficients are read outside
    by the first field's: ``periodic`` wraps, ``neumann`` mirrors, with ``frozen`` and ``dirichlet`` the edge cell's
    value holds on.

    Fields that know their spacing and time step have derivatives (:class:`Field`), of which equations are made that
    :func:`sparsegen.solve` solves.  What no formula can say raises :class:`StencilError` with the line at fault.
    """
    loc = user_loc()
    if function is None:

        def decorate(decorated: Callable[..., Any]) -> Stencil | Update:
            return _trace(decorated, dtype, boundary, name, def_loc(decorated) or loc)

        return decorate
    if not callable(function):
        raise StencilError(
            f"stencil decorates a function, not {function!r}",
            loc=loc,
            hint='name the options, as in @sg.stencil(dtype="f64", boundary=sg.periodic)',
        )
    return _trace(function, dtype, boundary, name, def_loc(function) or loc)


def _trace(
    function: Callable[..., Any], dtype: object, boundary: object, name: str | None, loc: Loc | None
) -> Stencil | Update:
    if not callable(function) or isinstance(function, type):
        raise StencilError(f"stencil decorates a function, not {function!r}", loc=loc, hint="put it above a def")
    if name is None:
        called = str(getattr(function, "__name__", "stencil"))
        name = "stencil" if called == "<lambda>" else re.sub(r"[^0-9A-Za-z_]", "_", called)
    dtype = dtype_name(dtype, loc)
    parameters = _parameters(function, loc)
    traced = partial(_traced, function, dtype=dtype, boundary=boundary, name=name, loc=loc)
    steps = {p.dt for p in parameters if p.dt is not None}
    if len(steps) != 1 or any(p.name == STEP for p in parameters):
        return traced(parameters)
    free = (*(replace(p, dt=None) for p in parameters), Parameter(STEP, number="scalar"))
    return traced(parameters, stepped=Stepped(as_float(steps.pop()), partial(traced, free)))


def _traced(
    function: Callable[..., Any], parameters: tuple[Parameter, ...], *, dtype: str, boundary: object, name: str,
    loc: Loc | None, stepped: Stepped | None = None,
) -> Stencil | Update:  # fmt: skip
    """What the function does with its parameters; those that are more than it takes are there to be found."""
    (first, *more) = (p for p in parameters if p.field)
    trace = Trace(parameters, linear=len(parameters) == 1 and first.levels == 1)
    try:
        result = function(*trace.accessors()[: len(inspect.signature(function).parameters)])
    except SparsegenError:
        raise
    except Exception as error:
        code = getattr(function, "__code__", None)
        at = raised_in(error.__traceback__, code.co_filename) if code else None
        raise StencilError(
            f"{name} cannot be traced: {type(error).__name__}: {error}",
            loc=at or loc,
            hint=f"{ALLOWED}; a function of math, NumPy or sympy, or float(), takes no read",
        ) from error
    results = _results(result, name, (first, *more), loc)
    given = tuple(r.place for r in results)  # a derivative that is returned as it is joins the formula here
    assert trace.first is not None  # a Read exists, so something was read
    ndim = len(trace.first[0][2])
    check_axes(parameters, ndim, loc)
    if results[0].terms is not None:
        return Stencil(
            _weights(results[0].terms, trace, loc), dtype, resolve(boundary, ndim, loc), name, loc, results[0].expr,
            stepped,
        )  # fmt: skip
    code, places = live(tuple(trace.graph.nodes), given)
    check_solved(code, name, loc)
    sides = resolve_fields(boundary, tuple(p.name for p in (first, *more)), ndim, loc)
    return Update(parameters, code, places, dtype, sides, name, loc, stepped)


def _parameters(function: Callable[..., Any], loc: Loc | None) -> tuple[Parameter, ...]:
    """The fields and coefficients that the function takes, or the error that says why the signature will not do."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise StencilError(f"cannot see the parameters of {function!r}", loc=loc, hint="decorate a plain def") from None
    found: list[Parameter] = []
    for parameter in parameters:
        annotation = _annotation(function, parameter, loc)
        levels = annotation.levels if isinstance(annotation, Field) else 1
        if isinstance(levels, bool) or not isinstance(levels, int) or not 1 <= levels <= MAX_LEVELS:
            raise StencilError(
                f"parameter {parameter.name} has {levels!r} time levels",
                loc=loc,
                hint=f"a field has 1 to {MAX_LEVELS}, as in {parameter.name}: sg.Field(levels=2)",
            )
        spacing = annotation.spacing if isinstance(annotation, (Field, Coef)) else None
        step = annotation.step if isinstance(annotation, Field) else None
        grid = {
            "spacing": spacing_of(spacing, parameter.name, loc),
            "dt": None if step is None else positive_number(step, f"the time step of {parameter.name}", loc),
        }
        mask = annotation is Mask or isinstance(annotation, Mask)
        coef = mask or annotation is Coef or isinstance(annotation, Coef)
        found.append(Parameter(parameter.name, levels, coef, _number(annotation), mask=mask, **grid))
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(p.kind not in plain for p in parameters) or not any(p.field for p in found):
        listed = ", ".join(map(str, parameters)) or "none"
        raise StencilError(
            f"a stencil takes parameters by position, at least one of them a field; this one takes: {listed}",
            loc=loc,
            hint="as in def heat(u, c: sg.Coef, dt: sg.Scalar): a plain parameter is a field; constants can come from "
            "the enclosing scope",
        )
    check_axes(found, None, loc)
    return tuple(found)


def _number(annotation: Any) -> Literal["", "scalar", "time"]:
    """What an annotation says of a number."""
    return "scalar" if annotation is Scalar else "time" if annotation is Time else ""


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter, loc: Loc | None) -> Any:
    """The annotation as a value; None for one that only a type checker can evaluate and that says nothing of fields."""
    text = parameter.annotation
    if not isinstance(text, str):
        return _meant(text)
    try:
        near = names_around(function) | dict(inspect.getclosurevars(function).nonlocals)
        return _meant(eval(text, dict(getattr(function, "__globals__", {})), near))
    except Exception as error:
        if re.search(r"\b(Field|Coef|Mask|Scalar|Time)\b", text):
            raise StencilError(
                f"the annotation {text!r} of parameter {parameter.name} cannot be evaluated: {error}",
                loc=loc,
                hint="names in it must be those of the module, or used in the function as well",
            ) from error
        return None


def _meant(annotation: Any) -> Any:
    """Of ``Annotated[Field, Field(levels=2)]`` the second, or the first if there is no such; all else is itself."""
    if get_origin(annotation) is not Annotated:
        return annotation
    plain, *more = get_args(annotation)
    return next((part for part in more if isinstance(part, (Field, Coef, Mask))), plain)


def _results(result: Any, name: str, fields: Sequence[Parameter], loc: Loc | None) -> tuple[Read, ...]:
    """The new value of each field, from what the function returned."""
    several = isinstance(result, (tuple, list))
    values: list[Any] = list(cast("Sequence[Any]", result)) if several else [result]
    listed = ", ".join(p.name for p in fields)
    if len(fields) == 1 and several:
        raise StencilError(
            f"{name} returns a {type(cast('object', result)).__name__}, but has one field, {listed}",
            loc=loc,
            hint="return one value; a second field is a parameter of its own",
        )
    for value in values:
        if not isinstance(value, Read):
            raise _bad_result(name, listed, value, loc)
    if len(values) != len(fields):
        raise StencilError(
            f"{name} returns {len(values)} value{'s' * several}, but has the fields {listed}",
            loc=loc,
            hint="return a tuple with the new value of each field, in their order; what does not change is c: sg.Coef",
        )
    return tuple(values)


def _bad_result(name: str, fields: str, result: Any, loc: Loc | None) -> StencilError:
    what, hint = f"{result!r}, which reads nothing of {fields}", ALLOWED
    if result is None:
        what, hint = "None", "return the new value of the cell (is a return missing?)"
    elif isinstance(result, Accessor):
        what, hint = f"the field {result} itself", f"read a cell of it, as in {result}[0, 0]"
    elif isinstance(result, Condition):
        what, hint = f"the condition {result}", "return sg.where(condition, 1.0, 0.0)"
    elif isinstance(result, Equation):
        what, hint = "an equation", "return sg.solve(equation, u.next), which is the new value"
    return StencilError(f"{name} returns {what}", loc=loc, hint=hint)


def _weights(terms: dict[Any, Any], trace: Trace, loc: Loc | None) -> Any:
    """The array of coefficients of a linear combination of the reads of ``trace``."""
    offsets = {symbol: offset for offset, symbol in trace.symbols.items()}
    found = {offsets[symbol]: as_float(number) for symbol, number in terms.items()}
    for symbol, number in terms.items():
        value = found[offsets[symbol]]
        if value == 0.0 or not np.isfinite(value):
            raise StencilError(
                f"the coefficient of {symbol} is {value} in f64, but exactly {number}",
                loc=loc,
                hint="scale the equation",
            )
    if not found:
        raise StencilError(
            "all reads cancel: the stencil is zero everywhere",
            loc=loc,
            hint="give at least one cell a coefficient other than 0",
        )
    radius = [max(abs(offset[axis]) for offset in found) for axis in range(len(next(iter(found))))]
    weights = np.zeros([2 * r + 1 for r in radius])
    for offset, value in found.items():
        weights[tuple(r + d for r, d in zip(radius, offset, strict=True))] = value
    return weights
