"""Formulas of coefficients: built with what is trivial left out, moved to other cells, and differentiated."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, cast

from sparsegen.ir import formula
from sparsegen.ir.formula import Code, Node, Offset

#: What of whole numbers is worked out at once; all else is left to the kernel, in its own type.
_FOLDED: Final[dict[str, Callable[[float, float], float]]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
}  # fmt: skip


class Algebra(formula.Graph):
    """A graph that adds no node for a sum with 0, a product with 0 or 1, or a choice between equals.

    Numbers are folded where that is exact in any type: if they are whole and small.
    """

    @property
    def code(self) -> Code:
        """All nodes."""
        return tuple(self.nodes)

    def number(self, place: int) -> float | None:
        """The number that a node is; None for all else."""
        node = self.nodes[place]
        return cast("float", node[1]) if node[0] == "const" else None

    def make(self, op: str, *args: int) -> int:
        """The place of an operation on earlier nodes."""
        numbers = [self.number(a) for a in args]
        if op == "neg":
            return self.negated(args[0])
        if op in _FOLDED:
            return self._folded(op, args, numbers)
        if op == "div" and (numbers[1] == 1.0 or numbers[0] == 0.0):
            return args[0]
        if op == "where" and args[1] == args[2]:
            return args[1]
        return self.add(op, *args)

    def _folded(self, op: str, args: Sequence[int], numbers: Sequence[float | None]) -> int:
        (a, b), (left, right) = args, numbers
        if left is not None and right is not None and all(_small(n) for n in (left, right)):
            return self.const(_FOLDED[op](left, right))
        if op == "mul":
            for number, other in ((left, b), (right, a)):
                if number in (0.0, 1.0):
                    return other if number else self.const(0.0)
                if number == -1.0:
                    return self.negated(other)
        elif right == 0.0:
            return a
        elif left == 0.0:
            return b if op == "add" else self.negated(b)
        return self.add(op, a, b)

    def moved(self, code: Code, place: int, to: Callable[[str, Offset], Offset], known: dict[int, int]) -> int:
        """A node of another formula with every read at another offset; ``known``: what is moved already."""
        for at in sorted(_below(code, place)):
            if at not in known:
                node = code[at]
                if node[0] == "read":
                    name, level, offset = formula.read(node)
                    known[at] = self.add("read", name, level, to(name, offset))
                elif args := formula.operands(node):
                    known[at] = self.make(str(node[0]), *(known[a] for a in args))
                else:
                    known[at] = self.add(*node)
        return known[place]

    # -------------------------------------------------------------------------------------------- derivatives
    def derivatives(self, by: Node) -> list[int | None]:
        """Of each node of today its derivative by a read; None for a condition, and where it is zero everywhere."""
        found: list[int | None] = []
        for place, node in enumerate(self.code):
            args = formula.operands(node)
            inner = [found[a] for a in args]
            if node == by:
                found.append(self.const(1.0))
            elif formula.kind(node) == "c" or all(d is None for d in inner):
                found.append(None)
            else:
                found.append(self._derivative(str(node[0]), place, args, inner))
        return found

    def _derivative(self, op: str, place: int, args: Sequence[int], inner: Sequence[int | None]) -> int | None:
        """By the rule of an operation, of which some operand has a derivative that is not zero."""
        if op in ("add", "sub"):
            left, right = inner
            if right is None:
                return left
            if left is None:
                return right if op == "add" else self.make("neg", right)
            return self.make(op, left, right)
        zero = self.const(0.0)
        if op == "where":
            one, other = (zero if d is None else d for d in inner[1:])
            return self.make("where", args[0], one, other)
        if op in ("min", "max"):
            one, other = (zero if d is None else d for d in inner)
            first = self.make("le", *(args if op == "min" else reversed(args)))
            return self.make("where", first, one, other)
        total: int | None = None
        for factor, d in zip(self._partials(op, place, args), inner, strict=True):
            if d is not None:
                term = self.make("mul", factor(), d)
                total = term if total is None else self.make("add", total, term)
        return total

    def _partials(self, op: str, place: int, args: Sequence[int]) -> list[Callable[[], int]]:
        """What makes the derivative of an operation by each operand."""
        make, const = self.make, self.const
        a, b = args[0], args[-1]
        minus_sin: Callable[[], int] = lambda: make("neg", make("sin", a))  # noqa: E731
        rules: dict[str, list[Callable[[], int]]] = {
            "neg": [lambda: const(-1.0)],
            "abs": [lambda: make("where", make("lt", a, const(0.0)), const(-1.0), const(1.0))],
            "sqrt": [lambda: make("div", const(0.5), place)],
            "exp": [lambda: place],
            "log": [lambda: make("div", const(1.0), a)],
            "sin": [lambda: make("cos", a)],
            "cos": [minus_sin],
            "tanh": [lambda: make("sub", const(1.0), make("mul", place, place))],
            "mul": [lambda: b, lambda: a],
            "div": [lambda: make("div", const(1.0), b), lambda: make("neg", make("div", place, b))],
            "pow": [
                lambda: make("mul", b, make("pow", a, make("sub", b, const(1.0)))),
                lambda: make("mul", place, make("log", a)),
            ],
        }
        return rules[op]


def named(code: Code) -> set[str]:
    """The parameters that a formula needs."""
    return {str(node[1]) for node in code if not formula.operands(node) and node[0] != "const"}


def _small(number: float) -> bool:
    """Whether it is a whole number with which sums and products are exact."""
    return math.isfinite(number) and number.is_integer() and abs(number) <= 64


def _below(code: Code, place: int) -> set[int]:
    """A node and all that it needs."""
    needed = {place}
    for at in range(place, -1, -1):
        if at in needed:
            needed.update(formula.operands(code[at]))
    return needed
