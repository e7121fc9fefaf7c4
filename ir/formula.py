"""Formulas: straight-line code over reads, constants and arithmetic, as plain data.

A formula is a tuple of nodes in the order in which they are computed; a node names earlier ones by their place::

    ("read", "u", 0, (-1, 0))   parameter u, time level 0 (the newest), this offset from the cell
    ("const", 0.5)              a number
    ("scalar", "dt")            a number that each call gives, for every time step
    ("add", 0, 1)               an operation on the nodes 0 and 1

Equal nodes are one node, so common subexpressions are computed once.  Comparisons and logic give conditions, which
``where`` and logic take; all else gives and takes numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, cast

from .numbers.quotients import simple

Part = str | int | float | tuple[int, ...]
Node = tuple[Part, ...]
Code = tuple[Node, ...]
Offset = tuple[int, ...]
#: A read: parameter, time level, offset.
Read = tuple[str, int, Offset]

UNARY: Final = ("neg", "abs", "sqrt", "exp", "log", "sin", "cos", "tanh")
BINARY: Final = ("add", "sub", "mul", "div", "min", "max", "pow")
COMPARE: Final = ("lt", "le", "eq", "ne")
LOGIC: Final = ("and", "or", "not")
#: Operands of each operation: n for a number, c for a condition.
SIGNATURES: Final[dict[str, str]] = {
    **dict.fromkeys(UNARY, "n"), **dict.fromkeys((*BINARY, *COMPARE), "nn"), "fma": "nnn", "where": "cnn",
    "and": "cc", "or": "cc", "not": "c",
}  # fmt: skip


def kind(node: Node) -> str:
    """What a node gives: n for a number, c for a condition."""
    return "c" if node[0] in COMPARE + LOGIC else "n"


def operands(node: Node) -> tuple[int, ...]:
    """The places of the nodes that a node takes."""
    return () if node[0] in ("read", "const", "scalar") else cast("tuple[int, ...]", node[1:])


def read(node: Node) -> Read:
    """The parts of a read."""
    return cast("Read", node[1:])


def reads(code: Code) -> Iterator[Read]:
    """All reads of a formula, in order."""
    return (read(node) for node in code if node[0] == "read")


def scalars(code: Code) -> tuple[str, ...]:
    """The numbers that calls give for each time step, by name, in the order in which kernels take them."""
    return tuple(sorted({str(node[1]) for node in code if node[0] == "scalar"}))


@lru_cache(maxsize=1 << 8)
def uniform(code: Code) -> frozenset[int]:
    """The places of the nodes that have one value for all cells: no read is in them."""
    found = set[int]()
    for place, node in enumerate(code):
        if node[0] != "read" and found.issuperset(operands(node)):
            found.add(place)
    return frozenset(found)


def divisor(code: Code, node: Node) -> float | None:
    """The number that a node of the code divides by, if its size allows to do so without a branch; else None."""
    if node[0] != "div" or (by := code[operands(node)[1]])[0] != "const":
        return None
    value = cast("float", by[1])
    return value if simple(value) else None


class Graph:
    """Collects nodes; an equal one is found again instead of added."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._places: dict[Node, int] = {}

    def add(self, *node: Part) -> int:
        """The place of the node."""
        if node not in self._places:
            self._places[node] = len(self.nodes)
            self.nodes.append(node)
        return self._places[node]

    def const(self, value: float) -> int:
        """A number; -0.0 becomes 0.0."""
        return self.add("const", float(value) + 0.0)

    def negated(self, place: int) -> int:
        """The negative of a node; that of a number is a number, that of a negative is what it negates."""
        op, *args = self.nodes[place]
        if op == "const":
            return self.const(-cast("float", args[0]))
        return cast("int", args[0]) if op == "neg" else self.add("neg", place)


def live(code: Code, results: tuple[int, ...]) -> tuple[Code, tuple[int, ...]]:
    """The nodes that the results need, in their order, and the results' places among them."""
    needed = set(results)
    for place in reversed(range(len(code))):
        if place in needed:
            needed.update(operands(code[place]))
    places = {old: new for new, old in enumerate(sorted(needed))}
    kept = tuple(_moved(code[old], places) for old in places)
    return kept, tuple(places[r] for r in results)


def ordered(code: Code, results: tuple[int, ...]) -> tuple[Code, tuple[int, ...]]:
    """The nodes that the results need, in the order in which working these out one after another meets them.

    Formulas that say the same are the same in this order, whichever parts were written down first.
    """
    places: dict[int, int] = {}
    found: list[Node] = []
    stack = list(reversed(results))
    while stack:
        place = stack[-1]
        args = operands(code[place])
        missing = [a for a in args if a not in places]
        if place in places or not missing:
            stack.pop()
            if place not in places:
                places[place] = len(found)
                found.append(_moved(code[place], places))
        else:
            stack.extend(reversed(missing))
    return tuple(found), tuple(places[r] for r in results)


def _moved(node: Node, places: Mapping[int, int]) -> Node:
    args = operands(node)
    return (node[0], *(places[a] for a in args)) if args else node


def contract(code: Code, results: tuple[int, ...]) -> tuple[Code, tuple[int, ...]]:
    """Products that only a sum or a difference uses become one ``fma`` with it: one rounding less each."""
    uses = Counter([*results, *(a for node in code for a in operands(node))])
    graph, places = Graph(), dict[int, int]()

    def product(place: int) -> tuple[int, int] | None:
        a = code[place]
        return (places[operands(a)[0]], places[operands(a)[1]]) if a[0] == "mul" and uses[place] == 1 else None

    for place, node in enumerate(code):
        op, args = node[0], operands(node)
        if op == "add" and (pair := product(args[1])):
            places[place] = graph.add("fma", *pair, places[args[0]])
        elif op == "add" and (pair := product(args[0])):
            places[place] = graph.add("fma", *pair, places[args[1]])
        elif op == "sub" and (pair := product(args[1])):
            places[place] = graph.add("fma", graph.negated(pair[0]), pair[1], places[args[0]])
        elif op == "sub" and (pair := product(args[0])):
            places[place] = graph.add("fma", *pair, graph.negated(places[args[1]]))
        else:
            places[place] = graph.add(*_moved(node, places))
    return live(tuple(graph.nodes), tuple(places[r] for r in results))


def problem(
    code: Code, results: tuple[int, ...], levels: Mapping[str, int], ndim: int, *, others: int = 0
) -> str | None:
    """What is wrong with a formula over parameters of so many time levels on ``ndim`` axes; None if nothing is.

    Parameters that ``levels`` does not name have ``others`` levels: 1 where they are coefficients, 0 where there are
    none.
    """
    for place, node in enumerate(code):
        where = f"node {place} of the formula, {node}"
        op, *args = node or ("",)
        if op == "read":
            if [type(a) for a in args] != [str, int, tuple] or not all(type(o) is int for o in cast("Offset", args[2])):
                return f"{where}: a read has a parameter, a level and an offset"
            name, level, offset = read(node)
            known = levels.get(name, others)
            if not 0 <= level < known:
                return f"{where}: {name} has {known} levels"
            if len(offset) != ndim:
                return f"{where}: {len(offset)} offsets on {ndim} axes"
        elif op == "const":
            if len(args) != 1 or not isinstance(args[0], float) or not math.isfinite(args[0]):
                return f"{where}: a constant is one finite number"
        elif op == "scalar":
            if [type(a) for a in args] != [str]:
                return f"{where}: a scalar has a name"
        elif op not in SIGNATURES:
            return f"{where}: unknown, one of {', '.join(('read', 'const', 'scalar', *SIGNATURES))}"
        elif len(args) != len(SIGNATURES[op]) or not all(type(a) is int and 0 <= a < place for a in args):
            return f"{where}: takes {len(SIGNATURES[op])} earlier nodes"
        elif "".join(kind(code[a]) for a in operands(node)) != SIGNATURES[op]:
            return f"{where}: mistakes numbers for conditions"
    wrong = [r for r in results if not 0 <= r < len(code) or kind(code[r]) != "n"]
    return f"result {wrong[0]} of the formula is no number" if wrong else None
