"""``asm`` statements of printed CUDA as calls of the functions of ``cpu/ptx.h``: the instruction's name, its operands.

The text between the quotes decides, not the helper around it: operands in the order in which the instruction has them,
``%1`` for the second expression that the statement binds.  An instruction that ``ptx.h`` does not define, or operands
that it does not take, make the C++ compiler refuse the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_STATEMENT: Final = re.compile(r'asm(?: volatile)?\("((?:[^"\\]|\\.)*)"\s*(.*?)\);$', re.M | re.S)
#: C++ types of registers that a template declares, by their bits.
_WORDS: Final = {"32": "unsigned", "64": "unsigned long long", "128": "unsigned __int128"}
_OPERAND: Final = re.compile(r'\s*"([=+]?)([a-z]+)"\s*\(')


class AssemblyError(Exception):
    """Assembly that the kit cannot read."""


def without_assembly(source: str) -> str:
    """The source with a call in place of each ``asm`` statement; AssemblyError for one that cannot be read."""
    return _STATEMENT.sub(lambda found: " ".join(_calls(found[1], found[2])), source)


def _calls(text: str, bindings: str) -> Iterator[str]:
    """C++ for a template of instructions, of which a pair of braces may enclose several with registers of their own."""
    bound, outputs = _bound(bindings)
    lines = text.replace(r"\n", "\n").replace(r"\t", " ").strip()
    scope = lines.startswith("{\n")
    if scope:
        lines = lines[1:].rstrip("}")
        yield "{"
    for line in filter(None, (line.strip() for line in lines.split(";"))):
        if declared := re.fullmatch(r"\.reg \.pred (\w+)", line):
            yield f"bool {declared[1]} = false;"
            continue
        if declared := re.fullmatch(r"\.reg \.b(32|64|128) (\w+(?:, \w+)*)", line):
            yield f"{_WORDS[declared[1]]} {', '.join(f'{name} = 0' for name in declared[2].split(', '))};"
            continue
        if predicated := re.match(r"@(\w+) ", line):
            yield f"if ({predicated[1]})"
            line = line[predicated.end() :]
        name, _, rest = line.partition(" ")
        operands = [_operand(o, bound, outputs, first=i == 0) for i, o in enumerate(_split(rest))]
        yield f"ptx::{re.sub('[.:]', '_', name)}({', '.join(operands)});"
    if scope:
        yield "}"


def _bound(bindings: str) -> tuple[list[str], int]:
    """The expressions that a statement binds, the outputs first, and how many are outputs."""
    sections = _split(bindings, ":")[1:] if bindings.strip() else []
    expressions: list[str] = []
    outputs = 0
    for kind, section in enumerate(sections[:2]):
        for item in _split(section):
            found = _OPERAND.match(item)
            if not found or not item.rstrip().endswith(")") or bool(found[1]) != (kind == 0):
                raise AssemblyError(f"{item!r} is no {('output', 'input')[kind]}")
            expressions.append(item.rstrip()[found.end() : -1])
            outputs += kind == 0
    return expressions, outputs


def _operand(text: str, bound: list[str], outputs: int, first: bool = False) -> str:
    """One operand: a bound expression, an address, a group of registers, a number or a register of the template.

    A group is filled that is of outputs alone, or the ``first`` operand and of registers of the template.
    """
    text = text.strip()
    if text.startswith("{"):
        inside = _split(text[1:-1])
        filled = all(o.strip() in {f"%{i}" for i in range(outputs)} for o in inside) or (first and "%" not in text)
        return f"cpu::{'out' if filled else 'in'}({', '.join(_operand(o, bound, outputs) for o in inside)})"
    if text.startswith("["):  # of a tensor map two operands: it, and the coordinates
        return ", ".join(_operand(o, bound, outputs) for o in _split(text[1:-1]))
    if special := re.fullmatch(r"%%(\w+)", text):
        return f"ptx::special_{special[1]}()"
    if number := re.fullmatch(r"%(\d+)", text):
        if int(number[1]) >= len(bound):
            raise AssemblyError(f"%{number[1]} of {len(bound)} operands")
        return bound[int(number[1])]
    return "ptx::_" if text == "_" else text.replace("|", ", ")  # a result, and the predicate beside it


def _split(text: str, by: str = ",") -> list[str]:
    """The parts of a list, whose separators in brackets or quotes do not count; nothing for an empty list."""
    parts, depth, quoted = [""], 0, False
    for c in text:
        quoted ^= c == '"'
        depth += 0 if quoted else (c in "([{") - (c in ")]}")
        if c == by and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += c
    return parts if text.strip() else []
