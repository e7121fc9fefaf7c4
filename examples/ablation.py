"""ConvStencil's ablation: what each idea gains, as in the paper's figure, measured here or predicted.

    python examples/ablation.py             # measured, where there is a GPU; else the cost model for an A100
    python examples/ablation.py --model     # the cost model, for an A100 and an H200

Box-2D9P, 10240 x 10240, three time steps fused into one 7 x 7 stencil, f64.  Every form is a line of text that
``sg.compile`` takes, so each can be looked at by itself: k.source(), k.ir("warp"), k.check().
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import sparsegen as sg
from sparsegen.bench import ablation, report
from sparsegen.cost.devices import load_profile


def main() -> None:
    parser = argparse.ArgumentParser(description="ConvStencil's ablation, measured or predicted")
    parser.add_argument("--model", action="store_true", help="predict, even where there is a GPU")
    args = parser.parse_args()

    print("The five forms, each with one thing more than the one before:")
    for form in ablation.FORMS:
        print(f"  {form.name + ':':<34} {form.schedule}")

    rates: list[float | None] = []
    devices = ["a100"]
    if args.model:
        devices.append("h200")
    else:
        try:
            # Fresh random input, checked against a naive kernel, timed with events on the device.
            rows = ablation.run(say=lambda line: print(f"  {line}"))
            rates = [row.gs_per_s for row in rows]
        except sg.DeviceError as error:
            print(f"\nNot measured: {error.message}.")
            devices.append("h200")

    models = {f"model, {name.upper()}": ablation.predicted(load_profile(name)) for name in devices}
    print()
    print(report.columns(ablation.table(rates, models)))


if __name__ == "__main__":
    main()
