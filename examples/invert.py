"""Back from what was measured: where smoke came from, and how fast waves are where, by gradients of adjoint kernels.

    python examples/invert.py                              # 40 x 40 cells, seconds without a GPU
    python examples/invert.py --size 512 --steps 300 --picture invert.png      # on a GPU

First, smoke drifts and spreads for a third of the steps, and is then measured.  Its adjoint takes what is still wrong
back in time, and the first guess, no smoke at all, is corrected by it, again and again (Landweber's iteration).

Second, waves of two shots run through a medium that hides a slow disc, and are measured at the end.  The speeds are
found with torch: autograd goes back through all time steps, and Adam changes the speed of every cell.

Both measure by how much the misfit, the sum of squares of what is still wrong, has fallen.  Without torch the first
part runs alone, and says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import numpy as np
from _show import draw, options, shades

import sparsegen as sg

#: Corrections of each part, and by what the misfit must have fallen in the end.
CORRECTIONS, FALLEN = 60, 100.0
FAST, SLOW = 0.4, 0.25  # (s dt / h)^2 outside and inside the disc; leapfrog is stable up to 1/2


# The wind comes from the left, where there is no smoke; all other walls mirror.
@sg.stencil(dtype="f64", boundary={0: sg.neumann, 1: (sg.dirichlet(0.0), sg.neumann)})
def smoke(u: sg.Field) -> sg.Value:
    return 0.55 * u[0, 0] + 0.3 * u[0, -1] + 0.05 * (u[0, 1] + u[-1, 0] + u[1, 0])


@sg.stencil(dtype="f64", boundary=sg.frozen)
def wave(u: Annotated[sg.Field, sg.Field(levels=2)], c: sg.Coef) -> sg.Value:
    spread = u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u[0, 0]
    return 2 * u[0, 0] - u.prev[0, 0] + c[0, 0] * spread


def compiled(what: Any, n: int, steps: int) -> sg.Kernel:
    """For the GPU where there is one, else in NumPy: hundreds of calls on the emulator would take minutes."""
    k = sg.compile(what, shape=(n, n), steps=steps)
    return k if k.backend == "cuda" else sg.compile(what, shape=(n, n), steps=steps, backend="reference")


def fell(what: str, first: float, last: float) -> bool:
    """Whether the misfit has fallen as it should; prints by how much."""
    print(f"misfit of {what}: {first:.3g} -> {last:.3g}, {first / last:.0f} times smaller")
    if not first >= FALLEN * last:
        print(f"{what} was not found: the misfit should be {FALLEN:.0f} times smaller")
        return False
    return True


def source(n: int, steps: int, back: Callable[[sg.Kernel], Any]) -> tuple[bool, Any, Any]:
    """Where smoke came from: whether it was found, what was measured, and what was found."""
    y, x = (np.mgrid[0:n, 0:n] + 0.5) / n
    truth = 1.0 * (np.hypot(y - 0.4, x - 0.3) < 0.12)
    k = compiled(smoke, n, steps)
    measured, adjoint = k(truth), back(k)
    guess, misfits = np.zeros((n, n)), list[float]()
    for _ in range(CORRECTIONS + 1):
        wrong = measured - k(guess)
        misfits.append(float((wrong**2).sum()))
        guess += adjoint(wrong)
    print(f"where smoke came from, {n}x{n} cells, {steps} time steps, on {k.backend}")
    print(f"measured\n{shades(measured, 0, 1)}\nfound\n{shades(guess, 0, 1)}")
    return fell("the smoke", misfits[0], misfits[-1]), measured, guess


def speeds(n: int, steps: int, torch: Any) -> tuple[bool, Any, Any]:
    """How fast waves are where: whether that was found, the true speeds and the ones found."""
    from sparsegen.torch import stencil_op

    y, x = (np.mgrid[0:n, 0:n] + 0.5) / n
    truth = np.where(np.hypot(y - 0.5, x - 0.55) < 0.2, SLOW, FAST)
    k = compiled(wave, n, steps)
    op, device = stencil_op(k), "cuda" if k.backend == "cuda" else "cpu"

    def tensor(a: Any) -> Any:
        return torch.from_numpy(np.ascontiguousarray(a)).to(device)

    shots = [tensor(np.exp(-(((at - 0.3) / 0.08) ** 2))) for at in (x, y)]  # at rest, from the left and from the top
    with torch.no_grad():
        measured = [op((shot, shot), tensor(truth))[0] for shot in shots]
    c = torch.full((n, n), FAST, dtype=torch.float64, device=device, requires_grad=True)
    optimizer, misfits = torch.optim.Adam([c], lr=0.01), list[float]()
    for _ in range(CORRECTIONS + 1):
        optimizer.zero_grad()
        misfit = sum((op((shot, shot), c)[0] - u).square().sum() for shot, u in zip(shots, measured, strict=True))
        misfit.backward()
        misfits.append(float(misfit.detach()))
        optimizer.step()
        with torch.no_grad():
            c.clamp_(0.05, 0.49)
    found = c.detach().cpu().numpy()
    print(f"\nhow fast waves are, {n}x{n} cells, {steps} time steps, on {k.backend}")
    print(f"found (darker: slower)\n{shades(FAST - found, 0, FAST - SLOW)}")
    return fell("the speeds", misfits[0], misfits[-1]), truth, found


def main(argv: Sequence[str] | None = None, back: Callable[[sg.Kernel], Any] = sg.Kernel.adjoint) -> int:
    """1 where a misfit did not fall as it should."""
    args = options(__doc__, size=40, steps=30).parse_args(argv)
    good, *pictures = source(args.size, max(1, args.steps // 3), back)
    titles = ["smoke as measured", "where it came from"]
    try:
        import torch
    except ImportError:
        print("\nthe speeds of waves need torch (pip install 'sparsegen[torch]')")
    else:
        found, *more = speeds(args.size, args.steps, torch)
        good, pictures, titles = good and found, [*pictures, *more], [*titles, "true speeds", "speeds found"]

    def paint(figure: Any) -> None:
        for axis, u, title in zip(figure.subplots(1, len(pictures)), pictures, titles, strict=True):
            axis.imshow(u, cmap="viridis")
            axis.set(title=title, xlabel="x", ylabel="y")

    draw(args.picture, paint, width=3 * len(pictures), height=3.4)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
