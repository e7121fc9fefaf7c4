"""One case on every back end there is, compared with the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.target import gpu_info

TOLERANCE = {"f64": 1e-12, "f32": 2e-5}
"""max|a - b| / max|b| that a result may differ from the reference by; f32 is summed in another order."""

Agree = Callable[..., Any]


def backends() -> list[str]:
    """The back ends that can run here, the reference first."""
    here = [] if isinstance(gpu_info(), sg.DeviceError) else ["cuda"]
    return ["reference", "emulator", *here]


def error(a: Any, b: Any) -> float:
    """max|a - b| / max|b|."""
    return float(np.max(np.abs(a - b)) / np.max(np.abs(b)))


@pytest.fixture
def agree() -> Agree:
    """``agree(stencil, shape, steps, schedule, ...)`` runs the case on every back end and returns the result.

    Each back end's result is compared with the reference, its input must be as before, and a second call with ``out``
    must give the same bits.
    """

    def run(st: sg.Stencil, shape: tuple[int, ...], steps: int = 1, schedule: str = "auto", **options: Any) -> Any:
        u = np.random.default_rng(7).random(shape).astype("f4" if st.dtype == "f32" else "f8") - 0.25
        before = u.copy()
        want: Any = None
        for name in backends():
            device = "auto" if name == "cuda" else options.get("device", "h200")
            given = {**options, "device": device}
            k = sg.compile(st, shape, steps=steps, backend=name, schedule=schedule, **given)
            got = k(u)
            assert isinstance(got, np.ndarray) and got.dtype == u.dtype and got.shape == shape
            assert np.array_equal(u, before), f"{name} wrote its input"
            if want is None:
                want = got
            off = error(got, want)
            assert off <= TOLERANCE[st.dtype], f"{name} is off by {off:.3g} with {k.schedule}"
            out = np.full_like(u, np.nan)
            assert k(u, out=out) is out
            assert np.array_equal(out, got), f"{name}: a second call gives other bits"
        return want

    return run
