"""What all commands share: exit codes, words of their options, the type of their arguments."""

from __future__ import annotations

import argparse

#: Exit codes: fine; the checkers found an error, or a measurement missed; the input is wrong.
OK, FOUND, WRONG = 0, 1, 2
LEVELS = ("op", "tile", "warp", "cuda", "ptx", "sass")
SUITES = ("spine", "overhead", "ablation", "stencil", "bitmap", "regret", "csr")
PARTS = (
    "targets", "boundaries", "odd", "f32", "single", "sweep", "widths", "bf16", "dlmc", "encode", "stencils",
    "products", "power-law", "given", "Heat-1D", "Box-2D9P", "Box-3D27P",
)  # fmt: skip
Args = argparse.Namespace
