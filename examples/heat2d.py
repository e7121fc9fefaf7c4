"""Heat on a plate: from a formula in Python to the fastest program for this machine.

A square plate with two hot spots, its rim held at 50 degrees.  Each time step replaces every cell by a weighted mean
of itself and its four neighbours: the explicit scheme for the heat equation with D dt / dx^2 = 0.125.

On a machine with a CUDA GPU (and the extra `cuda`) the program runs there; without one it runs on the emulator, lane by
lane, with the same numbers.  Run it with:  python examples/heat2d.py
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import numpy as np

import sparsegen as sg


# 1. What: the formula.  u[dy, dx] is the cell dy rows down and dx columns right; cells outside the plate hold 50.
@sg.stencil(dtype="f64", boundary=sg.dirichlet(50.0))
def heat2d(u):
    return 0.5 * u[0, 0] + 0.125 * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1])


def hot_spots(n: int) -> np.ndarray:
    """The plate at the start, in degrees."""
    y, x = np.mgrid[0:n, 0:n] / n
    return 100.0 * (np.hypot(y - 0.35, x - 0.3) < 0.12) + 60.0 * (np.hypot(y - 0.65, x - 0.7) < 0.18)


def main() -> None:
    # 2. Where: the GPU if there is one, else the emulator, on a plate that it can do in seconds.
    gpu = sg.compile(heat2d, shape=(64, 64)).backend == "cuda"
    n, steps = (4096, 2000) if gpu else (256, 90)

    # 3. How: the cost model ranks every legal schedule and takes the cheapest.
    k = sg.compile(heat2d, shape=(n, n), steps=steps)
    print(f"{heat2d}\n{n}x{n} cells, {steps} time steps, on {k.backend} (code for {k.device.name})")
    print(f"\nschedule: {k.schedule}\n")

    print("cost model: microseconds a pass, by what takes the time (these overlap)")
    reasons = k.cost.reasons()
    for name, seconds in sorted(k.cost.terms.items(), key=lambda item: -item[1]):
        print(f"  {name:<8} {seconds * 1e6:9.2f}  {'<- binds ' if name == k.cost.binds else ''}{reasons[name]}")
    print(f"  predicted: {k.cost.time * 1e6:.2f} a pass of {k.cost.steps_per_launch} steps = {k.cost.rate:.1f} GS/s")

    print("\nCUDA source, where the sum begins (k.source() has all of it)")
    lines = k.source().splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("heat2d("))
    inner = next(i for i in range(head, len(lines)) if "fma(" in lines[i] or "mma" in lines[i])
    print("\n".join(f"  | {line}" for line in lines[inner - 6 : inner + 6]))

    # 4. Run it, and compare with plain NumPy.
    u0 = hot_spots(n)
    start = time.perf_counter()
    u1 = k(u0)
    print(f"\nran in {time.perf_counter() - start:.2f} s ({'copies and nvcc included' if gpu else 'on the emulator'})")
    plain = sg.compile(heat2d, shape=(n, n), steps=9, backend="reference")(u0)
    print(f"after 9 steps, largest difference from plain NumPy: {np.abs(k(u0, steps=9) - plain).max():.1e} degrees")
    print(f"mean temperature: {u0.mean():.4f} -> {u1.mean():.4f} degrees (the rim heats it)")
    if gpu:
        print(k.bench(u0, repeats=5))

    # 5. Look at it.
    picture = Path("heat2d.png")
    try:
        import matplotlib
    except ImportError:
        print(f"no picture: {picture} needs matplotlib (pip install 'sparsegen[plot]'; make demo does it)")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for axis, field, title in zip(axes, (u0, u1), ("at the start", f"after {steps} steps"), strict=True):
        image = axis.imshow(field, cmap="inferno", vmin=0, vmax=100)
        axis.set(title=title, xlabel="column", ylabel="row")
    figure.colorbar(image, ax=axes, label="degrees")
    figure.savefig(picture, dpi=120)
    print(f"wrote {picture.resolve()}")


if __name__ == "__main__":
    main()
