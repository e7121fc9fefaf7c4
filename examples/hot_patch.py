"""A plate with a hole in it, hot at a part of one side: walls and boundaries of regions, which masks say.

    python examples/hot_patch.py                                   # 32 x 64 cells on the emulator
    python examples/hot_patch.py --size 1024 --steps 20000 --picture plate.png      # on a GPU

u_t = laplace(u).  Nothing flows through the plate's sides nor into the hole; a patch of the left side is held at 1.
One kernel has any hole and any patch: without a patch the heat in the plate stays what it is, to rounding, and with the
whole left side hot and no hole u is erfc(x / sqrt(4 t)).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import numpy as np
from _show import draw, options, shades

import sparsegen as sg

DT = 0.2  # in cells; the largest stable step is 1/4


@sg.stencil(dtype="f64", boundary=sg.neumann)
def plate(u: Annotated[sg.Field, sg.Field(spacing=(1.0, 1.0), dt=DT)], hole: sg.Mask, hot: sg.Mask) -> sg.Value:
    walled = u.walled(hole).walled(hot, sg.dirichlet(1.0))
    return sg.solve(sg.Eq(u.dt, walled.laplace), u.next)


def main(argv: Sequence[str] | None = None, update: sg.Update = plate) -> int:
    """1 where heat came or went, or where it spreads in another way."""
    args = options(__doc__, size=32, steps=200).parse_args(argv)
    rows, columns = args.size, 2 * args.size
    y, x = np.mgrid[0:rows, 0:columns]
    hole = (y - rows / 2) ** 2 + (x - columns / 4) ** 2 < (rows / 5) ** 2
    side, none = x == 0, np.zeros((rows, columns), bool)
    patch = side & (abs(y - rows / 2) < rows / 5)
    k = sg.compile(update, shape=(rows, columns), steps=args.steps)
    print(f"{update}\n{rows}x{columns} cells, {args.steps} time steps, on {k.backend}: {k.schedule}\n")

    start = np.where(hole, 0.0, np.random.default_rng(0).random((rows, columns)))
    closed = k(start, hole=hole, hot=none)
    change = abs(closed.sum() / start.sum() - 1)
    print(f"nothing hot: heat {start.sum():.9f} -> {closed.sum():.9f} (relative change {change:.0e})")

    even = k(side * 1.0, hole=none, hot=side)
    far = x[0] / math.sqrt(4 * DT * args.steps)
    exact = np.array([math.erfc(at) for at in far])
    off = float(np.abs(even - exact).max())
    print(f"a whole side hot, no hole: off by {off:.1e} from erfc(x / sqrt(4 t))\n")

    warm = k(patch * 1.0, hole=hole, hot=patch)
    print(f"a patch hot, after {args.steps} steps (@: 1)\n{shades(warm, 0, 1)}")

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        image = axes.imshow(np.ma.array(warm, mask=hole), cmap="inferno", vmin=0, vmax=1)
        axes.set(title=f"{args.steps} steps after a patch of the left side became hot", xlabel="x", ylabel="y")
        figure.colorbar(image, ax=axes, label="temperature")

    draw(args.picture, paint)
    if not change <= 1e-15 * args.steps + 1e-14:
        print("heat was not conserved", file=sys.stderr)
        return 1
    if not (off < 0.01 and warm[hole].max() == 0 and warm.max() == 1):
        print("heat does not spread as it should", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
