"""The papers' comparison of all shapes, remade from our own measurements: GS/s of the eight stencils in f64.

    python examples/shapes.py --picture shapes.png
    python examples/shapes.py --from mine.json

Ours and the floors (kernels written by hand, measured in the same call) come from docs/bench/stencil.json, which
``sparsegen bench`` writes on a GPU.  The peers are other authors' programs, measured once, on an H200 on 2026-11-20:
for each shape the fastest there was.  What the papers themselves report of ConvStencil (PPoPP 2024) and LoRAStencil
(SC 2024) is for an A100, so it is context and no race.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import numpy as np
from _show import draw, options

from sparsegen.bench import report
from sparsegen.bench.cells import number
from sparsegen.bench.stencils import FORMS

RESULT = Path(__file__).resolve().parent.parent / "docs" / "bench" / "stencil.json"
MAKE = """On a machine with a GPU (each --floor is run beside it, and may be left out):
  sparsegen bench --suite stencil --part targets --floor "FILE.cu WORDS" --out docs/bench/stencil.json"""
#: GS/s: the best peer on the H200 and which it is; on an A100, as published, ConvStencil's and LoRAStencil's.
OTHERS: dict[str, tuple[float, str, float, float]] = {
    "Heat-1D": (1108, "FlashFFT, 14 steps fused", 272, 291),
    "1D5P": (556, "FlashFFT, 7 steps fused", 193, 214),
    "Heat-2D": (901, "EBISU, 12 steps (at 10240×10240: 495)", 188, 217),
    "Box-2D9P": (660, "EBISU, 6 steps", 183, 219),
    "Star-2D13P": (234, "AN5D, 6 steps", 63, 82),
    "Box-2D49P": (193, "tiled CUDA", 63, 73),
    "Heat-3D": (331, "EBISU, 8 steps", 35, 62),
    "Box-3D27P": (183, "EBISU, 5 steps", 25, 53),
}
BARS = ("ours", "floor", "best peer", "LoRAStencil, A100", "ConvStencil, A100")


def main(argv: Sequence[str] | None = None) -> int:
    """0; the file's own ``ok`` says whether a target was met."""
    parser = options(__doc__)
    parser.add_argument("--from", dest="file", type=Path, default=RESULT, metavar="FILE.json", help="the measurements")
    args = parser.parse_args(argv)
    if not args.file.is_file():
        print(f"{args.file} is not there: nothing was measured yet.  {MAKE}")
        return 0
    found = report.load(args.file)
    rows = {row["case"]: row for row in found["rows"] if row["part"] == "targets"}
    names = [form.name for form in FORMS if form.name in rows]
    if not names:
        print(f"{args.file} has no part targets.  {MAKE}")
        return 0

    rates: dict[str, list[float | None]] = {}
    cells = [["stencil", *BARS[:3], "of floor", "of peer", *BARS[3:], "peer"]]
    for name in names:
        peer, who, conv, lora = OTHERS[name]
        ours, floor = rows[name]["gs_per_s"], rows[name]["floor"]
        rates[name] = [ours, floor, peer, lora, conv]
        shares = [number(ours / other if ours and other else None, ".2f") for other in (floor, peer)]
        numbers = [number(rate, ".0f") for rate in rates[name]]
        cells.append([name, *numbers[:3], *shares, *numbers[3:], who])
    print(f"GS/s, f64, periodic; ours on {report.caption(found, 'targets')}\n\n{report.columns(cells)}\n")
    for name, row in rates.items():  # each shape's fastest has the longest bar
        most = max(rate or 0.0 for rate in row)
        for bar, rate in zip(BARS, row, strict=True):
            print(f"  {name if bar == 'ours' else '':<11} {bar:<18} {'#' * round(50 * (rate or 0.0) / most)}")

    def paint(figure: Any) -> None:
        axis = figure.add_subplot(ylabel="GS/s (logarithmic)", yscale="log", title=f"f64, periodic: {found['device']}")
        for at, bar in enumerate(BARS):
            axis.bar(np.arange(len(names)) + 0.17 * at, [rates[name][at] or 0 for name in names], 0.16, label=bar)
        axis.set_xticks(np.arange(len(names)) + 0.34, names)
        axis.legend()

    draw(args.picture, paint, 11)
    return 0


if __name__ == "__main__":
    sys.exit(main())
