"""Texts of programs with something changed: read and verified, or refused with a place."""

from __future__ import annotations

import re
from functools import cache

from sparsegen.ir import passes
from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_module
from sparsegen.ir.verify import verify
from tests.freeze.problems import frozen, programs
from tests.fuzz.finding import Draw, Finding, refused

#: Numbers that stand for others: signs, widths, what overflows.
NUMBERS = ("0", "-1", "1", "3", "7", "64", "2147483648", "-9223372036854775809", "99999999999999999999", "1e999", "0.5")


@cache
def texts() -> tuple[str, ...]:
    """A text of each level of a program of each family and number of axes."""
    seen: dict[tuple[str, str, int], str] = {}
    for case, _ in frozen():
        key = (case["kind"], case["schedule"].split()[0], len(case["shape"]))
        if key not in seen:
            program = next(iter(programs(case)))
            for level in ("op", "tile", "warp"):
                seen[(*key[:2], key[2] * 10 + len(level))] = print_module(getattr(program, level))
            seen[key] = print_module(program.tile)
    return tuple(dict.fromkeys(seen.values()))


def changed(text: str, draw: Draw) -> str:
    """The text with one piece changed: a number, a name, a list, a token, a line."""
    lines = text.split("\n")
    filled = [i for i, line in enumerate(lines) if line.strip()]
    if not filled:
        return text
    at = draw.choice(filled)
    tokens = re.findall(r"\s+|[@%]?[\w.]+|.", lines[at])
    i = draw.randrange(len(tokens))
    match draw.randrange(8):
        case 0:
            numbers = [j for j, t in enumerate(tokens) if re.fullmatch(r"-?\d+", t)]
            if numbers:
                tokens[draw.choice(numbers)] = draw.choice(NUMBERS)
        case 1:
            del tokens[i]
        case 2:
            tokens.insert(i, tokens[i])
        case 3:  # another rank
            lists = list(re.finditer(r"[(\[]([^()\[\]]*)[)\]]", lines[at]))
            if lists:
                found = draw.choice(lists)
                parts = found[1].split(",")
                parts = parts[:-1] if draw.random() < 0.5 else [*parts, draw.choice(("1", "0", parts[0]))]
                tokens = [lines[at][: found.start(1)], ",".join(parts), lines[at][found.end(1) :]]
        case 4:
            other = re.findall(r"[@%]?[\w.]+", draw.choice(lines)) or ["x"]
            tokens[i] = draw.choice(other)
        case 5:
            return "\n".join(lines[:at] + lines[at + 1 :])
        case 6:
            return "\n".join([*lines[:at], draw.choice(lines), *lines[at:]])
        case _:
            tokens[i] = draw.choice(('"', "{", "}", "\0", "é", "=", "@", "%", "x" * 300, "None", "f64", "[" * 40))
    lines[at] = "".join(tokens)
    return "\n".join(lines)


def programs_as_text(draw: Draw) -> None:
    """One to three changes; a module that is read is verified, lowered, and printed as it was read."""
    text = draw.choice(texts())
    for _ in range(draw.choice((1, 1, 2, 3))):
        text = changed(text, draw)
    module = refused(lambda: parse_module(text), text)
    if module is None:
        return
    refused(lambda: verify(module), text)
    if print_module(parse_module(print_module(module))) != print_module(module):
        raise Finding("another text after reading it again", text)
    refused(lambda: passes.Manager(passes.parse_pipeline("to-warp"), verify_each=True).run(module), text)
