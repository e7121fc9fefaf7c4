"""Spots that divide: two substances that react and spread (J. E. Pearson, Science 261, 1993).

    python examples/gray_scott.py                                    # 64 x 64 cells on the emulator
    python examples/gray_scott.py --size 1024 --steps 12000 --picture spots.png      # on a GPU

u is fed and eaten by v, v decays: a formula of two fields, which is not linear.  Several time steps are made a pass
(family stream), because each alone would have to move both fields through the memory.  What is fed and what decays is
all that changes the sum of u and v, so the balance of a step tells whether every cell was worked out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import numpy as np
from _show import draw, options, shades

import sparsegen as sg

FEED, DECAY = 0.03, 0.062


def spread(w: sg.Field) -> sg.Value:
    """Five points of the second derivative."""
    return w[-1, 0] + w[1, 0] + w[0, -1] + w[0, 1] - 4 * w[0, 0]


@sg.stencil(dtype="f64", boundary=sg.periodic)
def gray_scott(u: sg.Field, v: sg.Field) -> tuple[sg.Value, sg.Value]:
    eaten = u[0, 0] * v[0, 0] ** 2
    return (
        u[0, 0] + 0.16 * spread(u) - eaten + FEED * (1 - u[0, 0]),
        v[0, 0] + 0.08 * spread(v) + eaten - (FEED + DECAY) * v[0, 0],
    )


def start(n: int) -> tuple[Any, Any]:
    """u and v on n x n cells: u everywhere but in a few squares, which have v."""
    rng = np.random.default_rng(5)
    u, v = np.ones((n, n)), np.zeros((n, n))
    for _ in range(max(3, (n // 40) ** 2)):  # squares of v somewhere
        y, x = rng.integers(0, n - 8, 2)
        u[y : y + 8, x : x + 8], v[y : y + 8, x : x + 8] = 0.5, 0.25
    return u + 0.02 * rng.random((n, n)), v


def main(argv: Sequence[str] | None = None, update: sg.Update = gray_scott) -> int:
    """1 where the balance of the last step does not hold."""
    args = options(__doc__, size=64, steps=400).parse_args(argv)
    n = args.size
    u, v = start(n)
    k = sg.compile(update, shape=(n, n), steps=args.steps - 1)
    print(f"{update}\n{n}x{n} cells, {args.steps} time steps, on {k.backend}: {k.schedule}\n")
    u, v = k(u, v)
    last_u, last_v = k(u, v, steps=1)

    print(f"v after {args.steps} steps (blank: none; @: 0.35 and more)\n{shades(last_v, 0, 0.35)}\n")
    fed, decayed = FEED * float((1 - u).sum()), (FEED + DECAY) * float(v.sum())
    change = float((last_u + last_v).sum() - (u + v).sum())
    off = abs(change - (fed - decayed)) / (fed + decayed)
    print(f"the last step fed {fed:.6f} and lost {decayed:.6f}; u + v changed by {change:.6f} (off by {off:.0e})")

    def paint(figure: Any) -> None:
        axes = figure.subplots(1, 2)
        for axis, field, title in zip(axes, (last_u, last_v), ("u", "v"), strict=True):
            figure.colorbar(axis.imshow(field, cmap="viridis"), ax=axis)
            axis.set(title=f"{title} after {args.steps} steps", xlabel="x", ylabel="y")

    draw(args.picture, paint)
    if not off <= 1e-10:
        print("the balance of the last step does not hold")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
