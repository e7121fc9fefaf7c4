"""Integer expressions as C text: the smallest type that holds every value, and hardly a bracket that C does not need.

The IR's expressions are exact integers with ranges.  In C each operator works in the smallest of ``int``, ``unsigned``,
``long long`` and ``unsigned long long`` that holds its operands and its result, and a cast stands only where the usual
arithmetic conversions would not get there.  Left sides of ``//`` and ``%`` cannot be negative, so powers of two print
as shifts and masks and all else divides unsigned (which costs fewer instructions than signed).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from sparsegen.ir.errors import IRError
from sparsegen.ir.expr import Bin, Const, Expr, Select, Value, text
from sparsegen.ir.types import DType

INT: Final = "int"
UNSIGNED: Final = "unsigned"
LONG: Final = "long long"
ULONG: Final = "unsigned long long"
TYPES: Final = (INT, UNSIGNED, LONG, ULONG)  # by C's conversion rank
_RANGE: Final = {
    INT: (-(2**31), 2**31 - 1),
    UNSIGNED: (0, 2**32 - 1),
    LONG: (-(2**63), 2**63 - 1),
    ULONG: (0, 2**64 - 1),
}
_SUFFIX: Final = {INT: "", UNSIGNED: "u", LONG: "ll", ULONG: "ull"}

#: How tightly C binds: the ternary least, then || && | ^ & == < << + * and casts; names and calls most.
TERNARY, CAST, PRIMARY = 1, 12, 13
_PRECEDENCE: Final = {"or": 2, "and": 3, "|": 4, "^": 5, "&": 6, "==": 7, "!=": 7, "<": 8, "<=": 8, "<<": 9, ">>": 9,
                      "+": 10, "-": 10, "*": 11, "/": 11, "%": 11}  # fmt: skip
_BITWISE: Final = ("&", "|", "^", "<<", ">>")  # few know how these bind: their operands are always in brackets
_SPELL: Final = {"and": "&&", "or": "||"}

NameOf = Callable[[str], str]


@dataclass(frozen=True)
class CText:
    """C text, how tightly its outermost operator binds, and its C type."""

    text: str
    prec: int
    type: str

    def within(self, prec: int) -> str:
        """The text as an operand of something that binds at ``prec``."""
        return self.text if self.prec >= prec else f"({self.text})"

    def cast(self, want: str) -> CText:
        """The text converted to another type."""
        return self if self.type == want else CText(f"({want}){self.within(CAST)}", CAST, want)


def register_type(dtype: DType) -> str:
    """The type in which C computes with a value of an integer type (after promotion)."""
    if dtype.kind == "float":
        raise IRError(f"a value of type {dtype} is no integer expression")
    if dtype.bits == 64:
        return ULONG if dtype.kind == "uint" else LONG
    return UNSIGNED if dtype.c == "unsigned" else INT


def smallest(lo: int, hi: int) -> str:
    """The first C type that holds ``lo..hi``."""
    for t in TYPES:
        if _RANGE[t][0] <= lo and hi <= _RANGE[t][1]:
            return t
    raise IRError(f"an integer of range {lo}..{hi} fits no C type")


def literal(value: int, ctype: str) -> CText:
    """An integer literal of a C type."""
    if value in (-(2**31), -(2**63)):  # C has no negative literals: the digits alone would be too large
        return CText(f"({literal(value + 1, ctype).text} - 1)", PRIMARY, ctype)
    return CText(f"{value}{_SUFFIX[ctype]}", PRIMARY if value >= 0 else CAST, ctype)


def _mask(c: CText, value: Expr) -> CText:
    """A constant operand of a bit operator: in hexadecimal where that is easier to read."""
    if isinstance(value, Const) and value.value >= 256:
        return CText(f"0x{value.value:x}{_SUFFIX[c.type]}", PRIMARY, c.type)
    return c


def render(e: Expr, name_of: NameOf, want: str | None = None) -> CText:
    """The expression in C, converted to type ``want`` if one is given (it must hold the value, or wraps)."""
    if isinstance(e, Const):
        ctype = want if want is not None and _holds(want, e.value, e.value) else smallest(e.value, e.value)
        c = literal(e.value, ctype)
    elif isinstance(e, Value):
        c = CText(name_of(e.name), PRIMARY, register_type(e.dtype))
    elif isinstance(e, Select):
        a, b = _common(e.a, e.b, smallest(min(e.a.lo, e.b.lo), max(e.a.hi, e.b.hi)), name_of)
        cond = render(e.c, name_of)
        parts = (cond.within(TERNARY + 1), a.within(TERNARY + 1), b.within(TERNARY + 1))
        c = CText("{} ? {} : {}".format(*parts), TERNARY, max(a.type, b.type, key=TYPES.index))
    else:
        assert isinstance(e, Bin)
        c = _binary(e, name_of)
    return c if want is None else c.cast(want)


def join(op: str, a: CText, b: CText, ctype: str) -> CText:
    """``a op b`` with the brackets that C needs (C's spelling of operators, ``and`` and ``or`` excepted)."""
    p = _PRECEDENCE[op]
    left, right = (CAST, CAST) if op in _BITWISE else (p, p if op in _SPELL else p + 1)
    return CText(f"{a.within(left)} {_SPELL.get(op, op)} {b.within(right)}", p, ctype)


def _holds(ctype: str, lo: int, hi: int) -> bool:
    return _RANGE[ctype][0] <= lo and hi <= _RANGE[ctype][1]


def _common(x: Expr, y: Expr, want: str, name_of: NameOf) -> tuple[CText, CText]:
    """Both operands such that C's usual conversions compute in ``want``."""
    a, b = render(x, name_of), render(y, name_of)
    rank = TYPES.index(want)
    a = a.cast(want) if TYPES.index(a.type) > rank else a
    b = b.cast(want) if TYPES.index(b.type) > rank else b
    if max(TYPES.index(a.type), TYPES.index(b.type)) < rank:
        if isinstance(y, Const) and want in (UNSIGNED, ULONG):
            b = render(y, name_of, want)
        else:
            a = render(x, name_of, want)
    return a, b


def _binary(e: Bin, name_of: NameOf) -> CText:
    op, x, y = e.op, e.a, e.b
    if op in ("and", "or"):
        return join(op, render(x, name_of), render(y, name_of), INT)
    if op in ("<", "<=", "==", "!="):
        a, b = _common(x, y, smallest(min(x.lo, y.lo), max(x.hi, y.hi)), name_of)
        return join(op, a, b, INT)
    if op in ("<<", ">>"):
        if y.hi >= 64:
            raise IRError(f"{text(e)}: shifts by up to {y.hi} bits")
        want = smallest(min(x.lo, e.lo), max(x.hi, e.hi, 2**32 if y.hi >= 32 else 0))
        return join(op, render(x, name_of, want), render(y, name_of), want)
    if op in ("//", "%") and isinstance(y, Const) and y.value & (y.value - 1) == 0:
        a = render(x, name_of)
        if op == "//":
            return join(">>", a, literal(y.value.bit_length() - 1, INT), a.type)
        mask = y.value - 1
        want = max(a.type, smallest(mask, mask), key=TYPES.index)
        return join("&", a, literal(mask, INT if _holds(INT, mask, mask) else want), want)
    want = smallest(min(x.lo, y.lo, e.lo), max(x.hi, y.hi, e.hi))
    if op in ("min", "max"):
        a, b = render(x, name_of, want), render(y, name_of, want)
        return CText(f"{op}({a.text}, {b.text})", PRIMARY, want)
    if op in ("//", "%"):
        want = UNSIGNED if want == INT else ULONG if want == LONG else want
        a, b = _common(x, y, want, name_of)
        return join("/" if op == "//" else op, a, b, want)
    if op == "+" and isinstance(y, Const) and -(2**31) < y.value < 0:
        op, y = "-", Const(-y.value)
    a, b = _common(x, y, want, name_of)
    return join(op, a, _mask(b, y) if op in _BITWISE else b, want)


def float_literal(value: float, dtype: DType) -> str:
    """A literal of a floating type, exact: the shortest digits that read back as the same number."""
    if dtype.bits == 16:
        exact = float(np.asarray(value, dtype=dtype.numpy()))
        convert = "__float2half_rn" if dtype.name == "f16" else "__float2bfloat16_rn"
        return f"{convert}({_float32(exact)})"
    if dtype.bits == 32:
        return _float32(value)
    if not math.isfinite(value):
        return f"__longlong_as_double(0x{np.float64(value).view(np.uint64):016x}ll)"
    return repr(float(value))


def _float32(value: float) -> str:
    with np.errstate(over="ignore"):
        x = np.float32(value)
    if not np.isfinite(x):
        return f"__int_as_float(0x{x.view(np.uint32):08x})"
    digits = (
        np.format_float_positional(x, trim="0") if 1e-4 <= abs(x) < 1e9 or x == 0 else np.format_float_scientific(x)
    )
    return f"{digits if np.float32(float(digits)) == x else repr(float(x))}f"
