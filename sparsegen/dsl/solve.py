"""``sg.solve``: the new value of a cell, from an equation that is linear in it.

The equation is taken apart into terms, each a number times powers of nodes of the formula; numbers are exact, so a time
step that is divided by and multiplied with cancels.  Sums without the unknown stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from math import prod
from typing import Any, NoReturn, cast

from sparsegen.dsl.derivable import Timed
from sparsegen.dsl.operands import Accessor, Read, Trace, Value, as_float
from sparsegen.dsl.refuse import Refused, fault, refusing
from sparsegen.dsl.show import read_text, text
from sparsegen.ir import formula
from sparsegen.ir.errors import Loc, StencilError

#: Powers of nodes in the order in which the user wrote them, by their places.
Powers = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Equation(Refused):
    """What :func:`Eq` gives: two sides that shall be equal."""

    lhs: Value | float
    rhs: Value | float

    def refuse(self, what: str) -> NoReturn:
        """Equations are solved, and nothing else."""
        raise fault(f"an equation is {what}", "solve it: sg.solve(equation, u.next) is the new value")

    __eq__ = refusing("compared with ==")


def Eq(lhs: Value | float, rhs: Value | float = 0) -> Equation:
    """The equation ``lhs = rhs``, for :func:`sparsegen.solve`."""
    for side in (lhs, rhs):
        if isinstance(side, (Accessor, Equation)):
            side.refuse("a side of an equation")
    return Equation(lhs, rhs)


def solve(equation: Equation | Value, unknown: Timed | Value) -> Value:
    """The value of ``unknown``, as ``u.next``, for which the equation holds; an expression alone shall be 0.

    The equation is linear in the unknown, whose coefficient may be a formula of other reads, as with a damping that
    varies: ``sg.solve(sg.Eq(u.dt2 + d[0, 0] * u.dtc, c[0, 0] * u.laplace), u.next)``.  StencilError for any other.
    """
    if isinstance(equation, Equation):
        left, right = equation.lhs, equation.rhs
        whole: Any = right - left if isinstance(right, Read) and not isinstance(left, Read) else left - right
    else:
        whole = equation
    if not isinstance(whole, Read):
        raise fault(f"sg.solve of {whole!r}, which reads no field", "write an equation, as sg.Eq(u.dt, a * u.laplace)")
    wanted = unknown._centre() if isinstance(unknown, Timed) else unknown
    node = whole.trace.graph.nodes[wanted.place] if isinstance(wanted, Read) else ("",)
    if node[0] != "read" or formula.read(node)[1] >= 0 or any(formula.read(node)[2]):
        raise fault(
            f"sg.solve for {unknown}, which is known", "solve for the next time level: sg.solve(equation, u.next)"
        )
    return _Solver(whole, wanted.place).value()


def check_solved(code: formula.Code, name: str, loc: Loc | None) -> None:
    """StencilError for a formula that reads the time level that is being worked out."""
    for parameter, level, offset in formula.reads(code):
        if level < 0:
            raise StencilError(
                f"{name} returns a formula of {read_text(parameter, level, offset)}, which is not known yet",
                loc=loc,
                hint=f"solve for it: new = sg.solve(equation, {parameter}.next), and use new in its place",
            )


class _Terms:
    """A sum of numbers times powers of nodes, in the order in which they were met."""

    def __init__(self, *terms: tuple[Fraction, Powers]) -> None:
        self.terms: dict[frozenset[tuple[int, int]], tuple[Fraction, Powers]] = {}
        for number, powers in terms:
            self.add(number, powers)

    def add(self, number: Fraction, powers: Powers) -> None:
        key = frozenset(powers)
        number += self.terms[key][0] if key in self.terms else 0
        self.terms[key] = number, powers
        if number == 0:
            del self.terms[key]

    def __iter__(self) -> Iterator[tuple[Fraction, Powers]]:
        return iter(self.terms.values())

    def times(self, number: Fraction, powers: Powers) -> _Terms:
        """Every term multiplied by one."""
        return _Terms(*((n * number, _joined(p, powers)) for n, p in self))


def _joined(a: Powers, b: Powers) -> Powers:
    """The product of two."""
    total = dict(a)
    for place, power in b:
        total[place] = total.get(place, 0) + power
    return tuple((place, power) for place, power in total.items() if power)


def _inverse(number: Fraction, powers: Powers) -> tuple[Fraction, Powers]:
    if number == 0:
        raise fault("sg.solve: the equation is divided by zero", "scale it: is the time step too small?")
    return 1 / number, tuple((place, -power) for place, power in powers)


class _Solver:
    """One equation, ``whole`` = 0, for the node ``unknown``."""

    def __init__(self, whole: Read, unknown: int) -> None:
        self.trace: Trace = whole.trace
        self.root, self.unknown = whole.place, unknown
        self.nodes = self.trace.graph.nodes
        self.name = text(self.trace.graph, unknown).partition("[")[0]
        self.depends: set[int] = set()
        for place, node in enumerate(self.nodes):
            if place == unknown or not self.depends.isdisjoint(formula.operands(node)):
                self.depends.add(place)
            elif node[0] == "read" and formula.read(node)[:2] == formula.read(self.nodes[unknown])[:2]:
                self.depends.add(place)

    def value(self) -> Read:
        """The unknown as a formula."""
        factor, rest = _Terms(), _Terms()
        for number, powers in self.apart(self.root):
            if (self.unknown, 1) in powers:
                factor.add(number, tuple(p for p in powers if p[0] != self.unknown))
            else:
                rest.add(-number, powers)
        if not factor.terms:
            hint = f"it must be in a term that is left when all is added up, as in sg.Eq({self.name[:-5]}.dt, ...)"
            raise fault(f"sg.solve: the equation does not depend on {self.name}", hint)
        number, powers = next(iter(factor))
        if len(factor.terms) > 1:
            powers = ()
        common = _inverse(number, powers)
        above = self.sum(rest.times(*common))
        if above is None:
            raise fault(f"sg.solve: the solution is {self.name} = 0", "check the equation: nothing else is left in it")
        below = self.sum(factor.times(*common)) if len(factor.terms) > 1 else None
        return above if below is None else above / below

    def apart(self, place: int) -> _Terms:
        """The terms of a node."""
        if place not in self.depends:
            return _Terms(self.single(place))
        if place == self.unknown:
            return _Terms((Fraction(1), ((place, 1),)))
        op, args = self.nodes[place][0], formula.operands(self.nodes[place])
        inner = [a in self.depends for a in args]
        if op == "neg":
            return self.apart(args[0]).times(Fraction(-1), ())
        if op in ("add", "sub"):
            total = self.apart(args[0])
            for number, powers in self.apart(args[1]):
                total.add(number if op == "add" else -number, powers)
            return total
        if op == "mul" and inner.count(True) == 1:
            return self.apart(args[inner.index(True)]).times(*self.single(args[inner.index(False)]))
        if op == "div" and not inner[1]:
            return self.apart(args[0]).times(*_inverse(*self.single(args[1])))
        self.refuse(place)

    def single(self, place: int) -> tuple[Fraction, Powers]:
        """A node without the unknown, as one term; a linear form that is known exactly stays whole."""
        whole = Fraction(1), ((place, 1),)
        op, args = self.nodes[place][0], formula.operands(self.nodes[place])
        if op == "const":
            return Fraction(cast("float", self.nodes[place][1])), ()
        if place in self.trace.known or op not in ("neg", "mul", "div"):
            return whole
        (number, powers), *more = (self.single(a) for a in args)
        if op == "neg":
            return -number, powers
        other = more[0]
        if op == "div":
            if other[0] == 0:
                return whole
            other = _inverse(*other)
        return number * other[0], _joined(powers, other[1])

    def refuse(self, place: int) -> NoReturn:
        shown = text(self.trace.graph, place)
        if self.nodes[place][0] == "read":
            what = f"{shown} is another cell's: the scheme is implicit"
            raise fault(f"sg.solve: {what}", f"take space derivatives of what is known, as {self.name[:-5]}.laplace")
        hint = f"only {self.name} times what is known can be solved for: take the rest at the known time level"
        if self.nodes[place][0] == "where":
            hint = "choose between solutions: sg.where(condition, sg.solve(a, u.next), sg.solve(b, u.next))"
        raise fault(f"sg.solve: the equation is not linear in {self.name}: {shown}", hint)

    def sum(self, terms: _Terms) -> Read | None:
        """The terms as a formula; None for none."""
        total: Read | None = None
        for number, powers in terms:
            value = self.term(abs(number), powers)
            if total is None:
                total = value if number > 0 else -value
            else:
                total = total + value if number > 0 else total - value
        return total

    def term(self, number: Fraction, powers: Powers) -> Read:
        """One term as a formula."""
        above = [self.read(place) ** power for place, power in powers if power > 0]
        below = [self.read(place) ** -power for place, power in powers if power < 0]
        if above:
            value = prod(above[1:], start=above[0] * number)
        else:
            exact = import_module("sympy").Rational(number.numerator, number.denominator)
            value = Read(self.trace, self.trace.graph.const(as_float(exact)))
        return value / prod(below[1:], start=below[0]) if below else value

    def read(self, place: int) -> Read:
        return Read(self.trace, place, self.trace.known.get(place))


__all__ = ["Eq", "Equation", "check_solved", "solve"]
