"""The Game of Life on the emulator: an update that is no sum, small enough to see every cell.

    python examples/life.py

A glider on a torus moves one cell down and one to the right every four generations, so after 4 n generations on n x n
cells it is back where it was.  One generation also runs under all of the emulator's checkers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import numpy as np
from _show import draw, options

import sparsegen as sg


# Cells are 0 or 1.  Conditions are joined by & and |, and sg.where chooses.
@sg.stencil(dtype="f32", boundary=sg.periodic)
def life(u):
    around = sum(u[dy, dx] for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0))
    return sg.where((around == 3) | ((around == 2) & (u[0, 0] == 1)), 1, 0)


def beside(fields: Sequence[Any]) -> str:
    """Fields next to each other, as text."""
    lines = zip(*fields, strict=True)
    return "\n".join("   ".join("".join(".#"[int(cell)] for cell in row) for row in rows) for rows in lines)


def main(argv: Sequence[str] | None = None, update: sg.Update = life) -> int:
    """1 where the glider is not where it should be, or the checkers find an error."""
    args = options(__doc__, size=12, steps=48).parse_args(argv)
    n = args.size
    k = sg.compile(update, shape=(n, n), steps=args.steps, backend="emulator")
    print(f"{update}\n{n}x{n} cells on a torus, on the {k.backend}: {k.schedule}\n")
    start = np.zeros((n, n), np.float32)
    start[:3, :3] = [[0, 1, 0], [0, 0, 1], [1, 1, 1]]
    generations = [start, *(k(start, steps=steps) for steps in (1, 2, 3, 4))]
    print(f"generations 0 to 4\n{beside(generations)}\n")

    ok = True
    for moves in sorted({1, args.steps // 4} - {0}):
        there = np.array_equal(k(start, steps=4 * moves), np.roll(start, (moves, moves), axis=(0, 1)))
        print(f"after {4 * moves} generations {moves} down and {moves} to the right: {there}")
        ok &= there
    report = k.check(start)
    print(f"checkers: {report}")

    def paint(figure: Any) -> None:
        for at, (axis, cells) in enumerate(zip(figure.subplots(1, 5), generations, strict=True)):
            axis.imshow(cells, cmap="Greys")
            axis.set(title=f"generation {at}", xticks=[], yticks=[])

    draw(args.picture, paint, 12, 3)
    return 0 if ok and not report.errors else 1


if __name__ == "__main__":
    sys.exit(main())
