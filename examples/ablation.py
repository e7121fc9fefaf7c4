"""ConvStencil's ablation: what each idea gains, as in the paper's figure, measured here or predicted.

    python examples/ablation.py             # measured, where there is a GPU; else the cost model for an A100
    python examples/ablation.py --model     # the cost model, for an A100 and an H200

Heat-1D, Box-2D9P and Box-3D27P, three time steps fused into one stencil of an edge of 7, f64.  Every form is a line of
text that ``sg.compile`` takes, so each can be looked at by itself: k.source(), k.ir("warp"), k.check().
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import sparsegen as sg
from sparsegen.bench import ablation, report
from sparsegen.bench.lab import Lab
from sparsegen.bench.stencil_run import Stencils
from sparsegen.cost.devices import load_profile


def main() -> None:
    parser = argparse.ArgumentParser(description="ConvStencil's ablation, measured or predicted")
    parser.add_argument("--model", action="store_true", help="predict, even where there is a GPU")
    args = parser.parse_args()

    print("The five forms, each with one thing more than the one before:")
    for name, schedule in ablation.FORMS.items():
        print(f"  {name + ':':<34} {schedule}")

    rates: dict[str, list[float | None]] = {part: [] for part in ablation.PARTS}
    devices = ["a100"]
    if args.model:
        devices.append("h200")
    else:
        try:
            # Fresh random input, checked against a naive kernel, timed with events on the device.
            rows = Stencils(Lab()).run(ablation.cases(), say=lambda line: print(f"  {line}"))
            rates = {part: [row.gs_per_s for row in rows if row.part == part] for part in ablation.PARTS}
        except sg.DeviceError as error:
            print(f"\nNot measured: {error.message}.")
            devices.append("h200")

    for part in ablation.PARTS:
        models = {f"model, {name.upper()}": ablation.predicted(part, load_profile(name)) for name in devices}
        print(f"\n{part}")
        print(report.columns(ablation.table(part, rates[part], models)))


if __name__ == "__main__":
    main()
