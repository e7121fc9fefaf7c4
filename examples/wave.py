"""Waves through a lens: the wave equation with two time levels and a speed that varies from place to place.

    python examples/wave.py                               # 80 x 80 cells on the emulator
    python examples/wave.py --size 2048 --steps 2300 --picture wave.png      # on a GPU

u_tt = s^2 (u_xx + u_yy) by leapfrog: the new level comes from the newest two.  A flat pulse runs to the right through a
disc in which waves are slow, which focuses it.  The walls to the left and right hold u at 0, the others mirror it.
Leapfrog conserves a discrete energy exactly, whatever the speeds, so the energy tells whether all levels, speeds and
walls are where they belong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import numpy as np
from _show import conserved, draw, options, shades

import sparsegen as sg

FAST, SLOW = 0.45, 0.15  # (s dt / h)^2 outside and inside the lens; leapfrog is stable up to 1/2


# u.prev is the time level before u; c is read in every cell and does not change in time.
@sg.stencil(dtype="f64", boundary={0: sg.neumann, 1: sg.dirichlet(0.0)})
def wave(u: Annotated[sg.Field, sg.Field(levels=2)], c: sg.Coef) -> sg.Value:
    spread = u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u[0, 0]
    return 2 * u[0, 0] - u.prev[0, 0] + c[0, 0] * spread


def energy(new: Any, old: Any, c: Any) -> float:
    """Of motion, and of tension between neighbours; the product of two levels makes it exactly constant."""
    down = np.diff(new, axis=0) * np.diff(old, axis=0)  # nothing is stretched across a mirror
    right = np.diff(np.pad(new, ((0, 0), (1, 1)))) * np.diff(np.pad(old, ((0, 0), (1, 1))))
    return float(((new - old) ** 2 / c).sum() + down.sum() + right.sum()) / 2


def main(argv: Sequence[str] | None = None, update: sg.Update = wave) -> int:
    """1 where energy came or went."""
    args = options(__doc__, size=80, steps=90).parse_args(argv)
    n = args.size
    y, x = (np.mgrid[0:n, 0:n] + 0.5) / n
    lens = np.hypot(y - 0.5, x - 0.5) < 0.22
    c = np.where(lens, SLOW, FAST)

    def pulse(at: float) -> Any:
        return np.exp(-(((x - at) / 0.05) ** 2))

    # Two levels, newest first: the pulse, and where it was a step ago.
    start = (pulse(0.15), pulse(0.15 - np.sqrt(FAST) / n))
    k = sg.compile(update, shape=(n, n), steps=args.steps)
    print(f"{update}\n{n}x{n} cells, {args.steps} time steps, on {k.backend}: {k.schedule}\n")
    new, old = k(u=start, c=c)

    for when, u in (("at the start", start[0]), (f"after {args.steps} steps", new)):
        print(f"{when}, highest {u.max():.2f} (blank: 0 and less; @: 0.9 and more)\n{shades(u, 0, 1)}\n")
    first, last = energy(*start, c), energy(new, old, c)
    same = conserved(first, last, args.steps)

    def paint(figure: Any) -> None:
        axes = figure.subplots(1, 2)
        for axis, u, title in zip(axes, (start[0], new), ("at the start", f"after {args.steps} steps"), strict=True):
            image = axis.imshow(u, cmap="RdBu_r", vmin=-1, vmax=1)
            axis.contour(lens, [0.5], colors="black", linewidths=0.6)
            axis.set(title=title, xlabel="x", ylabel="y")
        figure.colorbar(image, ax=axes, label="displacement")

    draw(args.picture, paint)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
