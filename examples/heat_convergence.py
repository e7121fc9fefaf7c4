"""Heat on the unit square against its analytic solution: the error falls with the square of the grid's spacing.

    python examples/heat_convergence.py                 # four grids of up to 63 x 63 nodes
    python examples/heat_convergence.py --size 512      # up to 511 x 511, for a GPU

u_t = u_xx + u_yy with u = 0 on the rim starts as sin(pi x) sin(pi y) and keeps that shape, times exp(-2 pi^2 t).

dirichlet(0) holds the cells *outside* at 0.  So the rim is where the first cells outside are, and n nodes inside are
1 / (n + 1) apart: node i is at (i + 1) / (n + 1).
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

RATIO = 0.2  # time step over spacing squared; the explicit scheme is stable up to 1/4


@sg.stencil(dtype="f64", boundary=sg.dirichlet(0.0))
def heat(u):
    return u[0, 0] + RATIO * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u[0, 0])


def error(stencil: sg.Stencil, intervals: int, steps: int) -> tuple[float, sg.Kernel]:
    """Largest difference from the analytic solution after so many steps, and the kernel that did them."""
    spacing = 1 / intervals
    shape = np.sin(np.pi * spacing * np.arange(1, intervals))
    start = np.outer(shape, shape)
    k = sg.compile(stencil, shape=start.shape, steps=steps)
    exact = start * np.exp(-2 * np.pi**2 * steps * RATIO * spacing**2)
    return float(np.abs(k(start) - exact).max()), k


def main(argv: Sequence[str] | None = None, stencil: sg.Stencil = heat) -> int:
    """1 where the observed order is not 2."""
    args = options(__doc__, size=64, steps=4).parse_args(argv)
    grids = [args.size // 8, args.size // 4, args.size // 2, args.size]
    print(f"{stencil}\n\n intervals  steps        error  order  error, logarithmic")
    errors: list[float] = []
    orders: list[float] = []
    for n in grids:
        # The same time for all: steps of the coarsest grid, four times as many each time that the spacing is halved.
        steps = round(args.steps * (n / grids[0]) ** 2)
        found, k = error(stencil, n, steps)
        if errors:
            orders.append(float(np.log(errors[-1] / found) / np.log(n / grids[len(errors) - 1])))
        errors.append(found)
        order = f"{orders[-1]:5.2f}" if orders else "    –"
        print(f"{n:>10} {steps:>6}     {found:.2e}  {order}  {'#' * round(4 * np.log2(found / 1e-7))}")
    print(f"\nlast on {k.backend}, {k.schedule}")

    def paint(figure: Any) -> None:
        axis = figure.add_subplot(xlabel="intervals", ylabel="largest error", title="Heat on the unit square")
        axis.loglog(grids, errors, "o-", label="measured")
        axis.loglog(grids, errors[-1] * (grids[-1] / np.array(grids)) ** 2, "--", label="second order")
        axis.set_xticks(grids, map(str, grids))
        axis.set_xticks([], minor=True)
        axis.legend()

    draw(args.picture, paint, 5)
    if not abs(orders[-1] - 2) <= 0.1:
        print(f"the order is {orders[-1]:.2f}, not 2")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
