"""Writes heat.cu and heat.h, which ``main.cpp`` beside this file calls without Python.

    python export_heat.py [FOLDER]

The steps and the shape are those of the kernel; heat.cu says how nvcc makes a program of the two.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import sparsegen as sg


@sg.stencil(dtype="f64", boundary=sg.periodic)
def heat(u: Any) -> Any:
    return 0.5 * u[0, 0] + 0.125 * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1])


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    k = sg.compile(heat, shape=(48, 64), steps=11, schedule="tiled fuse=3")
    print(f"wrote {k.export(folder / 'heat.cu')} and heat.h for {k.device.name}: {k.schedule}")
