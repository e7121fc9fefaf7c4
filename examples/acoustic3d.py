"""A shot in three dimensions: sound in two layers, of order 8 in space, and what receivers at the surface hear.

    python examples/acoustic3d.py                                    # 24 x 32 x 48 cells on the emulator
    python examples/acoustic3d.py --size 256 --steps 600 --picture shot.png      # on a GPU

p_tt = s^2 (p_xx + p_yy + p_zz) by leapfrog, each derivative by nine points: a star of 25 points.  On large fields a
block walks through the planes (family column).  A pulse starts below the surface; the layer under it is faster, so it
throws an echo back that the receivers record after the direct wave.  Outside p is 0.  Leapfrog conserves a discrete
energy exactly.
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

#: Weights of the second derivative from the cell outwards (B. Fornberg, Math. Comp. 51, 1988).
WEIGHTS = (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560)
SLOW, FAST = 0.02, 0.12  # (s dt / h)^2 in the upper and in the lower layer; leapfrog is stable up to 0.2
SAMPLES = 48  # of the record


def stretched(p: Any) -> Any:
    """The sum of the three second derivatives, from nine points on each axis."""
    total = 3 * WEIGHTS[0] * p[0, 0, 0]
    for k, weight in enumerate(WEIGHTS[1:], 1):
        far = ((k, 0, 0), (-k, 0, 0), (0, k, 0), (0, -k, 0), (0, 0, k), (0, 0, -k))
        total = total + weight * sum(p[at] for at in far)
    return total


@sg.stencil(dtype="f64", boundary=sg.dirichlet(0.0))
def acoustic(p: Annotated[sg.Field, sg.Field(levels=2)], c: sg.Coef) -> sg.Value:
    return 2 * p[0, 0, 0] - p.prev[0, 0, 0] + c[0, 0, 0] * stretched(p)


class Padded:
    """A field that is read at offsets as the formula reads it, with zeros outside."""

    def __init__(self, field: Any) -> None:
        self.shape, self.wide = field.shape, np.pad(field, len(WEIGHTS) - 1)

    def __getitem__(self, at: tuple[int, int, int]) -> Any:
        starts = [len(WEIGHTS) - 1 + offset for offset in at]
        return self.wide[tuple(slice(first, first + n) for first, n in zip(starts, self.shape, strict=True))]


def energy(new: Any, old: Any, c: Any) -> float:
    """Of motion and of tension; the product of two levels makes it exactly constant."""
    return float(((new - old) ** 2 / c).sum() - (new * stretched(Padded(old))).sum()) / 2


def main(argv: Sequence[str] | None = None, update: sg.Update = acoustic) -> int:
    """1 where energy came or went, or where no echo came back."""
    args = options(__doc__, size=24, steps=96).parse_args(argv)
    depth, shape = args.size, (args.size, args.size * 4 // 3, args.size * 2)
    z, y, x = np.mgrid[tuple(slice(0, n) for n in shape)]
    c = np.where(z < depth // 2, SLOW, FAST)
    far = (z - depth / 6) ** 2 + (y - shape[1] / 2) ** 2 + (x - shape[2] / 2) ** 2
    pulse = np.exp(-far / (depth / 10) ** 2)
    every = max(1, args.steps // SAMPLES)
    k = sg.compile(update, shape=shape, steps=every)
    size = "x".join(map(str, shape))
    print(f"{update}\n{size} cells, {args.steps} time steps, on {k.backend}: {k.schedule}\n")

    new, old, record = pulse, pulse.copy(), []
    first = energy(new, old, c)
    for _ in range(args.steps // every):
        new, old = k(p=(new, old), c=c)
        record.append(new[1, shape[1] // 2].copy())  # a line of receivers just below the surface
    shot = np.array(record)
    last = energy(new, old, c)
    loudest = float(np.abs(shot).max()) or 1.0
    print(f"what {shot.shape[1]} receivers heard, time runs down (blank: nothing; @: the loudest, {loudest:.3f})")
    print(f"{shades(np.abs(shot) ** 0.5, 0, loudest**0.5)}\n")
    same = conserved(first, last, args.steps)

    def paint(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        left.imshow(shot, cmap="gray", aspect="auto", vmin=-loudest / 3, vmax=loudest / 3)
        left.set(title="shot record", xlabel="receiver", ylabel=f"time, {every} steps a line")
        image = right.imshow(new[:, shape[1] // 2], cmap="RdBu_r", vmin=-loudest / 3, vmax=loudest / 3)
        right.axhline(depth // 2, color="black", linewidth=0.6)
        right.set(title=f"pressure after {args.steps} steps", xlabel="x", ylabel="depth")
        figure.colorbar(image, ax=[left, right], label="pressure")

    draw(args.picture, paint)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
