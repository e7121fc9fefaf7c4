"""The decorator ``stencil``: a Python function of one field, traced with sympy into a :class:`Stencil`.

The function runs once, on the stand-ins of :mod:`sparsegen.dsl.standin`, which keep the result linear or raise at the
user's very line.  sympy is imported by the first trace, not with this module.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast, overload

import numpy as np

from sparsegen.boundary import BoundarySpec, periodic, resolve
from sparsegen.dsl.standin import LINEAR, Accessor, Read, Trace
from sparsegen.dsl.stencil import Stencil, dtype_name
from sparsegen.ir.errors import Loc, SparsegenError, StencilError
from sparsegen.where import def_loc, raised_in, user_loc


@dataclass(frozen=True)
class Field:
    """Annotation of the field a stencil reads; ``levels`` counts the time levels it needs (1 in this version)."""

    levels: int = 1


@dataclass(frozen=True)
class Coef:
    """Annotation of a coefficient that varies over the field; refused in this version, with the way round."""


@overload
def stencil(function: Callable[..., Any], /) -> Stencil: ...
@overload
def stencil(
    *, dtype: object = ..., boundary: BoundarySpec = ..., name: str | None = ...
) -> Callable[[Callable[..., Any]], Stencil]: ...
def stencil(
    function: Any = None, /, *, dtype: object = "f64", boundary: BoundarySpec = periodic, name: str | None = None
) -> Any:
    """Turn a function of one field into a stencil: ``@stencil`` or ``@stencil(dtype=..., boundary=..., name=...)``.

    In the function ``u[dy, dx]`` is the cell ``dy`` rows down and ``dx`` columns right of the one being computed (one
    offset for 1-D, three for 3-D).  It returns a linear combination of such reads with constant coefficients, which are
    rounded to ``dtype``.  Everything else raises :class:`StencilError` with the line at fault.
    """
    loc = user_loc()
    if function is None:

        def decorate(decorated: Callable[..., Any]) -> Stencil:
            return _trace(decorated, dtype, boundary, name, def_loc(decorated) or loc)

        return decorate
    if not callable(function):
        raise StencilError(
            f"stencil decorates a function, not {function!r}",
            loc=loc,
            hint='name the options, as in @sg.stencil(dtype="f64", boundary=sg.periodic)',
        )
    return _trace(function, dtype, boundary, name, def_loc(function) or loc)


def _trace(function: Callable[..., Any], dtype: object, boundary: object, name: str | None, loc: Loc | None) -> Stencil:
    if not callable(function) or isinstance(function, type):
        raise StencilError(f"stencil decorates a function, not {function!r}", loc=loc, hint="put it above a def")
    if name is None:
        called = str(getattr(function, "__name__", "stencil"))
        name = "stencil" if called == "<lambda>" else re.sub(r"[^0-9A-Za-z_]", "_", called)
    dtype = dtype_name(dtype, loc)
    trace = Trace(_parameter(function, loc))
    try:
        result = function(trace.field)
    except SparsegenError:
        raise
    except Exception as error:
        code = getattr(function, "__code__", None)
        at = raised_in(error.__traceback__, code.co_filename) if code else None
        raise StencilError(
            f"{name} cannot be traced: {type(error).__name__}: {error}",
            loc=at or loc,
            hint=f"{LINEAR}: no sin, exp, float() or NumPy function of a read",
        ) from error
    if not isinstance(result, Read):
        raise _bad_result(name, trace.name, result, loc)
    assert trace.first is not None  # a Read exists, so something was read
    sides = resolve(boundary, len(trace.first[0]), loc)
    return Stencil(_weights(result, trace, loc), dtype, sides, name, loc, result.expr)


def _parameter(function: Callable[..., Any], loc: Loc | None) -> str:
    """The name of the one field the function takes, or the error that says why the signature will not do."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise StencilError(f"cannot see the parameters of {function!r}", loc=loc, hint="decorate a plain def") from None
    try:
        annotations = inspect.get_annotations(function, eval_str=True)
    except Exception:  # an annotation that only a type checker can evaluate says nothing about fields
        annotations = {}
    for parameter in parameters:
        annotation = annotations.get(parameter.name)
        if annotation is Coef or isinstance(annotation, Coef):
            raise StencilError(
                f"parameter {parameter.name} is a coefficient field: variable coefficients "
                "are not supported yet in this version",
                loc=loc,
                hint="use constant numbers, or one stencil for each region of constant coefficients",
            )
        if isinstance(annotation, Field) and annotation.levels != 1:
            raise StencilError(
                f"parameter {parameter.name} has {annotation.levels} time levels: several time levels "
                "are not supported yet in this version",
                loc=loc,
                hint="use one level; a two-level scheme can combine two one-level stencils outside",
            )
    if len(parameters) != 1 or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        listed = ", ".join(map(str, parameters)) or "none"
        raise StencilError(
            f"a stencil takes one parameter, the field it reads, but this one takes: {listed}",
            loc=loc,
            hint="several fields, variable coefficients and several time levels are not supported "
            "yet in this version; constants can come from the enclosing scope",
        )
    return parameters[0].name


def _bad_result(name: str, field_name: str, result: Any, loc: Loc | None) -> StencilError:
    if result is None:
        return StencilError(
            f"{name} returns None", loc=loc, hint="return the new value of the cell (is a return missing?)"
        )
    if isinstance(result, Accessor):
        return StencilError(
            f"{name} returns the field {field_name} itself",
            loc=loc,
            hint=f"read a cell of it, as in {field_name}[0, 0]",
        )
    if isinstance(result, (tuple, list, dict)):
        return StencilError(
            f"{name} returns a {type(cast('object', result)).__name__}",
            loc=loc,
            hint="return one value; several outputs are not supported yet in this version",
        )
    return StencilError(f"{name} returns {result!r}, which reads nothing of {field_name}", loc=loc, hint=LINEAR)


def _weights(result: Read, trace: Trace, loc: Loc | None) -> Any:
    """The array of coefficients of a linear combination of the reads of ``trace``."""
    offsets = {symbol: offset for offset, symbol in trace.symbols.items()}
    found = {offsets[symbol]: _to_float(number, str(symbol), loc) for symbol, number in result.terms.items()}
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


def _to_float(coefficient: Any, symbol: str, loc: Loc | None) -> float:
    """The nearest float64 of a sympy Rational or Float that is not zero."""
    try:  # Python divides integers of any size correctly rounded
        value = int(coefficient.p) / int(coefficient.q) if coefficient.is_Rational else float(coefficient)
    except OverflowError:
        value = float("inf")
    if value == 0.0 or not np.isfinite(value):
        raise StencilError(
            f"the coefficient of {symbol} is {value} in f64, but exactly {coefficient}",
            loc=loc,
            hint="scale the equation",
        )
    return value
