"""Integer expressions as ``.sgir`` text."""

from __future__ import annotations

from typing import Final

from .expr import Bin, Const, Expr, Select, Value


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


#: How tightly an operator binds, in ``.sgir`` text and in the C that is printed from it.
PRECEDENCE: Final = {
    "or": 0, "and": 1, "==": 2, "!=": 2, "<": 2, "<=": 2, "|": 3, "^": 4, "&": 5, ">>": 6, "<<": 6,
    "+": 7, "-": 7, "*": 8, "//": 8, "%": 8,
}  # fmt: skip


def _loose(e: Expr, op: str, *, left: bool) -> bool:
    """Whether ``e`` needs brackets as an operand of ``op``."""
    if isinstance(e, Const):
        return e.value < 0 and not left
    if not isinstance(e, Bin) or e.op in ("min", "max"):
        return False
    inner, outer = PRECEDENCE[e.op], PRECEDENCE[op]
    return inner < outer or (inner == outer and not (left and op in ("+", "-", "*", "and", "or")))
