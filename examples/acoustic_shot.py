"""A shot over a layered ground: a source, a spread of receivers, and edges that let the waves out.

    python examples/acoustic_shot.py                                      # 96 x 160 cells on the emulator
    python examples/acoustic_shot.py --size 1024 --steps 3000 --picture shot.png    # on a GPU

p_tt + d p_t = s^2 laplace(p) + source by leapfrog, of order 8 in space, d a sponge.  Source and receivers lie between
cells; every step adds the one and records the others.  Two checks: the direct wave comes when distance over speed says,
and a shot from a receiver's place, heard at the source's, is the same record (reciprocity, which this scheme has
exactly).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import numpy as np
from _show import draw, options, shades

import sparsegen as sg

SLOW, FAST = 0.3, 0.5  # s dt / h in the upper and in the lower layer
PERIOD = 24  # time steps of the wavelet's main period
SHOWN = 48  # of the record, as text


@sg.stencil(dtype="f64", boundary=sg.dirichlet(0.0))
def acoustic(p: Annotated[sg.Field, sg.Field(levels=2, spacing=1.0)], c: sg.Coef, d: sg.Coef) -> sg.Value:
    """Time in steps and lengths in cells: c is (s dt / h)^2, d the damping a step."""
    half = d[0, 0] / 2
    return (2 * p[0, 0] - (1 - half) * p.prev[0, 0] + c[0, 0] * p.laplace(order=8)) / (1 + half)


def ricker(steps: int) -> Any:
    """The second derivative of a Gaussian, its middle after a period and a half (N. Ricker, Geophysics 18, 1953)."""
    t = np.pi * (np.arange(steps) / PERIOD - 1.5)
    return (1 - 2 * t**2) * np.exp(-(t**2))


def main(argv: Sequence[str] | None = None, update: sg.Update = acoustic) -> int:
    """1 where the wave comes at another time, or where source and receiver cannot change places."""
    args = options(__doc__, size=96, steps=320).parse_args(argv)
    shape = depth, width = args.size, args.size * 5 // 3
    layer = depth * 5 // 8
    c = np.where(np.arange(depth) < layer, SLOW, FAST)[:, None] ** 2 * np.ones(shape)
    d = sg.sponge(shape, depth // 6, FAST)
    shot = np.array([[depth * 0.3 + 0.25, width * 0.4 + 0.5]])
    spread = np.stack([np.full(41, depth * 0.3 + 0.25), np.linspace(width * 0.25, width * 0.75, 41)], axis=1)
    survey = update.with_sites(shot=sg.Source(shot, ricker(args.steps)), heard=sg.Receiver(spread))
    k = sg.compile(survey, shape, args.steps)
    print(f"{survey}\n{depth}x{width} cells, {args.steps} time steps, on {k.backend}: {k.schedule}\n")

    still = np.zeros(shape)
    _, heard = k((still, still), c, d)
    loudest = float(np.abs(heard).max()) or 1.0
    print(f"what {len(spread)} receivers heard, time runs down (blank: nothing; @: the loudest, {loudest:.3f})")
    print(f"{shades(np.abs(heard[:: max(1, args.steps // SHOWN)]) ** 0.5, 0, loudest**0.5)}\n")

    near, far = 10, 30  # the wave goes from one to the other, both on one side of the shot
    apart = spread[far, 1] - spread[near, 1] - 2 * (shot[0, 1] - spread[near, 1])
    times = [int(np.abs(heard[: arrives(shot, spread[i]), i]).argmax()) for i in (near, far)]
    wanted = apart / SLOW
    print(f"between receivers {near} and {far} the wave takes {times[1] - times[0]} steps; speed says {wanted:.1f}")
    if abs(times[1] - times[0] - wanted) > 0.02 * wanted + 2:
        print("the wave comes at another time")
        return 1

    back = update.with_sites(shot=sg.Source(spread[[far]], ricker(args.steps)), heard=sg.Receiver(shot))
    _, there = sg.compile(back, shape, args.steps)((still, still), c, d)
    off = float(np.abs(there[:, 0] - heard[:, far]).max() / loudest)
    print(f"shot and receiver {far} change places: the record differs by {off:.0e} of the loudest")
    if not off <= 1e-9:
        print("the way back is another one")
        return 1

    def paint(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        left.imshow(c, cmap="terrain")
        left.plot(spread[:, 1], spread[:, 0], "v", shot[:, 1], shot[:, 0], "r*")
        left.set(title="speeds, shot and receivers")
        right.imshow(heard, cmap="gray", aspect="auto", vmin=-loudest / 5, vmax=loudest / 5)
        right.set(title="shot record", xlabel="receiver", ylabel="time step")

    draw(args.picture, paint)
    return 0


def arrives(shot: Any, receiver: Any) -> int:
    """A time step after the direct wave, and before what comes from below."""
    return int(np.hypot(*(receiver - shot[0])) / SLOW + 2.5 * PERIOD)


if __name__ == "__main__":
    sys.exit(main())
