"""A hot spot in a closed box: diffusion in 3-D, where no heat is lost.

    python examples/diffusion3d.py                        # 32 x 32 x 32 cells on the emulator
    python examples/diffusion3d.py --size 512 --steps 5000 --picture box.png     # on a GPU

neumann mirrors the field about the faces of the box, so nothing flows through them: the mean temperature stays.
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


# u[dz, dy, dx]: one offset an axis, slowest first.  The weights of neighbours are D dt / h^2, at most 1/6.
@sg.stencil(dtype="f64", boundary=sg.neumann)
def diffusion(u):
    around = u[-1, 0, 0] + u[1, 0, 0] + u[0, -1, 0] + u[0, 1, 0] + u[0, 0, -1] + u[0, 0, 1]
    return 0.25 * u[0, 0, 0] + 0.125 * around


def hot_spot(n: int) -> Any:
    """20 degrees, and a ball of 100 near a corner, from which heat soon meets three walls."""
    z, y, x = (np.mgrid[0:n, 0:n, 0:n] + 0.5) / n
    return np.where((z - 0.2) ** 2 + (y - 0.3) ** 2 + (x - 0.2) ** 2 < 0.18**2, 100.0, 20.0)


def main(argv: Sequence[str] | None = None, stencil: sg.Stencil = diffusion) -> int:
    """1 where heat came or went."""
    args = options(__doc__, size=32, steps=40).parse_args(argv)
    n, steps = args.size, args.steps
    k = sg.compile(stencil, shape=(n, n, n), steps=steps)
    print(f"{stencil}\n{n}x{n}x{n} cells, {steps} time steps, on {k.backend}: {k.schedule}\n")
    u0 = hot_spot(n)
    u1 = k(u0)

    level = n // 5  # the plane through the middle of the spot
    for when, u in (("at the start", u0), (f"after {steps} steps", u1)):
        print(f"plane z = {level}, {when}: at most {u[level].max():.1f} degrees (@: 56 and more)")
        print(f"{shades(u[level], 20, 60)}\n")
    change = abs(u1.mean() / u0.mean() - 1)
    print(f"mean: {u0.mean():.6f} -> {u1.mean():.6f} degrees (relative change {change:.0e})")

    def paint(figure: Any) -> None:
        axes = figure.subplots(1, 4)
        for axis, at in zip(axes, (0, level, level + n // 8, level + n // 4), strict=True):
            image = axis.imshow(u1[at], cmap="inferno", vmin=20, vmax=u1.max())
            axis.set(title=f"z = {at}", xlabel="x", ylabel="y")
        figure.colorbar(image, ax=axes, label=f"degrees after {steps} steps")

    draw(args.picture, paint, 13)
    if not change <= 1e-12:
        print("heat was not conserved")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
