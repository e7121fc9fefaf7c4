"""What all commands share: exit codes, words of their options, the type of their arguments."""

from __future__ import annotations

import argparse

#: Exit codes: fine; the checkers found an error, or a measurement missed; the input is wrong.
OK, FOUND, WRONG = 0, 1, 2
LEVELS = ("op", "tile", "warp", "cuda", "ptx", "sass")
SUITES = (
    "spine", "overhead", "ablation", "stencil", "bitmap", "regret", "csr", "nm", "magicube", "unstructured", "updates",
    "auto", "batches", "models",
)  # fmt: skip
Args = argparse.Namespace
