"""Formulas as the user might have written them, for messages."""

from __future__ import annotations

from typing import Final, cast

from sparsegen.ir import formula

_INFIX: Final = {"or": ("|", 1), "and": ("&", 2), "lt": ("<", 3), "le": ("<=", 3), "eq": ("==", 3), "ne": ("!=", 3),
                 "add": ("+", 4), "sub": ("-", 4), "mul": ("*", 5), "div": ("/", 5)}  # fmt: skip
_DEPTH, _WIDTH = 12, 60


def text(graph: formula.Graph, place: int) -> str:
    """A node as the user might write it, for messages: at most 60 characters."""
    shown = _text(graph, place, 0, _DEPTH)
    return shown if len(shown) <= _WIDTH else f"{shown[: _WIDTH - 3]}..."


def _text(graph: formula.Graph, place: int, least: int, depth: int) -> str:
    node = graph.nodes[place]
    op = str(node[0])
    if op == "read":
        return read_text(*formula.read(node))
    if op == "scalar":
        return str(node[1])
    if op == "const":
        value = cast("float", node[1])
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if depth == 0:
        return "..."
    args = formula.operands(node)
    if op in _INFIX:
        sign, level = _INFIX[op]
        left, right = (_text(graph, a, level + i, depth - 1) for i, a in enumerate(args))
        joined = f"{left}{sign}{right}" if level == 5 else f"{left} {sign} {right}"
        return f"({joined})" if level < least else joined
    inner = [_text(graph, a, 6 if op in ("neg", "not") else 0, depth - 1) for a in args]
    return {"neg": "-", "not": "~"}[op] + inner[0] if op in ("neg", "not") else f"{op}({', '.join(inner)})"


def read_text(name: str, level: int, offset: formula.Offset) -> str:
    """A read as the user writes it."""
    return f"{level_text(name, level)}[{', '.join(map(str, offset))}]"


def level_text(name: str, level: int) -> str:
    """A time level of a field as the user writes it; level -1 is the one that an equation is solved for."""
    return name + (".next" if level < 0 else ".prev" * level)
