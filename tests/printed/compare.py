"""Printed programs beside the emulator's: the same arrays go in, and what comes out may differ by one rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from sparsegen.backends.emulator import run
from sparsegen.ir import warp as w
from sparsegen.ir.module import Module
from sparsegen.plan import constant, launches
from sparsegen.run import emulator
from tests.printed.program import Program

Array = npt.NDArray[Any]
#: A fused multiply-add in f64 rounds once where the emulator rounds twice.
ROUNDING = {"float64": 2.0**-50, "float32": 2.0**-20, "float16": 2.0**-9, "bfloat16": 2.0**-6}
#: What results of whole calls may differ by, of the largest number.
SLACK = {"float16": 2**-8, "bfloat16": 2**-6, "float32": 2**-18, "float64": 2**-44, "int32": 0.0, "int8": 0.0}


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


def alike(kernel: Any, monkeypatch: pytest.MonkeyPatch, run_plan: Callable[..., None]) -> None:
    """AssertionError unless a call gives the same from ``run_plan(plan, given, new)`` as from the emulator."""
    given = kernel.random(3)
    wanted = _flat(kernel(**given))
    monkeypatch.setattr(emulator, "run_plan", lambda plan, given, new, work, cells: run_plan(plan, given, new))
    got = _flat(kernel(**given))
    assert not np.isnan(wanted).any()
    there = np.isfinite(wanted)  # a sum beyond what f16 holds is infinite, of both
    assert (got[~there] == wanted[~there]).all()
    slack = max(SLACK.get(out.dtype.name, 0.0) for out in kernel._calls.outputs.values())
    if bits := getattr(getattr(kernel.problem, "what", None), "softmax_bits", None):
        slack = max(slack, 2.0 ** (1 - bits))  # an exponential a rounding apart may be the next integer
    assert np.abs(got[there] - wanted[there]).max(initial=0) <= slack * max(1.0, np.abs(wanted[there]).max(initial=0))


def _flat(result: Any) -> Any:
    """All numbers of a result, whatever its form."""
    if isinstance(result, tuple):
        return np.concatenate([_flat(part) for part in result])
    return np.asarray(getattr(result, "values", result), np.float64).reshape(-1)


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
