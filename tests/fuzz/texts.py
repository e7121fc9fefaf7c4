"""Programs with something in their text changed, or put through any passes: read and lowered, or refused."""

from __future__ import annotations

import dataclasses
import re
from functools import cache

from sparsegen.ir import passes
from sparsegen.ir.errors import SparsegenError
from sparsegen.ir.fragments import SHAPES
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


#: What options of passes are set to: numbers, and words of one pass or another.
COUNTS, WORDS = (0, -1, 1, 2, 3, 4, 5, 7, 8, 16, 32, 64), ("none", "true", "x", '""', "fma", "fused", "all", *SHAPES)


def random_pass(draw: Draw) -> str:
    """A pass of any name, some of its options set to something."""
    name, options = draw.choice(passes.pass_names()), list[str]()
    for option in dataclasses.fields(passes.PASSES[name]):
        if draw.random() < 0.4:
            options.append(f"{option.name}={draw.choice(COUNTS if option.type == 'int' else WORDS)}")
    return name + (f"{{{','.join(options)}}}" if options else "")


def passes_on_programs(draw: Draw) -> None:
    """Passes of any family and level on a program of any other: a program that verifies, or refused with a remedy."""
    text, line = draw.choice(texts()), ",".join(random_pass(draw) for _ in range(draw.choice((1, 1, 2, 3))))

    def attempt() -> None:
        try:
            passes.Manager(passes.parse_pipeline(line), verify_each=True).run(parse_module(text))
        except SparsegenError as error:
            if error.__cause__ and not isinstance(error.__cause__, SparsegenError):
                raise error.__cause__ from error  # the manager's word for a pass that breaks
            if not error.hint:
                raise Finding("no remedy", str(error)) from error
            raise

    refused(attempt, f"{line}\n{text}")
