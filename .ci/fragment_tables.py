"""Writes docs/fragments.md from the tables of ir/fragments.py; ``--check`` only says whether the file is current."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sparsegen.ir.fragments import SHAPES, Fragment, MmaShape, signed  # noqa: E402

TARGET = ROOT / "docs" / "fragments.md"
HEAD = """\
# Fragments: which lane holds which element

Made from `ir/fragments.py` by `.ci/fragment_tables.py`. The emulator runs these tables, and
`tests/gpu/test_fragments_gpu.py` checks each against the hardware.

With `g = lane // 4` and `t = lane % 4`, every element of a lane stands in a row and a column that are affine in `g` and
`t`. D lies as C does. In the pictures an entry `12.a3` says: lane 12, element 3 of A. Elements of 16 bits share a
register of 32, two at a time: elements 0 and 1 are register 0, the first in the low half. Of 8 bits there are four to a
register, of 4 bits eight, the first in the lowest bits: those are listed and drawn a register at a time, `i` counts
within it, and a picture's entry names the register's first element. tf32 lies in f32 registers; the low 13 bits are
ignored. Sums of integers wrap at 32 bits; unsigned elements of A, of B or of both lie as signed ones do.
"""


def affine(place: Callable[[int, int], tuple[int, int]], axis: int) -> str:
    """A formula in g and t, found from its values at three points (and right at all others)."""
    at = place(0, 0)[axis]
    g, t = place(1, 0)[axis] - at, place(0, 1)[axis] - at
    assert all(place(i, j)[axis] == g * i + t * j + at for i in range(8) for j in range(4))
    terms = [name if k == 1 else f"{k}{name}" for k, name in ((g, "g"), (t, "t")) if k]
    return " + ".join([*terms, *([str(at)] if at or not terms else [])])


def formulas(name: str, f: Fragment) -> list[str]:
    """A table of the elements: register, row, column."""
    lines = [f"| {name} | register | row | column |", "|---|---|---|---|"]
    if f.packed > 2:
        down, across = (" + i" if line == along(f) else "" for line in (0, 1))
        for e in range(0, len(f.elements), f.packed):
            row, col = (affine(f.elements[e], axis) for axis in (0, 1))
            lines.append(f"| {name}{e} … {name}{e + f.packed - 1} | {e // f.packed} | {row}{down} | {col}{across} |")
        return lines
    for e, place in enumerate(f.elements):
        half = "" if f.packed == 1 else (", low", ", high")[e % f.packed]
        lines.append(f"| {name}{e} | {e // f.packed}{half} | {affine(place, 0)} | {affine(place, 1)} |")
    return lines


def along(f: Fragment) -> int:
    """The axis on which the elements of one register lie side by side."""
    first, second = f.elements[0](0, 0), f.elements[1](0, 0)
    return 0 if first[0] != second[0] else 1


def picture(name: str, f: Fragment) -> list[str]:
    """The matrix, with the lane and element that hold each entry; every entry is held exactly once."""
    rows, cols = f.table()
    cells = [["" for _ in range(f.cols)] for _ in range(f.rows)]
    for e in range(len(f.elements)):
        for lane in range(32):
            i, j = int(rows[e, lane]), int(cols[e, lane])
            assert not cells[i][j], (name, i, j)
            cells[i][j] = f"{lane}.{name}{e}"
    assert all(all(row) for row in cells)
    width = max(len(c) for row in cells for c in row)
    step = f.packed if f.packed > 2 else 1
    down, across = (step, 1) if step > 1 and along(f) == 0 else (1, step)
    head = " ".join(["   ", *(f"{j:>{width}}" for j in range(0, f.cols, across))])
    drawn = ((i, cells[i][::across]) for i in range(0, f.rows, down))
    body = (" ".join([f"{i:>3}", *(f"{c:>{width}}" for c in row)]) for i, row in drawn)
    return ["```text", head, *body, "```"]


def section(name: str, s: MmaShape) -> list[str]:
    """One shape: its instruction, its formulas, its pictures."""
    matrices = f"A {s.m}×{s.k} {s.a.dtype}, B {s.k}×{s.n} {s.b.dtype}, C and D {s.m}×{s.n} {s.c.dtype}"
    held = f"a lane holds {s.a.regs}, {s.b.regs} and {s.c.regs} registers"
    since = f"from sm_{s.cc} on" + (f", before sm_{s.end}" if s.end else "")
    lines = [f"## {name}", "", f"`{s.ptx}`, {since}: {matrices}; {held}.", ""]
    if others := [f"`{other}`" for other in SHAPES if signed(other) == name != other]:
        lines += [f"With other signs: {', '.join(others)}.", ""]
    for letter, f in (("a", s.a), ("b", s.b), ("c", s.c)):
        lines += [*formulas(letter, f), "", *picture(letter, f), ""]
    return lines


def text() -> str:
    """The whole file."""
    drawn = (line for name, s in SHAPES.items() if signed(name) == name for line in section(name, s))
    return "\n".join([HEAD, *drawn]).rstrip() + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        current = TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text()
        print(f"docs/fragments.md is {'current' if current else 'old: run python .ci/fragment_tables.py'}")
        return 0 if current else 1
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
