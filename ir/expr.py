"""Integer expressions with ranges: the only language of addresses, trip counts and predicates.

Every expression knows an inclusive range ``lo..hi``; the constructors fold constants and use ranges to drop
divisions, minima and comparisons that cannot matter.  ``//`` and ``%`` are defined for a non-negative left side and a
positive right side only, where Python, NumPy and C agree; the constructor refuses anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Union

from .errors import IRError
from .types import DType, pred, s32

ExprLike = Union["Expr", int]
LOGIC: Final = ("<", "<=", "==", "!=", "and", "or")
#: How tightly an operator binds, in ``.sgir`` text and in the C that is printed from it.
PRECEDENCE: Final = {
    "or": 0, "and": 1, "==": 2, "!=": 2, "<": 2, "<=": 2, "|": 3, "^": 4, "&": 5, ">>": 6, "<<": 6,
    "+": 7, "-": 7, "*": 8, "//": 8, "%": 8,
}  # fmt: skip


def _operator(op: str, *, swapped: bool = False) -> Callable[[Expr, ExprLike], Expr]:
    """The method of expressions that applies an operator to the expression and another; ``swapped``: to that first."""
    return (lambda a, b: binary(op, b, a)) if swapped else (lambda a, b: binary(op, a, b))


class Expr:
    """An immutable integer (or 0/1 predicate) expression; ``lo`` and ``hi`` bound its value."""

    __slots__ = ("hi", "lo")
    lo: int
    hi: int

    def key(self) -> tuple[object, ...]:
        raise NotImplementedError  # pragma: no cover - abstract: each of the four kinds below has one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def __repr__(self) -> str:
        return text(self)

    __add__, __radd__ = _operator("+"), _operator("+", swapped=True)
    __sub__, __rsub__ = _operator("-"), _operator("-", swapped=True)
    __mul__, __rmul__ = _operator("*"), _operator("*", swapped=True)
    __floordiv__, __mod__ = _operator("//"), _operator("%")
    __and__, __or__, __xor__ = _operator("&"), _operator("|"), _operator("^")
    __rshift__, __lshift__ = _operator(">>"), _operator("<<")
    lt, le, eq, ne = _operator("<"), _operator("<="), _operator("=="), _operator("!=")
    gt, ge = _operator("<", swapped=True), _operator("<=", swapped=True)


class Const(Expr):
    """An integer literal."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = self.lo = self.hi = int(value)

    def key(self) -> tuple[object, ...]:
        return ("const", self.value)


class Value(Expr):
    """A named SSA value: the result of an op, a loop variable or a built-in; integer ones are expressions.

    ``lo..hi`` is the declared range of an integer value (the whole type if none is given) and unused for floats.
    """

    __slots__ = ("dtype", "name")

    def __init__(self, name: str, dtype: DType = s32, lo: int | None = None, hi: int | None = None) -> None:
        self.name, self.dtype = name, dtype
        tlo, thi = dtype.range if dtype.kind != "float" else (0, 0)
        self.lo = tlo if lo is None else max(lo, tlo)
        self.hi = thi if hi is None else min(hi, thi)

    def key(self) -> tuple[object, ...]:
        return ("value", self.name, self.dtype.name, self.lo, self.hi)


class Bin(Expr):
    """``a op b``; build it with :func:`binary`, which simplifies."""

    __slots__ = ("a", "b", "op")

    def __init__(self, op: str, a: Expr, b: Expr, lo: int, hi: int) -> None:
        self.op, self.a, self.b, self.lo, self.hi = op, a, b, lo, hi

    def key(self) -> tuple[object, ...]:
        return ("bin", self.op, self.a.key(), self.b.key())


class Select(Expr):
    """``a`` where the predicate ``c`` holds, else ``b``; build it with :func:`select`."""

    __slots__ = ("a", "b", "c")

    def __init__(self, c: Expr, a: Expr, b: Expr) -> None:
        self.c, self.a, self.b = c, a, b
        self.lo, self.hi = min(a.lo, b.lo), max(a.hi, b.hi)

    def key(self) -> tuple[object, ...]:
        return ("select", self.c.key(), self.a.key(), self.b.key())


TRUE: Final = Const(1)
FALSE: Final = Const(0)


def as_expr(x: ExprLike) -> Expr:
    """An int as a constant; an expression as it is.  A float value is no integer expression."""
    if isinstance(x, Expr):
        return x
    if isinstance(x, (int,)) or hasattr(x, "__index__"):
        return Const(int(x))
    raise IRError(f"{x!r} is no integer expression")


def _integer(x: ExprLike) -> Expr:
    e = as_expr(x)
    if isinstance(e, Value) and e.dtype.kind == "float":  # its range says nothing: it would fold to a constant
        raise IRError(f"integer expressions cannot read the {e.dtype} value %{e.name}", hint="use warp.cvt")
    return e


def is_pred(e: Expr) -> bool:
    """Whether the expression is a predicate (0 or 1) rather than a number."""
    return (isinstance(e, Bin) and e.op in LOGIC) or (isinstance(e, Value) and e.dtype is pred) or e in (TRUE, FALSE)


_FOLD: Final[dict[str, Callable[[int, int], int]]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "&": lambda a, b: a & b, "|": lambda a, b: a | b, "^": lambda a, b: a ^ b,
    ">>": lambda a, b: a >> b, "<<": lambda a, b: a << b, "min": min, "max": max,
    "<": lambda a, b: int(a < b), "<=": lambda a, b: int(a <= b), "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b), "and": lambda a, b: int(bool(a and b)), "or": lambda a, b: int(bool(a or b)),
}  # fmt: skip


def binary(op: str, x: ExprLike, y: ExprLike) -> Expr:
    """``x op y``, simplified by constants and ranges."""
    a, b = _integer(x), _integer(y)
    if op in ("//", "%") and (a.lo < 0 or b.lo <= 0):
        raise IRError(f"({a!r}) {op} ({b!r}): the left side may be {a.lo}, the right side {b.lo}",
                      hint="shift the left side by a multiple of the divisor so that it is never negative")  # fmt: skip
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(_FOLD[op](a.value, b.value))
    if op in ("+", "*", "min", "max", "&", "|", "^", "and", "or") and isinstance(a, Const):
        a, b = b, a
    if (short := _RULES[op](a, b)) is not None:
        return short
    lo, hi = _range(op, a, b)
    return Const(lo) if lo == hi else Bin(op, a, b, lo, hi)


def select(c: ExprLike, x: ExprLike, y: ExprLike) -> Expr:
    """``x`` where ``c`` holds, else ``y``."""
    cond, a, b = _integer(c), _integer(x), _integer(y)
    if isinstance(cond, Const):
        return a if cond.value else b
    return a if a == b else Select(cond, a, b)


def minimum(x: ExprLike, y: ExprLike) -> Expr:
    return binary("min", x, y)


def maximum(x: ExprLike, y: ExprLike) -> Expr:
    return binary("max", x, y)


def all_of(*preds: ExprLike) -> Expr:
    """The conjunction of predicates; true when there are none."""
    out: Expr = TRUE
    for p in preds:
        out = binary("and", out, p)
    return out


def any_of(*preds: ExprLike) -> Expr:
    """The disjunction of predicates; false when there are none."""
    out: Expr = FALSE
    for p in preds:
        out = binary("or", out, p)
    return out


def _range(op: str, a: Expr, b: Expr) -> tuple[int, int]:
    if op in LOGIC:
        return 0, 1
    if op == "+":
        return a.lo + b.lo, a.hi + b.hi
    if op == "-":
        return a.lo - b.hi, a.hi - b.lo
    if op == "*":
        corners = (a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi)
        return min(corners), max(corners)
    if op == "//":
        return a.lo // b.hi, a.hi // b.lo
    if op == "%":
        return 0, min(a.hi, b.hi - 1)
    if op == "min":
        return min(a.lo, b.lo), min(a.hi, b.hi)
    if op == "max":
        return max(a.lo, b.lo), max(a.hi, b.hi)
    if a.lo < 0 or b.lo < 0:
        raise IRError(f"({a!r}) {op} ({b!r}): bit operations need non-negative sides")
    if op == "&":
        return 0, min(a.hi, b.hi)
    if op in ("|", "^"):
        return 0, (1 << max(a.hi.bit_length(), b.hi.bit_length())) - 1
    if op == ">>":
        return a.lo >> b.hi, a.hi >> b.lo
    if b.hi > 64:
        raise IRError(f"({a!r}) << ({b!r}): the shift may be {b.hi}", hint="give it a range within 0..64")
    return a.lo << b.lo, a.hi << b.hi


def _add(a: Expr, b: Expr) -> Expr | None:
    if isinstance(b, Const):
        if b.value == 0:
            return a
        if isinstance(a, Bin) and a.op == "+" and isinstance(a.b, Const):
            return binary("+", a.a, a.b.value + b.value)
        if isinstance(a, Bin) and a.op == "-" and isinstance(a.a, Const):
            return binary("-", a.a.value + b.value, a.b)
    elif isinstance(b, Bin) and b.op == "+" and isinstance(b.b, Const):  # constants to the right
        return binary("+", binary("+", a, b.a), b.b)
    elif isinstance(a, Bin) and a.op == "+" and isinstance(a.b, Const):
        return binary("+", binary("+", a.a, b), a.b)
    return None


def _sub(a: Expr, b: Expr) -> Expr | None:
    if a == b:
        return FALSE
    return binary("+", a, -b.value) if isinstance(b, Const) else None


def _mul(a: Expr, b: Expr) -> Expr | None:
    if isinstance(b, Const):
        if b.value in (0, 1):
            return a if b.value else FALSE
        if isinstance(a, Bin) and a.op == "*" and isinstance(a.b, Const):
            return binary("*", a.a, a.b.value * b.value)
        if isinstance(a, Bin) and a.op == "+" and isinstance(a.b, Const):
            return binary("+", binary("*", a.a, b), a.b.value * b.value)
    return None


def _terms(e: Expr) -> list[Expr]:
    return [*_terms(e.a), *_terms(e.b)] if isinstance(e, Bin) and e.op == "+" else [e]


def _split(a: Expr, d: int) -> tuple[Expr, Expr] | None:
    """``a = d * q + r`` by splitting off the terms that ``d`` divides, if ``r`` is then known to be non-negative."""
    q: Expr = FALSE
    r: Expr = FALSE
    for t in _terms(a):
        if isinstance(t, Const):
            q, r = q + t.value // d, r + t.value % d
        elif isinstance(t, Bin) and t.op == "*" and isinstance(t.b, Const) and t.b.value % d == 0:
            q = q + t.a * (t.b.value // d)
        else:
            r = r + t
    return (q, r) if q != FALSE and r.lo >= 0 and q.lo >= 0 else None


def _div(a: Expr, b: Expr) -> Expr | None:
    if not isinstance(b, Const):
        return None
    if b.value == 1:
        return a
    if a.lo // b.value == a.hi // b.value:
        return Const(a.lo // b.value)
    parts = _split(a, b.value)
    return parts[0] + parts[1] // b if parts else None


def _mod(a: Expr, b: Expr) -> Expr | None:
    if not isinstance(b, Const):
        return None
    if a.lo // b.value == a.hi // b.value:
        return a - a.lo // b.value * b.value
    parts = _split(a, b.value)
    return parts[1] % b if parts else None


def _eq(a: Expr, b: Expr) -> Expr | None:
    return TRUE if a == b else FALSE if a.hi < b.lo or b.hi < a.lo else None


def _ne(a: Expr, b: Expr) -> Expr | None:
    same = _eq(a, b)
    return None if same is None else FALSE if same == TRUE else TRUE


def _logic(absorb: int) -> Callable[[Expr, Expr], Expr | None]:
    def rule(a: Expr, b: Expr) -> Expr | None:
        if isinstance(b, Const):
            return Const(absorb) if bool(b.value) == bool(absorb) else a
        return a if a == b else None

    return rule


_RULES: Final[dict[str, Callable[[Expr, Expr], Expr | None]]] = {
    "+": _add, "-": _sub, "*": _mul, "//": _div, "%": _mod, "==": _eq, "!=": _ne, "and": _logic(0), "or": _logic(1),
    "min": lambda a, b: a if a.hi <= b.lo else b if b.hi <= a.lo else None,
    "max": lambda a, b: a if a.lo >= b.hi else b if b.lo >= a.hi else None,
    "<": lambda a, b: TRUE if a.hi < b.lo else FALSE if a.lo >= b.hi else None,
    "<=": lambda a, b: TRUE if a.hi <= b.lo else FALSE if a.lo > b.hi else None,
    "&": lambda a, b: FALSE if b == FALSE else None,
    **dict.fromkeys((">>", "<<", "|", "^"), lambda a, b: a if b == FALSE else None),
}  # fmt: skip


def walk(e: Expr) -> Iterator[Expr]:
    """The expression and everything below it, each before its operands."""
    yield e
    if isinstance(e, Bin):
        yield from walk(e.a)
        yield from walk(e.b)
    elif isinstance(e, Select):
        yield from walk(e.c)
        yield from walk(e.a)
        yield from walk(e.b)


def values(e: Expr) -> Iterator[Value]:
    """The named values that an expression reads."""
    return (x for x in walk(e) if isinstance(x, Value))


def substitute(e: Expr, by: Mapping[Value, Expr]) -> Expr:
    """The expression with named values replaced, simplified anew."""
    if isinstance(e, Value):
        return by.get(e, e)
    if isinstance(e, Bin):
        return binary(e.op, substitute(e.a, by), substitute(e.b, by))
    if isinstance(e, Select):
        return select(substitute(e.c, by), substitute(e.a, by), substitute(e.b, by))
    return e


def text(e: Expr) -> str:
    """The expression as ``.sgir`` text; :mod:`sparsegen.ir.parse` reads it back."""
    if isinstance(e, Const):
        return str(e.value)
    if isinstance(e, Value):
        return f"%{e.name}"
    if isinstance(e, Select):
        return f"select({text(e.c)}, {text(e.a)}, {text(e.b)})"
    assert isinstance(e, Bin)
    if e.op in ("min", "max"):
        return f"{e.op}({text(e.a)}, {text(e.b)})"
    a = f"({text(e.a)})" if _loose(e.a, e.op, left=True) else text(e.a)
    b = f"({text(e.b)})" if _loose(e.b, e.op, left=False) else text(e.b)
    return f"{a} {e.op} {b}"


def _loose(e: Expr, op: str, *, left: bool) -> bool:
    """Whether ``e`` needs brackets as an operand of ``op``."""
    if isinstance(e, Const):
        return e.value < 0 and not left
    if not isinstance(e, Bin) or e.op in ("min", "max"):
        return False
    inner, outer = PRECEDENCE[e.op], PRECEDENCE[op]
    return inner < outer or (inner == outer and not (left and op in ("+", "-", "*", "and", "or")))


def evaluate(e: Expr, env: Mapping[str, int]) -> int:
    """The number that an expression is, given a number for each name."""
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Value):
        return env[e.name]
    if isinstance(e, Select):
        return evaluate(e.a if evaluate(e.c, env) else e.b, env)
    assert isinstance(e, Bin)
    return _FOLD[e.op](evaluate(e.a, env), evaluate(e.b, env))
