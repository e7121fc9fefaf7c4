"""What the examples share: options, a field as text, a picture where matplotlib is installed, a kernel's time."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SHADES = " .:-=+*#%@"
COLUMNS = 48


def options(doc: str, **defaults: int) -> argparse.ArgumentParser:
    """``--picture`` and a whole number for each of ``defaults``; ``doc`` is the example's, its first line the title."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default: {value}")
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="draw it there (needs matplotlib)")
    return parser


def shades(field: Any, low: float, high: float) -> str:
    """A plane of numbers as text, darker for higher; a character is about twice as high as wide."""
    rows, columns = field.shape
    x = np.arange(min(COLUMNS, 2 * columns)) * columns // min(COLUMNS, 2 * columns)
    height = max(1, round(rows * len(x) / columns / 2))
    seen = field[np.arange(height) * rows // height][:, x]
    level = np.clip((seen - low) / (high - low) * len(SHADES), 0, len(SHADES) - 1).astype(int)
    return "\n".join("  |" + "".join(SHADES[at] for at in row) + "|" for row in level)


def conserved(first: float, last: float, steps: int) -> bool:
    """Whether the energy is the same after so many steps but for their roundings; prints both."""
    change = abs(last / first - 1)
    print(f"energy: {first:.9f} -> {last:.9f} (relative change {change:.0e})")
    if not change <= 1e-12 * steps:
        print("energy was not conserved")
        return False
    return True


def draw(file: Path | None, paint: Callable[[Any], None], width: float = 9, height: float = 4) -> None:
    """Let ``paint`` draw on a new figure (inches) and save it; without a file or without matplotlib there is none."""
    if file is None:
        return
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print(f"no picture: {file} needs matplotlib (pip install 'sparsegen[plot]')")
        return
    figure = Figure(figsize=(width, height), layout="constrained")
    paint(figure)
    figure.savefig(file, dpi=120)
    print(f"wrote {file.resolve()}")


def device_seconds(k: Any, calls: int = 30) -> float | None:
    """Seconds of a call of a product on the GPU; None for a kernel that does not run on one.

    With torch one of many calls of a CUDA graph, since small kernels take less time than the host takes to launch them.
    """
    if k.backend != "cuda":
        return None
    try:
        import torch
    except ImportError:
        return float(k.bench().median)
    given = {name: torch.from_numpy(a).cuda() for name, a in k.random().items()}
    out, graph, times = k(**given), torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for _ in range(calls):
            k(**given, out=out)
    for _ in range(9):
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3 / calls)
    return float(np.median(times))
