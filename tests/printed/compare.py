"""Printed programs beside the emulator's: the same arrays go in, and what comes out may differ by one rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sparsegen.backends.emulator import run
from sparsegen.ir import warp as w
from sparsegen.ir.module import Module
from sparsegen.plan import constant, launches
from tests.printed.program import Program

Array = npt.NDArray[Any]
#: A fused multiply-add rounds once where the emulator rounds twice.
ROUNDING = {"float64": 2.0**-50, "float32": 2.0**-20, "float16": 2.0**-9, "bfloat16": 2.0**-6}


def on_emulator(module: Module, arrays: dict[str, Array]) -> dict[str, Array]:
    """All launches on copies of the arrays."""
    made = {role: a.copy() for role, a in arrays.items()}
    for bound in launches(module):
        args: dict[str, Any] = {}
        for param, role in bound.roles:
            data = made[role] if role in made else constant(module, role, param)
            args[param.name] = data if hasattr(param, "space") else data[0].item()
        assert isinstance(bound.func, w.Func)
        run(bound.func, args, checks=("bounds",)).raise_if_errors()
    return made


def printed(module: Module, arrays: dict[str, Array], source: str | None = None) -> dict[str, Array]:
    """The same from the printed text."""
    made = {role: a.copy() for role, a in arrays.items()}
    Program.of(module, source).run(made, dict.fromkeys(made, 0), seconds=2)
    return made


def differences(got: dict[str, Array], wanted: dict[str, Array]) -> list[str]:
    """A line for each array in which results differ by more than a rounding."""
    lines: list[str] = []
    for role, want in wanted.items():
        a, b = got[role].reshape(-1), want.reshape(-1)
        slack = ROUNDING.get(a.dtype.name, 0.0)
        if slack:
            x, y = a.astype(np.float64), b.astype(np.float64)
            with np.errstate(invalid="ignore"):
                near = np.isfinite(y) & (np.abs(x - y) <= slack * np.maximum(np.abs(y), 1))
            wrong = ~(near | (x == y) | (np.isnan(x) & np.isnan(y)))
        else:
            wrong = a != b
        if wrong.any():
            i = int(np.argmax(wrong))
            lines.append(f"{int(wrong.sum())} of {role}, the first at {i}: {a[i]}, not {b[i]}")
    return lines
