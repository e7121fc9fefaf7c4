"""What a stencil's function sees while it is traced: stand-ins for the field and for the values read from it.

``u[dy, dx]`` gives a :class:`Read`: a linear expression in sympy symbols and numbers, without a constant term *by
construction*.  Every operator keeps it so, or raises :class:`StencilError` at the user's very line.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from importlib import import_module
from typing import Any, NoReturn, cast

import numpy as np

from sparsegen.dsl.stencil import MAX_RADIUS
from sparsegen.ir.errors import Loc, StencilError
from sparsegen.where import user_loc

Offset = tuple[int, ...]

LINEAR = "a stencil is a sum of reads u[...] times constant numbers"
_ONE_NUMBER = "use a finite number here, or pass an array of weights to sg.Stencil.from_weights"


@dataclass
class Trace:
    """One run of a user's function: the field's name and what was read of it."""

    name: str
    symbols: dict[Offset, Any] = dataclass_field(default_factory=dict[Offset, Any])
    first: tuple[Offset, Loc | None] | None = None

    @property
    def field(self) -> Accessor:
        """The stand-in to call the function with."""
        return Accessor(self)

    def read(self, offset: Offset) -> Read:
        """The value at ``offset``, whose rank must be that of the first read."""
        if self.first is None:
            self.first = (offset, user_loc())
        earlier, line = self.first
        if len(offset) != len(earlier):
            raise StencilError(
                f"{self._text(offset)} has {len(offset)} offsets, but {self._text(earlier)}"
                f"{f' at line {line.line}' if line else ''} has {len(earlier)}",
                loc=user_loc(),
                hint="give every read one offset an axis, with 0 where it does not move",
            )
        if offset not in self.symbols:
            self.symbols[offset] = import_module("sympy").Symbol(self._text(offset))
        return Read({self.symbols[offset]: import_module("sympy").Integer(1)})

    def _text(self, offset: Offset) -> str:
        return f"{self.name}[{', '.join(map(str, offset))}]"


class _Refused:
    """The operators that make no sense on a stand-in: each raises at the user's line."""

    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # NumPy scalars and arrays leave * and + to us

    def refuse(self, what: str) -> NoReturn:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        self.refuse("compared with ==")

    def __ne__(self, other: object) -> bool:
        self.refuse("compared with !=")

    def __bool__(self) -> bool:
        self.refuse("used as a truth value (if, while, and, or)")


def _refusing(what: str) -> Callable[..., Any]:
    def operation(self: _Refused, *_: object) -> NoReturn:
        self.refuse(what)

    return operation


for _name, _what in {
    "lt": "compared with <",
    "le": "compared with <=",
    "gt": "compared with >",
    "ge": "compared with >=",
    "pow": "raised to a power",
    "rpow": "used as an exponent",
    "abs": "used in abs()",
    "round": "rounded",
    "floordiv": "divided with //",
    "rfloordiv": "divided by with //",
    "mod": "used with %",
    "rmod": "used with %",
    "matmul": "used with @",
    "rmatmul": "used with @",
}.items():
    setattr(_Refused, f"__{_name}__", _refusing(_what))


class Accessor(_Refused):
    """The stand-in for the field: ``u[dy, dx]`` reads a cell, and nothing else works."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __getitem__(self, key: Any) -> Read:
        parts: list[Any] = [*key] if isinstance(key, tuple) else [key]
        name = self._trace.name
        shown = f"{name}[{', '.join(map(_shown, parts))}]"
        if not 1 <= len(parts) <= 3:
            raise StencilError(f"{shown} has {len(parts)} offsets", loc=user_loc(), hint="a stencil has 1, 2 or 3 axes")
        offset: list[int] = []
        for part in parts:
            kind = type(part).__name__
            try:
                if isinstance(part, (bool, np.bool_)):
                    raise TypeError
                offset.append(operator.index(part))
            except TypeError:
                raise StencilError(
                    f"the offset {_shown(part)} in {shown} is not a constant integer but a {kind}",
                    loc=user_loc(),
                    hint=f"write offsets from the cell as integers, as in {name}[-1, 0]",
                ) from None
        if (far := max(map(abs, offset))) > MAX_RADIUS:
            raise StencilError(
                f"{shown} reads {far} cells away, over the limit of {MAX_RADIUS}",
                loc=user_loc(),
                hint="a stencil this wide is better applied by FFT, or as several narrower ones",
            )
        return self._trace.read(tuple(offset))

    def __getattr__(self, attribute: str) -> NoReturn:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        name = self._trace.name
        why = (
            "earlier time levels are not supported yet in this version"
            if attribute == "prev"
            else "a field has no attributes inside a stencil"
        )
        raise StencilError(f"{name}.{attribute}: {why}", loc=user_loc(), hint=f"read cells of {name} as {name}[0, 0]")

    def __iter__(self) -> NoReturn:
        self.refuse("iterated over")

    def refuse(self, what: str) -> NoReturn:
        name = self._trace.name
        raise StencilError(
            f"the field {name} is {what}", loc=user_loc(), hint=f"read a cell of it by its offsets, as in {name}[0, 0]"
        )

    def __call__(self, *_: object) -> NoReturn:
        self.refuse("called; offsets go in square brackets")


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "neg", "pos"):
    setattr(Accessor, f"__{_name}__", _refusing("used in arithmetic without offsets"))


class Read(_Refused):
    """A linear combination of cells: what ``u[0, 0]`` and sums of such times numbers are while a stencil is traced.

    ``terms`` maps the sympy Symbol of each cell to its coefficient, a sympy number other than zero.
    """

    __iter__ = None

    def __init__(self, terms: dict[Any, Any]) -> None:
        self.terms = {symbol: number for symbol, number in terms.items() if number != 0}

    @property
    def expr(self) -> Any:
        """The same as a sympy expression."""
        return import_module("sympy").Add(*(number * symbol for symbol, number in self.terms.items()))

    def refuse(self, what: str) -> NoReturn:
        raise StencilError(f"{self} is {what}, which is not linear in the field", loc=user_loc(), hint=LINEAR)

    def __str__(self) -> str:
        text = str(self.expr)
        return text if len(text) <= 60 else f"{text[:57]}..."

    def __add__(self, other: object) -> Read:
        sums = dict(self.terms)
        for symbol, number in self._addend(other).items():
            sums[symbol] = sums[symbol] + number if symbol in sums else number
        return Read(sums)

    __radd__ = __add__

    def __sub__(self, other: object) -> Read:
        return self + (-other if isinstance(other, Read) else Read(self._addend(other)))

    def __rsub__(self, other: object) -> Read:
        return -self + Read(self._addend(other))

    def __neg__(self) -> Read:
        return Read({symbol: -number for symbol, number in self.terms.items()})

    def __pos__(self) -> Read:
        return self

    def __mul__(self, other: object) -> Read:
        if isinstance(other, Read):
            self.refuse(f"multiplied by {other}")
        factor = _number(other, "coefficient")
        return Read({symbol: number * factor for symbol, number in self.terms.items()})

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Read:
        if isinstance(other, Read):
            self.refuse(f"divided by {other}")
        divisor = _number(other, "divisor")
        if divisor == 0:
            raise StencilError(f"{self} is divided by zero", loc=user_loc(), hint="check the constant")
        return Read({symbol: number / divisor for symbol, number in self.terms.items()})

    def __rtruediv__(self, other: object) -> NoReturn:
        self.refuse("a divisor")

    def __getitem__(self, key: object) -> NoReturn:
        self.refuse(f"indexed again with [{_shown(key)}]")

    def _addend(self, other: object) -> dict[Any, Any]:
        """The terms of what is added: those of a read, or none for 0 (what ``sum()`` starts with)."""
        if isinstance(other, Read):
            return other.terms
        if _number(other, "term") != 0:
            raise StencilError(
                f"the constant {other} is added to {self}: a stencil has no constant term",
                loc=user_loc(),
                hint="add the constant to the field afterwards, or shift the field by its steady state",
            )
        return {}


def _number(value: Any, what: str) -> Any:
    """A sympy Rational (from integers and fractions) or a Float of 53 bits (from all else), or a StencilError."""
    sympy: Any = import_module("sympy")
    if isinstance(value, Accessor):
        value.refuse("used in arithmetic without offsets")
    if getattr(value, "shape", ()) != ():
        fault = "is an array: variable coefficients are not supported yet in this version"
        raise StencilError(f"the {what}, of shape {tuple(value.shape)}, {fault}", loc=user_loc(), hint=_ONE_NUMBER)
    if getattr(value, "free_symbols", None):
        hint = "put numbers for the symbols first, as in expression.subs(symbol, 0.1)"
        raise StencilError(f"the {what} {value} has no value", loc=user_loc(), hint=hint)
    if isinstance(value, sympy.Rational):
        return value
    if isinstance(value, numbers.Rational):
        return sympy.Rational(int(value.numerator), int(value.denominator))
    try:
        number = float("not a number" if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        fault = f"is not a real number but a {type(value).__name__}"
        raise StencilError(f"the {what} {value!r} {fault}", loc=user_loc(), hint=LINEAR) from None
    if not math.isfinite(number):
        raise StencilError(f"the {what} {value} is not finite", loc=user_loc(), hint=_ONE_NUMBER)
    return sympy.Float(number)


def _shown(part: Any) -> str:
    if isinstance(part, slice):
        whole = cast("Any", part)
        ends = [whole.start, whole.stop] if whole.step is None else [whole.start, whole.stop, whole.step]
        return ":".join("" if end is None else str(end) for end in ends)
    return str(part) if isinstance(part, Read) else repr(part)
