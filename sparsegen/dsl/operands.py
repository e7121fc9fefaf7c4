"""What a function computes with while it is traced: its parameters, what is read of them, and conditions.

``u[dy, dx]`` gives a :class:`Read`; arithmetic on reads builds a formula (:mod:`sparsegen.ir.formula`).  As long as it
is a sum of reads times constants the exact coefficients are kept beside it: that is what makes a function a linear
stencil.  What no formula can say raises :class:`StencilError` at the user's very line.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias

from sparsegen.arguments import real
from sparsegen.callsite import user_loc
from sparsegen.dsl.derivable import Derivable, Timed
from sparsegen.dsl.offsets import offset_of, shown
from sparsegen.dsl.refuse import ARITHMETIC, COMPARED, LOGIC, Refused, fault, refusing
from sparsegen.dsl.show import level_text, read_text, text
from sparsegen.ir import formula
from sparsegen.ir.errors import Loc

Offset = tuple[int, ...]

ALLOWED: Final = (
    "a formula is made of reads u[...], numbers, + - * / **, comparisons, sg.sqrt(a), sg.exp(a), sg.log(a), sg.sin(a), "
    "sg.cos(a), sg.tanh(a), sg.abs(a), sg.pow(a, b), sg.clip(a, low, high), sg.min(a, b), sg.max(a, b), "
    "sg.where(condition, a, b)"
)
_CHOOSE: Final = "use sg.where(condition, a, b), sg.min or sg.max, and & | ~ for and, or, not"
_ONE_NUMBER: Final = (
    "use a finite number here; what varies from cell to cell is a parameter c: sg.Coef, read as c[0, 0]"
)
#: Largest whole exponent of ``**`` for which a power is made of products.
MAX_POWER: Final = 64


@dataclass(frozen=True)
class Parameter:
    """A parameter of a traced function: a field with its time levels, a coefficient, or a number of each time step:
    ``scalar``, or ``time``.  A ``mask`` is a coefficient that formulas have as a condition.

    ``spacing`` and ``dt`` are the grid's, exact, for derivatives; the formula has them in its numbers.
    """

    name: str
    levels: int = 1
    coef: bool = False
    number: Literal["", "scalar", "time"] = ""
    spacing: Any = dataclass_field(default=None, compare=False, repr=False)
    dt: Any = dataclass_field(default=None, compare=False, repr=False)
    mask: bool = dataclass_field(default=False, repr=False)

    @property
    def field(self) -> bool:
        """Whether it is a field, which has a new value."""
        return not self.coef and not self.number


@dataclass
class Trace:
    """One run of a user's function: its parameters, the formula, and what was read.

    ``linear``: whether sums of reads are followed as linear forms (of the one field, at one level); ``known`` has those
    of nodes.
    """

    parameters: tuple[Parameter, ...]
    linear: bool
    graph: formula.Graph = dataclass_field(default_factory=formula.Graph)
    symbols: dict[Offset, Any] = dataclass_field(default_factory=dict[Offset, Any])
    known: dict[int, dict[Any, Any]] = dataclass_field(default_factory=dict[int, dict[Any, Any]])
    first: tuple[formula.Read, Loc | None] | None = None

    def accessors(self) -> tuple[Accessor | Read, ...]:
        """The stand-ins to call the function with."""
        return tuple(
            Read(self, self.graph.add("scalar", p.name)) if p.number else (Region if p.mask else Accessor)(self, p)
            for p in self.parameters
        )

    def read(self, name: str, level: int, offset: Offset) -> Read:
        """The value of a parameter at ``offset``, whose rank must be that of the first read."""
        if self.first is None:
            self.first = ((name, level, offset), user_loc())
        earlier, line = self.first
        if len(offset) != len(earlier[2]):
            raise fault(
                f"{read_text(name, level, offset)} has {len(offset)} offsets, but {read_text(*earlier)}"
                f"{f' at line {line.line}' if line else ''} has {len(earlier[2])}",
                "give every read one offset an axis, with 0 where it does not move",
            )
        place = self.graph.add("read", name, level, offset)
        if not self.linear or level < 0:
            return Read(self, place)
        if offset not in self.symbols:
            self.symbols[offset] = import_module("sympy").Symbol(read_text(name, level, offset))
        return Read(self, place, {self.symbols[offset]: import_module("sympy").Integer(1)})


class Accessor(Refused, Timed):
    """The stand-in for a parameter: ``u[dy, dx]`` reads a cell, ``u.prev`` is the time level before."""

    def __init__(self, trace: Trace, parameter: Parameter, level: int = 0) -> None:
        self._trace, self._parameter, self._level = trace, parameter, level
        self._text = level_text(parameter.name, level)

    def __getitem__(self, key: Any) -> Any:
        return self._trace.read(self._parameter.name, self._level, offset_of(self._text, key))

    def _at_level(self, level: int) -> Accessor:
        return Accessor(self._trace, self._parameter, level)

    def __getattr__(self, attribute: str) -> Accessor:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        levels, name = self._parameter.levels, self._parameter.name
        if attribute == "prev" and self._level + 1 < levels:
            return Accessor(self._trace, self._parameter, self._level + 1)
        why = "a field has no such attribute inside a stencil"
        hint = f"read cells of {name} as {name}[0, 0]; its derivatives are dx, dy, dz, dxx, dxy, ..., laplace, dt, dt2"
        if levels > 1:
            hint = f"earlier levels are {name}.prev, {name}.prev.prev, ...; {hint}"
        if attribute == "prev" and self._parameter.coef:
            why = "a coefficient does not change and has no earlier time levels"
        elif attribute == "prev":
            why = f"{name} has {levels} time level{'s' if levels > 1 else ''}"
            hint = f"ask for more: {name}: sg.Field(levels={levels + 1})"
        raise fault(f"{self._text}.{attribute}: {why}", hint)

    def __str__(self) -> str:
        return self._text

    def __iter__(self) -> NoReturn:
        self.refuse("iterated over")

    def refuse(self, what: str) -> NoReturn:
        kind = "mask" if self._parameter.mask else "coefficient" if self._parameter.coef else "field"
        raise fault(f"the {kind} {self._text} is {what}", f"read a cell of it by its offsets, as in {self._text}[0, 0]")

    def __call__(self, *_: object) -> NoReturn:
        self.refuse("called; offsets go in square brackets")


class Region(Accessor):
    """The stand-in for a mask: ``solid[dy, dx]`` is the condition that this cell is in it."""

    def __getitem__(self, key: Any) -> Condition:
        inside: Condition = super().__getitem__(key) != 0
        return inside

    def _centre(self) -> NoReturn:
        self.refuse("used as a number")


for _name in ARITHMETIC:
    setattr(Accessor, f"__{_name}__", refusing("used in arithmetic without offsets"))
for _name, _what in (COMPARED | LOGIC).items():
    setattr(Accessor, f"__{_name}__", refusing(_what))


class Condition(Refused):
    """A comparison of values, or such joined by ``&``, ``|``, ``~``: what ``sg.where`` chooses by."""

    def __init__(self, trace: Trace, place: int) -> None:
        self.trace, self.place = trace, place

    def refuse(self, what: str) -> NoReturn:
        raise fault(f"the condition {self} is {what}", _CHOOSE)

    def __str__(self) -> str:
        return text(self.trace.graph, self.place)

    def _join(self, op: str, other: object) -> Condition:
        if not isinstance(other, Condition):
            self.refuse(f"joined with {shown(other)}, which is none")
        return Condition(self.trace, self.trace.graph.add(op, self.place, other.place))

    def __and__(self, other: object) -> Condition:
        return self._join("and", other)

    def __or__(self, other: object) -> Condition:
        return self._join("or", other)

    def __invert__(self) -> Condition:
        return Condition(self.trace, self.trace.graph.add("not", self.place))


for _name in ARITHMETIC:
    setattr(Condition, f"__{_name}__", refusing("used as a number"))
for _name, _what in COMPARED.items():
    setattr(Condition, f"__{_name}__", refusing(_what))
for _name in ("rand", "ror", "xor", "rxor"):
    setattr(Condition, f"__{_name}__", refusing("joined with what is none, or by ^"))


class Read(Refused, Derivable):
    """A value of the formula: what ``u[0, 0]`` and all that is made of it are while a function is traced.

    ``place`` is its node.  ``terms``, as long as the value is linear in the field, maps the sympy Symbol of each cell
    to its coefficient, a sympy number other than zero; None where it is not (or need not be known).
    """

    __iter__ = None

    def __init__(self, trace: Trace, place: int, terms: dict[Any, Any] | None = None) -> None:
        self.trace, self.place = trace, place
        self.terms = None if terms is None else {symbol: number for symbol, number in terms.items() if number != 0}
        if self.terms is not None:
            trace.known.setdefault(place, self.terms)

    def _centre(self) -> Read:
        return self

    def _terms(self, change: Callable[[Any], Any]) -> dict[Any, Any] | None:
        """The terms with other coefficients."""
        return None if self.terms is None else {symbol: change(number) for symbol, number in self.terms.items()}

    @property
    def expr(self) -> Any:
        """A linear value as a sympy expression."""
        terms = self.terms or {}
        return import_module("sympy").Add(*(number * symbol for symbol, number in terms.items()))

    def refuse(self, what: str) -> NoReturn:
        raise fault(f"{self} is {what}", _CHOOSE if what.startswith("used as a truth") else ALLOWED)

    def __str__(self) -> str:
        return text(self.trace.graph, self.place)

    def _new(self, *node: formula.Part, terms: dict[Any, Any] | None = None) -> Read:
        return Read(self.trace, self.trace.graph.add(*node), terms)

    def place_of(self, other: object, what: str) -> int:
        """The node of another operand, a number included."""
        if isinstance(other, Read):
            return other.place
        return self.trace.graph.const(as_float(_number(other, what)))

    def __add__(self, other: object) -> Read:
        if not isinstance(other, Read) and _number(other, "term") == 0:
            return self  # what sum() starts with
        node = ("add", self.place, self.place_of(other, "term"))
        if not isinstance(other, Read) or self.terms is None or other.terms is None:
            return self._new(*node)
        sums = dict(self.terms)
        for symbol, number in other.terms.items():
            sums[symbol] = sums[symbol] + number if symbol in sums else number
        return self._new(*node, terms=sums)

    __radd__ = __add__

    def __sub__(self, other: object) -> Read:
        if not isinstance(other, Read) and _number(other, "term") == 0:
            return self
        terms = None
        if isinstance(other, Read) and self.terms is not None and other.terms is not None:
            terms = (self + -other).terms
        return self._new("sub", self.place, self.place_of(other, "term"), terms=terms)

    def __rsub__(self, other: object) -> Read:
        if _number(other, "term") == 0:
            return -self
        return self._new("sub", self.place_of(other, "term"), self.place)

    def __neg__(self) -> Read:
        return Read(self.trace, self.trace.graph.negated(self.place), self._terms(operator.neg))

    def __pos__(self) -> Read:
        return self

    def __mul__(self, other: object) -> Read:
        if isinstance(other, Read):
            return self._new("mul", self.place, other.place)
        factor = _number(other, "coefficient")
        terms = self._terms(lambda number: number * factor)
        if factor == 1:
            return Read(self.trace, self.place, terms)
        return self._new("mul", self.trace.graph.const(as_float(factor)), self.place, terms=terms)

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Read:
        if isinstance(other, Read):
            return self._new("div", self.place, other.place)
        divisor = _number(other, "divisor")
        if divisor == 0:
            raise fault(f"{self} is divided by zero", "check the constant")
        terms = self._terms(lambda number: number / divisor)
        value = as_float(divisor)
        if value == 1:
            return Read(self.trace, self.place, terms)
        if abs(math.frexp(value)[0]) == 0.5 and 2.0**-64 < abs(value) < 2.0**64:  # the product is the same number
            return self._new("mul", self.trace.graph.const(1.0 / value), self.place, terms=terms)
        return self._new("div", self.place, self.trace.graph.const(value), terms=terms)

    def __rtruediv__(self, other: object) -> Read:
        return self._new("div", self.place_of(other, "dividend"), self.place)

    def __pow__(self, exponent: object) -> Read:
        if isinstance(exponent, Read):
            return self._new("pow", self.place, exponent.place)
        number = as_float(_number(exponent, "exponent"))
        if abs(number) == 0.5:  # a fifth of the work, and what NumPy does
            root = self._new("sqrt", self.place)
            return root if number > 0 else 1 / root
        if not number.is_integer() or abs(number) > MAX_POWER:
            return self._new("pow", self.place, self.trace.graph.const(number))
        count = abs(int(number))
        if count == 0:
            return self._new("const", 1.0)
        total, square = None, self
        while count:  # by repeated squaring
            if count % 2:
                total = square if total is None else total * square
            count //= 2
            square = square * square if count else square
        assert total is not None
        return total if number > 0 else 1 / total

    def __rpow__(self, base: object) -> Read:
        return self._new("pow", self.place_of(base, "base"), self.place)

    def __abs__(self) -> Read:
        return self._new("abs", self.place)

    def __getitem__(self, key: object) -> NoReturn:
        self.refuse(f"indexed again with [{shown(key)}]")

    if TYPE_CHECKING:  # set below

        def __lt__(self, other: object) -> Condition: ...
        def __le__(self, other: object) -> Condition: ...
        def __gt__(self, other: object) -> Condition: ...
        def __ge__(self, other: object) -> Condition: ...


#: What users call it: ``def heat(u: sg.Field) -> sg.Value``.
Value: TypeAlias = Read


def _comparing(op: str, swap: bool) -> Callable[[Read, object], Condition]:
    """A comparison of two values; ``swap``: of the second with the first."""

    def compare(self: Read, other: object) -> Condition:
        if isinstance(other, Condition):
            other.refuse("used as a number")
        sides = self.place, self.place_of(other, "number compared with")
        return Condition(self.trace, self.trace.graph.add(op, *(reversed(sides) if swap else sides)))

    return compare


for _name in COMPARED:
    setattr(Read, f"__{_name}__", _comparing({"gt": "lt", "ge": "le"}.get(_name, _name), _name in ("gt", "ge")))
for _name, _what in LOGIC.items():
    setattr(Read, f"__{_name}__", refusing(_what))


def _number(value: Any, what: str) -> Any:
    """A sympy Rational (from integers and fractions) or a Float of 53 bits (from all else), or a StencilError."""
    sympy: Any = import_module("sympy")
    if isinstance(value, Accessor):
        value.refuse("used in arithmetic without offsets")
    if isinstance(value, Condition):
        value.refuse("used as a number")
    if getattr(value, "shape", ()) != ():
        raise fault(f"the {what}, of shape {tuple(value.shape)}, is an array", _ONE_NUMBER)
    if getattr(value, "free_symbols", None):
        how = "put numbers for the symbols first, as in expression.subs(symbol, 0.1)"
        raise fault(f"the {what} {value} has no value", how)
    if isinstance(value, sympy.Rational):
        return value
    if isinstance(value, numbers.Rational):
        return sympy.Rational(int(value.numerator), int(value.denominator))
    if (number := real(value)) is None:
        raise fault(f"the {what} {value!r} is not a real number but a {type(value).__name__}", ALLOWED)
    if not math.isfinite(number):
        raise fault(f"the {what} {value} is not finite", _ONE_NUMBER)
    return sympy.Float(number)


def as_float(number: Any) -> float:
    """The nearest float64 of a sympy Rational or Float; infinite if it is too large."""
    try:  # Python divides integers of any size correctly rounded
        return int(number.p) / int(number.q) if number.is_Rational else float(number)
    except OverflowError:
        return math.inf
