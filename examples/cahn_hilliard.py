"""An alloy that comes apart: two metals that no longer mix (J. W. Cahn, J. E. Hilliard, J. Chem. Phys. 28, 1958).

    python examples/cahn_hilliard.py                                     # 48 x 48 cells in NumPy
    python examples/cahn_hilliard.py --size 1024 --steps 200000 --picture alloy.png      # on a GPU

u_t = laplace(mu), mu = u^3 - u - K laplace(u): the derivative of a formula becomes one stencil of radius 2.  No metal
comes or goes, so the sum of u stays; and the free energy falls at all times, since what flows runs down mu.  Von
Neumann's analysis of the mixture says beforehand how wide the first stripes will be, and of the pure metals whether the
time step is small enough.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import numpy as np
from _show import draw, options, shades

import sparsegen as sg

H, DT, K = 1.0, 0.02, 1.0  # distance of cells, time step, and the square of a border's width
Grid = Annotated[sg.Field, sg.Field(spacing=(H, H), dt=DT)]


@sg.stencil(dtype="f64", boundary=sg.periodic)
def alloy(u: Grid) -> sg.Value:
    mu = u[0, 0] ** 3 - u[0, 0] - K * u.laplace
    return sg.solve(sg.Eq(u.dt, mu.laplace), u.next)


def near(mean: float) -> Any:
    """The same for a small change of a constant mixture: linear, so that its growth is known."""

    @sg.stencil(dtype="f64")
    def small(u: Grid) -> sg.Value:
        mu = (3 * mean**2 - 1) * u[0, 0] - K * u.laplace
        return sg.solve(sg.Eq(u.dt, mu.laplace), u.next)

    return small


def energy(u: Any) -> float:
    """Of the mixture, and of the borders between the metals."""
    steep = sum((np.roll(u, -1, axis) - u) ** 2 for axis in (0, 1)) / H**2
    return float(((u**2 - 1) ** 2 / 4 + K / 2 * steep).sum() * H**2)


def main(argv: Sequence[str] | None = None, update: sg.Update = alloy) -> int:
    """1 where metal came or went, or where the energy did not fall."""
    args = options(__doc__, size=48, steps=2400).parse_args(argv)
    n, every = args.size, max(1, args.steps // 12)
    pure, mixed = sg.growth(near(1.0)), sg.growth(near(0.0))
    print(f"the pure metals are {pure}\nthe mixture is {mixed}")
    print(f"so stripes begin {2 * np.pi / np.hypot(*mixed.wave):.1f} cells apart\n")
    start = 0.05 * np.random.default_rng(3).standard_normal((n, n))
    k = sg.compile(update, shape=(n, n), steps=every)
    if k.backend != "cuda":  # thousands of steps: the emulator would take minutes
        k = sg.compile(update, shape=(n, n), steps=every, backend="reference")
    print(f"{update}\n{n}x{n} cells, {args.steps} time steps, on {k.backend}: {k.schedule}\n")

    u, frames = start, [start]
    for _ in range(args.steps // every):
        u = k(u)
        frames.append(u)
    print(f"u after {args.steps} steps (blank: one metal; @: the other)\n{shades(u, -1, 1)}\n")
    energies = [energy(frame) for frame in frames]
    print("energy: " + " ".join(f"{value:.4g}" for value in energies))
    change = abs(float((u - start).sum())) / n**2
    print(f"mean of u: {start.mean():.9f} -> {u.mean():.9f} (change {change:.0e})")

    def paint(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        figure.colorbar(left.imshow(u, cmap="RdBu_r", vmin=-1, vmax=1), ax=left)
        left.set(title=f"u after {args.steps} steps", xlabel="x", ylabel="y")
        right.plot(np.arange(len(energies)) * every * DT, energies)
        right.set(title="free energy", xlabel="time")

    draw(args.picture, paint)
    if not change <= 1e-15 * args.steps:
        print("metal came or went")
        return 1
    if not all(later < before for before, later in pairwise(energies)):
        print("the energy did not fall")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
